"""Evaluate conditions on many samples at once, with the three truth values of SQL: true, false and unknown.

Rules:
- A comparison with null is unknown. `not` unknown is unknown. `and` and `or` are unknown if the unknown operand
  decides. Only samples for which the whole condition is true are chosen.
- Numbers are compared exactly, whatever their types. Operands that cannot be compared exactly are refused.
- A number with a point or an exponent is first rounded to the type of the float column that it is compared with, as a
  writer rounds values. So `score = 0.9` finds a float32 that was written as 0.9.
- NaN does not equal any number, including itself; `!=` is then true.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import UsageError, shown
from mdsx.format.conditions import (
    Among,
    ColumnLength,
    ColumnNull,
    ColumnValue,
    Compare,
    Comparison,
    Condition,
    Constant,
    Joined,
    Negation,
    Reference,
)
from mdsx.format.families.record import Float, Number

Bools = NDArray[np.bool_]
_OfColumn = ColumnValue | ColumnLength


class Vector(NamedTuple):
    """The values of a reference for n samples: numbers, in NumPy's types, or bools, and which are null (None: none).

    `type`: the type of the numbers; None for lengths, which are below 2^32.
    """

    values: NDArray[Any]
    nulls: Bools | None = None
    type: Number | None = None


class Truth(NamedTuple):
    """For which samples a condition is true, and for which it is unknown (None: none), bool [n]."""

    true: Bools
    unknown: Bools | None = None


def evaluate(condition: Condition, vectors: Mapping[Reference, Vector]) -> Truth:
    """Evaluate a condition. `vectors`: the values of all its references.

    Raise UsageError for operands that cannot be compared, which depends only on their types.
    """
    if isinstance(condition, Joined):
        return reduce(
            _and if condition.word == "and" else _or, (evaluate(each, vectors) for each in condition.conditions)
        )
    if isinstance(condition, Negation):
        found = evaluate(condition.condition, vectors)
        return Truth(~found.true if found.unknown is None else ~(found.true | found.unknown), found.unknown)
    if isinstance(condition, Comparison):
        return _compared(condition, vectors)
    if isinstance(condition, Among):
        vector = vectors[condition.operand]
        return _known(_among(vector, condition), vector.nulls)
    vector = vectors[condition]
    if isinstance(condition, ColumnNull):
        return Truth(vector.values)
    if vector.values.dtype != np.bool_:
        message = f"a column of numbers is not a condition: compare column {condition.name!r} with a number"
        raise UsageError(message, found=_type_of(vector))
    return _known(vector.values, vector.nulls)


def _and(one: Truth, other: Truth) -> Truth:
    true = one.true & other.true
    if one.unknown is None and other.unknown is None:
        return Truth(true)
    return Truth(true, _possible(one) & _possible(other) & ~true)


def _or(one: Truth, other: Truth) -> Truth:
    true = one.true | other.true
    if one.unknown is None and other.unknown is None:
        return Truth(true)
    return Truth(true, (_possible(one) | _possible(other)) & ~true)


def _possible(one: Truth) -> Bools:
    return one.true if one.unknown is None else one.true | one.unknown


def _known(true: Bools, nulls: Bools | None) -> Truth:
    return Truth(true) if nulls is None else Truth(true & ~nulls, nulls)


# --- comparisons

_SAME: dict[Compare, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MIRRORED: dict[Compare, Compare] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _compared(condition: Comparison, vectors: Mapping[Reference, Vector]) -> Truth:
    left, compare, right = condition.left, condition.compare, condition.right
    if isinstance(left, bool | int | float):
        left, compare, right = right, _MIRRORED[compare], left
    assert isinstance(left, _OfColumn), "at least one operand is a reference"
    one = vectors[left]
    if isinstance(right, bool | int | float):
        return _known(_with_number(one, compare, right, left), one.nulls)
    other = vectors[right]
    nulls = one.nulls if other.nulls is None else other.nulls if one.nulls is None else one.nulls | other.nulls
    return _known(_with_vector(one, compare, other, left, right), nulls)


def _with_number(vector: Vector, compare: Compare, number: Constant, operand: _OfColumn) -> Bools:
    values = vector.values
    if values.dtype == np.bool_ or isinstance(number, bool):
        if values.dtype != np.bool_ or not isinstance(number, bool):
            raise _not_alike(_name(operand), _type_of(vector), str(number).lower())
        _check_bools(compare, operand)
        return values if number == (compare == "=") else ~values
    if values.dtype.kind == "f":
        low, high = _floats_around(vector, number)
    else:
        low, high = math.floor(number), math.ceil(number)
    return _around(values, compare, low, high)


def _around(values: NDArray[Any], compare: Compare, low: Any, high: Any) -> Bools:
    """Compare with a number. `low` and `high`: the nearest numbers of the values' type, equal if the number is one."""
    if compare == "=":
        return _bounded(values, compare, low) if low == high else np.zeros(len(values), np.bool_)
    if compare == "!=":
        return _bounded(values, compare, low) if low == high else np.ones(len(values), np.bool_)
    return _bounded(values, compare, high if compare in ("<", ">=") else low)


def _bounded(values: NDArray[Any], compare: Compare, bound: Any) -> Bools:
    """Compare integers with an integer that their type may not hold, or floats with a float of their type."""
    if values.dtype.kind in "iu":
        limits = np.iinfo(values.dtype)
        if not limits.min <= bound <= limits.max:
            above = bound > limits.max
            true = compare == "!=" or (compare in ("<", "<=") if above else compare in (">", ">="))
            return np.full(len(values), true)
        bound = values.dtype.type(bound)
    found: Bools = _SAME[compare](values, bound)
    return found


def _floats_around(vector: Vector, number: Constant) -> tuple[Any, Any]:
    """Return the largest float of a column's type that is at most `number`, and the smallest that is at least it."""
    kind = vector.values.dtype.type
    if isinstance(number, float) and (rounded := _rounded(vector, number)) is not None:
        return rounded, rounded
    try:
        with np.errstate(over="ignore"):
            near = kind(float(number))
    except OverflowError:
        near = kind(math.inf if number > 0 else -math.inf)
    if float(near) == number:  # Python compares exactly
        return near, near
    if float(near) > number:
        return np.nextafter(near, kind(-math.inf)), near
    return near, np.nextafter(near, kind(math.inf))


def _rounded(vector: Vector, number: float) -> Any:
    """Round a number as a writer would for the column, in NumPy's type. Return None if it is too large."""
    assert isinstance(vector.type, Float), "lengths are integers"
    try:
        items = np.frombuffer(vector.type.pack(number), vector.type.item)
    except OverflowError:
        return None
    return vector.type.numpy(items)[0]


def _with_vector(one: Vector, compare: Compare, other: Vector, left: _OfColumn, right: _OfColumn) -> Bools:
    kinds = one.values.dtype.kind + other.values.dtype.kind
    if "b" in kinds:
        if kinds != "bb":
            raise _not_alike(_name(left), _type_of(one), _type_of(other))
        _check_bools(compare, left)
    elif "f" in kinds and kinds != "ff":
        whole = one if kinds[0] != "f" else other
        if whole.type is not None and whole.values.dtype.itemsize == 8:
            raise UsageError(
                "integers of 64 bits and floats cannot be compared exactly",
                found=f"{_name(left)} of type {_type_of(one)}, {_name(right)} of {_type_of(other)}",
                hint="use ds.filter(function, input_columns=[...])",
            )
        # NumPy compares shorter integers, and lengths, with floats as numbers of a float type that holds both exactly.
    elif set(kinds) == {"i", "u"} and np.result_type(one.values, other.values).kind == "f":
        if kinds[0] == "i":
            one, compare, other = other, _MIRRORED[compare], one
        return _with_signed(one.values, compare, other.values)
    found: Bools = _SAME[compare](one.values, other.values)
    return found


def _with_signed(unsigned: NDArray[Any], compare: Compare, signed: NDArray[Any]) -> Bools:
    """Compare uint64 with signed integers, which NumPy 1 would convert to floats."""
    negative = signed < 0
    found: Bools = _SAME[compare](unsigned, signed.astype(np.uint64))
    return np.where(negative, compare in ("!=", ">", ">="), found)


def _among(vector: Vector, condition: Among) -> Bools:
    values, numbers = vector.values, condition.numbers
    is_bool = values.dtype == np.bool_
    if is_bool or any(isinstance(number, bool) for number in numbers):
        wrong = [number for number in numbers if isinstance(number, bool) != is_bool]
        if wrong:
            raise _not_alike(_name(condition.operand), _type_of(vector), str(wrong[0]).lower())
        return np.isin(values, numbers)
    if values.dtype.kind == "f":
        around = [_floats_around(vector, number) for number in numbers]
        wanted = [low for low, high in around if low == high]
    else:
        limits = np.iinfo(values.dtype)
        wanted = [int(number) for number in numbers if number == math.floor(number)]
        wanted = [number for number in wanted if limits.min <= number <= limits.max]
    sought = np.unique(np.array(wanted, values.dtype))
    if not len(sought):
        return np.zeros(len(values), np.bool_)
    places = np.minimum(np.searchsorted(sought, values), len(sought) - 1)
    found: Bools = sought[places] == values
    return found


# --- errors


def _check_bools(compare: Compare, operand: _OfColumn) -> None:
    if compare not in ("=", "!="):
        raise UsageError(f"column {_name(operand)} has bools, which only = and != can compare", found=compare)


def _not_alike(name: str, found: str, other: str) -> UsageError:
    hint = "compare bools with true or false, numbers with numbers"
    return UsageError("bools and numbers cannot be compared", place=name, found=f"{found} and {other}", hint=hint)


def _type_of(vector: Vector) -> str:
    return "a length" if vector.type is None and vector.values.dtype != np.bool_ else str(vector.values.dtype)


def _name(operand: _OfColumn) -> str:
    return shown(operand.name) if isinstance(operand, ColumnValue) else f"length({operand.name})"
