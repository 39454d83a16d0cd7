"""Arguments that are integers are taken in any form; others are refused by name."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from mdsx.errors import UsageError
from mdsx.order import integer, integers


@pytest.mark.parametrize("value", [3, np.int8(3), np.uint64(3), np.array(3)])
def test_an_integer_of_any_kind_becomes_an_int(value: Any) -> None:
    found = integer(value, "number", 3, 3)
    assert found == 3
    assert type(found) is int


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (1, "number is out of range (expected 2 to 5, found 1)"),
        (6, "number is out of range (expected 2 to 5, found 6)"),
        (np.uint64(2**64 - 1), "number is out of range (expected 2 to 5, found 18446744073709551615)"),
        (3.0, "number must be an integer (found 3.0)"),
        ("3", "number must be an integer (found '3')"),
        (True, "number must be an integer (found True)"),
        (np.True_, "number must be an integer (found "),
        (None, "number must be an integer (found None)"),
    ],
)
def test_another_value_is_refused_by_name(value: Any, message: str) -> None:
    with pytest.raises(UsageError, match="^" + re.escape(message)):
        integer(value, "number", 2, 5)


@pytest.mark.parametrize(
    "values", [[0, 4], (0, 4), range(0, 8, 4), np.array([0, 4], np.uint8), np.array([0, 4], np.uint64)]
)
def test_integers_of_any_kind_become_int64(values: Any) -> None:
    found = integers(values, "numbers", 5)
    assert found.dtype == np.int64
    assert found.tolist() == [0, 4]


@pytest.mark.parametrize("values", [[], np.zeros(0), np.zeros(0, np.bool_)])
def test_no_integers_are_integers(values: Any) -> None:
    found = integers(values, "numbers", 5)
    assert found.dtype == np.int64
    assert found.tolist() == []


def test_an_int64_array_is_not_copied() -> None:
    values = np.array([3, 1])
    assert integers(values, "numbers", 5) is values


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0, 5], "numbers[1] is out of range (expected 0 to 4, found 5)"),
        ([0, -1, 7], "numbers[1] is out of range (expected 0 to 4, found -1)"),
        ([-1, 7], "numbers[0] is out of range (expected 0 to 4, found -1)"),
        (np.array([2**64 - 1], np.uint64), "numbers[0] is out of range (expected 0 to 4, found 18446744073709551615)"),
        ([1.0], "numbers must be integers (found dtype float64)"),
        ([True], "numbers must be integers (found dtype bool)"),
        (["1"], "numbers must be integers (found dtype <U1)"),
        ([[1]], "numbers must be one-dimensional (found 2 dimensions)"),
        (1, "numbers must be one-dimensional (found 0 dimensions)"),
    ],
)
def test_other_values_are_refused_by_name_and_place(values: Any, message: str) -> None:
    with pytest.raises(UsageError, match="^" + re.escape(message)):
        integers(values, "numbers", 5)
