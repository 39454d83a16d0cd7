"""Conditions on values at the edges of their types, on nulls, and on operands that cannot be compared."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mdsx.errors import UsageError
from mdsx.format import NUMBERS, Vector, evaluate, parse_condition, references, to_items

COMPARES: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def column(base: str, *values: Any) -> Vector:
    """Return the values of a column, where None is null."""
    nulls = np.array([each is None for each in values])
    items = to_items(NUMBERS[base], [0 if each is None else each for each in values])
    return Vector(NUMBERS[base].numpy(items), nulls if nulls.any() else None, NUMBERS[base])


def lengths(*values: int) -> Vector:
    return Vector(np.array(values, np.uint32))


def chosen(text: str, **vectors: Vector) -> list[int]:
    """Return the samples that a condition chooses. `vectors`: of the columns, or of their lengths."""
    condition = parse_condition(text)
    found = evaluate(condition, {each: vectors[each.name] for each in references(condition)})
    return np.flatnonzero(found.true).tolist()


def pairs(one: Vector, sign: str, other: Vector) -> list[int]:
    """Return the samples for which a comparison of two columns is true, as Python compares numbers: exactly."""
    compare = COMPARES[sign]
    values = zip(one.values.tolist(), other.values.tolist(), strict=True)
    return [number for number, (left, right) in enumerate(values) if compare(left, right)]


def test_an_unknown_operand_decides_where_the_other_one_does_not() -> None:
    maybe, ok = column("int32", None, None, 5, 0), column("bool", True, False, False, False)
    for text in ("maybe > 1 or ok", "ok or maybe > 1"):
        assert chosen(text, maybe=maybe, ok=ok) == [0, 2]
        assert chosen(f"not ({text})", maybe=maybe, ok=ok) == [3]
    for text in ("maybe > 1 and ok", "ok and maybe > 1"):
        assert chosen(f"not ({text})", maybe=maybe, ok=ok) == [1, 2, 3]


@pytest.mark.parametrize("sign", COMPARES)
def test_columns_of_two_types_are_compared_exactly(sign: str) -> None:
    unsigned = column("uint64", 0, 0, 2**53, 2**53 + 1, 2**63, 2**64 - 1, 5)
    signed = column("int64", 0, -1, 2**53 + 1, 2**53, 2**63 - 1, -1, 5)
    assert chosen(f"u {sign} i", u=unsigned, i=signed) == pairs(unsigned, sign, signed)
    assert chosen(f"i {sign} u", u=unsigned, i=signed) == pairs(signed, sign, unsigned)
    single = column("float32", 2**24, 2**24, 2**32, math.nan, -math.inf)
    half = column("float16", 0.5, 2048, math.inf, 1, 0)
    for whole in (
        column("int32", 2**24 + 1, 2**24, 2**31 - 1, 0, -1),
        column("uint32", 2**24 + 1, 2**24, 2**32 - 1, 0, 0),
        column("uint16", 1, 2049, 0, 1, 2**16 - 1),
        lengths(2**24 + 1, 2**24, 2**32 - 1, 0, 0),
    ):
        name = "x" if whole.type else "length(x)"
        for real in (single, half):
            assert chosen(f"{name} {sign} y", x=whole, y=real) == pairs(whole, sign, real)
            assert chosen(f"y {sign} {name}", x=whole, y=real) == pairs(real, sign, whole)


def test_a_comparison_with_null_is_unknown() -> None:
    one, other = column("int32", None, 0, 1, None), column("int32", 0, None, 1, None)
    for text in ("x = y", "not x = y", "x != y", "not x != y"):
        assert chosen(text, x=one, y=other) == ([2] if text in ("x = y", "not x != y") else [])


@pytest.mark.parametrize("base", ["int8", "uint16", "int64", "uint64"])
def test_numbers_may_be_at_the_edges_of_a_type_or_beyond(base: str) -> None:
    low, high = int(np.iinfo(base).min), int(np.iinfo(base).max)
    values = [low, low + 1, high - 1, high]
    for number in (low - 1, low, high, high + 1):
        for sign, compare in COMPARES.items():
            found = chosen(f"x {sign} {number}", x=column(base, *values))
            assert found == [at for at, value in enumerate(values) if compare(value, number)]


@pytest.mark.parametrize("base", ["float32", "float64"])
def test_numbers_may_be_too_large_for_any_float(base: str) -> None:
    values = [0.0, math.inf, -math.inf, math.nan, 2.0**127, -(2.0**127)]
    for number in (10**39, -(10**39), 10**398, -(10**398)):
        for sign, compare in COMPARES.items():
            with np.errstate(over="raise"):
                found = chosen(f"x {sign} {number}", x=column(base, *values))
            assert found == [at for at, value in enumerate(values) if compare(value, number)]


def test_a_list_may_have_the_edges_of_a_type_and_numbers_beyond() -> None:
    assert chosen("x in (-129, -128, 127, 128, 0.5)", x=column("int8", -128, -127, 0, 126, 127)) == [0, 4]
    values = column("uint64", 2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, 2**64 - 1)
    assert chosen(f"x in ({2**53}, {2**53 + 1})", x=values) == [1, 2]
    assert chosen(f"x in ({2**64 - 1}, {2**64})", x=values) == [4]


def test_columns_of_bools_are_equal_or_not() -> None:
    one, other = column("bool", True, True, False), column("bool", True, False, None)
    assert chosen("one = other", one=one, other=other) == [0]
    assert chosen("other != one", one=one, other=other) == [1]
    with pytest.raises(UsageError, match="column 'one' has bools, which only = and != can compare") as caught:
        chosen("one < other", one=one, other=other)
    assert caught.value.found == "<"


@pytest.mark.parametrize(
    ("condition", "place", "found"),
    [
        ("flag = 1", "'flag'", "bool and 1"),
        ("mask = 1", "'mask'", "bool and 1"),
        ("True = number", "'number'", "int8 and true"),
        ("number in (1, true)", "'number'", "int8 and true"),
        ("flag in (true, 2)", "'flag'", "bool and 2"),
        ("length(words) != false", "length(words)", "a length and false"),
        ("length(words) = flag", "length(words)", "a length and bool"),
        ("mask > number", "'mask'", "bool and int8"),
    ],
)
def test_bools_are_not_compared_with_numbers(condition: str, place: str, found: str) -> None:
    mask = Vector(np.array([True]))  # whether a value is there
    with pytest.raises(UsageError, match=r"^[^ ]*: bools and numbers cannot be compared") as caught:
        chosen(condition, flag=column("bool", True), mask=mask, number=column("int8", 1), words=lengths(1))
    assert (caught.value.place, caught.value.found) == (place, found)
    assert caught.value.hint == "compare bools with true or false, numbers with numbers"


@pytest.mark.parametrize("condition", ["whole = real", "real < whole"])
@pytest.mark.parametrize("base", ["int64", "uint64"])
def test_integers_of_64_bits_are_not_compared_with_floats(base: str, condition: str) -> None:
    with pytest.raises(UsageError, match=r"^integers of 64 bits and floats cannot be compared exactly") as caught:
        chosen(condition, whole=column(base, 1), real=column("float16", 1))
    whole, real = f"'whole' of type {base}", "'real' of type float16"
    expected = f"{whole}, 'real' of float16" if condition.startswith("whole") else f"{real}, 'whole' of {base}"
    assert caught.value.found == expected
    assert caught.value.hint == "use ds.filter(function, input_columns=[...])"


def test_a_column_of_numbers_alone_is_no_condition() -> None:
    with pytest.raises(UsageError, match=r"^a column of numbers is not a condition: compare column 'x' ") as caught:
        chosen("not x", x=column("uint16", 1))
    assert caught.value.found == "uint16"
