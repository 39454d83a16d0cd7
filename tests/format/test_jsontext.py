"""The long arrays of an index: NumPy reads what is plainly written, and only that."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdsx.format import jsontext
from mdsx.format.jsontext import plain_hexadecimal, plain_integers

NUMBERS = st.lists(st.integers(0, 18).flatmap(lambda digits: st.integers(0, 10**digits - 1)), min_size=1, max_size=60)


@given(NUMBERS, st.sampled_from([20, 33, 2**18]))
def test_integers_are_those_of_json(numbers: list[int], block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsontext, "_BLOCK", block)
        found = plain_integers(json.dumps(numbers, separators=(",", ":")).encode())
    assert found is not None
    assert found.tolist() == numbers


@given(st.binary(max_size=100), st.sampled_from([2, 64, 2**18]))
def test_hexadecimal_digits_are_those_of_python(data: bytes, block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsontext, "_BLOCK", block)
        found = plain_hexadecimal(f'"{data.hex()}"'.encode())
    assert found is not None
    assert found.tobytes() == data


OTHER_INTEGERS = ["[]", "12", "[1, 2]", "[ 1]", "[1 ]", "[-1]", "[1.0]", "[1e3]", "[1000000000000000000]", "null"]
NO_INTEGERS = [
    "[1,]",
    "[,1]",
    "[1,,2]",
    "[01]",
    "[1,00]",
    "[1;2]",
    "[1:2]",
    "[1/2]",
    "[1]]",
    "[1]2]",
    '["1"]',
    "[true]",
]


@pytest.mark.parametrize("text", OTHER_INTEGERS + NO_INTEGERS)
def test_any_other_array_is_left_to_json(text: str) -> None:
    assert plain_integers(text.encode()) is None


@pytest.mark.parametrize("middle", ["AB", "aB", "g0", "`0", "/0", ":0", "0", "  ", "\\u0061", "é"])
def test_any_other_string_is_left_to_json(middle: str) -> None:
    assert plain_hexadecimal(f'"00{middle}"'.encode()) is None
    assert plain_hexadecimal(middle.encode()) is None
