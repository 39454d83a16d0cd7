"""The long arrays of an index: NumPy reads only plain ones."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdsx.format.plain_arrays import plain_hexadecimal, plain_integers

NUMBERS = st.lists(st.integers(0, 18).flatmap(lambda digits: st.integers(0, 10**digits - 1)), min_size=1, max_size=60)


@given(NUMBERS)
def test_integers_are_those_of_json(numbers: list[int]) -> None:
    found = plain_integers(json.dumps(numbers, separators=(",", ":")).encode())
    assert found is not None
    assert found.tolist() == numbers


@given(st.binary(max_size=100))
def test_hexadecimal_digits_are_those_of_python(data: bytes) -> None:
    found = plain_hexadecimal(f'"{data.hex()}"'.encode())
    assert found is not None
    assert found.tobytes() == data


@pytest.mark.parametrize("seed", range(5))
def test_arrays_longer_than_a_block_are_whole(seed: int) -> None:
    """Arrays are parsed in blocks of 2^18 bytes, whose ends can cut a number."""
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 10 ** rng.integers(1, 19, 80_000), dtype=np.int64)
    text = json.dumps(numbers.tolist(), separators=(",", ":")).encode()
    assert len(text) > 3 * 2**18
    found = plain_integers(text)
    assert found is not None
    np.testing.assert_array_equal(found, numbers)
    data = rng.bytes(2**18 + seed)  # two digits each
    digits = plain_hexadecimal(f'"{data.hex()}"'.encode())
    assert digits is not None
    assert digits.tobytes() == data


OTHER_INTEGERS = ["[]", "1", "12", "[1, 2]", "[ 1]", "[1 ]", "[-1]", "[1.0]", "[1e3]", "[1000000000000000000]", "null"]
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
