"""Casts of numbers: their types, which ones are allowed, and which numbers fit."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mdsx.errors import UsageError
from mdsx.format import NUMBERS, always_fits, cast, check_castable, first_outside, given_item, number_type

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]


class Torch:
    """Its text is that of a dtype of PyTorch."""

    def __repr__(self) -> str:
        return "torch.bfloat16"


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ("uint16", "uint16"),
        (np.int8, "int8"),
        (np.dtype("float32"), "float32"),
        (bool, "bool"),
        ("float8_e4m3fn", "float8_e4m3fn"),
        (Torch(), "bfloat16"),
    ],
)
def test_a_type_of_numbers_is_named_by_text_numpy_or_pytorch(dtype: object, name: str) -> None:
    assert number_type("x", dtype) == name


@pytest.mark.parametrize("dtype", ["str", "int64?", "int64[2]", "int", "later", "", np.str_, 3])
def test_other_types_are_refused(dtype: object) -> None:
    with pytest.raises(UsageError, match="unknown type of numbers") as caught:
        number_type("x", dtype)
    assert (caught.value.place, caught.value.found) == ("dtypes, column 'x'", repr(dtype))
    assert caught.value.expected == ", ".join(NUMBERS)


def test_floats_become_no_integers_and_only_bools_become_bools() -> None:
    for source, target in (("bool", "bool"), ("bool", "uint8"), ("int8", "float16"), ("float64", "bfloat16")):
        check_castable("x", source, target)
    for source, target in (("int8", "bool"), ("float16", "bool"), ("float32", "int64"), ("float64", "uint8")):
        with pytest.raises(UsageError, match="a column cannot be cast to this type") as caught:
            check_castable("x", source, target)
        assert (caught.value.place, caught.value.found) == ("dtypes, column 'x'", f"{source} to {target}")
        assert caught.value.expected == "integers to integers or floats, floats to floats"


def test_an_integer_type_always_fits_into_one_with_its_range() -> None:
    for source in INTEGERS:
        for target in INTEGERS:
            own, other = np.iinfo(source), np.iinfo(target)
            assert always_fits(source, target) == (other.min <= own.min and own.max <= other.max)
        assert always_fits(source, "float16")


@pytest.mark.parametrize("target", INTEGERS)
def test_the_first_number_that_does_not_fit_is_found(target: str) -> None:
    low, high = np.iinfo(target).min, np.iinfo(target).max
    assert first_outside(np.array([], np.int64), target) is None
    fits = np.array([[low, high], [high, low]], target)
    assert first_outside(fits, target) is None
    if high < 2**32:
        assert first_outside(fits.astype(np.int64), target) is None
        assert first_outside(np.array([[low, high], [high + 1, low - 1]]), target) == 2
    if low:
        assert first_outside(np.array([high, high + 1], np.uint64), target) == 1
    else:
        assert first_outside(np.array([0, -1, -2]), target) == 1


def test_numbers_are_cast_in_their_stored_form() -> None:
    items = np.array([0, 1], np.uint8)
    assert cast(items, "bool", "bool") is items
    assert cast(items, "bool", "int16").dtype == np.int16
    assert cast(items, "bool", "float32").tolist() == [0.0, 1.0]
    halves = cast(np.array([1, 2**17], np.int32), "int32", "float16")
    assert (str(halves.dtype), halves.tolist()) == ("float16", [1.0, math.inf])
    bits = cast(np.array([1.0, 1e-50]), "float64", "bfloat16")
    assert (str(bits.dtype), bits.tolist()) == ("uint16", [0x3F80, 0])
    assert cast(bits, "bfloat16", "float64").tolist() == [1.0, 0.0]


def test_a_number_of_the_user_becomes_an_item() -> None:
    item = given_item("bfloat16", 1, "pad_value", "x")
    assert (str(item.dtype), item.shape, int(item)) == ("uint16", (), 0x3F80)


@pytest.mark.parametrize(
    ("value", "found", "expected"),
    [(300, 300, "0 to 255"), ([1], "[1]", "a number"), ("a", "str 'a'", "one uint8")],
)
def test_a_number_of_the_user_that_does_not_fit_is_refused(value: object, found: object, expected: str) -> None:
    with pytest.raises(UsageError, match="the pad value does not fit the column's type in the batch") as caught:
        given_item("uint8", value, "pad_value", "x")
    error = caught.value
    assert (error.place, error.found) == ("pad_value of column 'x', type 'uint8'", found)
    assert error.expected == expected
    assert error.hint == "give another pad_value, or another type in dtypes="
