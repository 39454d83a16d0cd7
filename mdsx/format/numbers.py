"""Convert a caller's numbers to stored items, and check each value.

Integers and bools must be in range, and a float column must hold them exactly. Integer columns accept no floats. Python
floats are rounded to nearest, ties to even; a finite one must not become infinite. A float array (or NumPy scalar, or
tensor) must have the column's dtype or a narrower one, so that precision is never lost by accident. np.float64 scalars
count as Python floats.

Dates and durations are refused, because a number has no unit.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from mdsx.format.bases import NUMBERS
from mdsx.format.families.integers import BOOL
from mdsx.format.families.record import Float, Integer, Number
from mdsx.format.inputs import Refused, as_array, describe, each, first_true, short
from mdsx.format.types import MAX_DIMENSIONS


def scalar_encoder(base: Number) -> Callable[[object], bytes]:
    """Return a function that encodes one number as one item of `base`, or raises Refused."""
    if isinstance(base, Float):
        return _float_encoder(base)
    assert isinstance(base, Integer)
    return _encode_bool if base is BOOL else _integer_encoder(base)


def to_items(base: Number, value: object, *, depth: int = 0) -> NDArray[Any]:
    """Convert an array-like of any shape to `base` items in their storage dtype. Raise Refused.

    An array in the storage dtype is returned without a copy. `depth`: the number of lists around `value`.
    """
    if depth > MAX_DIMENSIONS:
        raise Refused(f"at most {MAX_DIMENSIONS} dimensions", "more")
    if isinstance(value, np.ndarray) and value.dtype == object:
        value = value.tolist()
    given = None if isinstance(value, float) else as_array(value)  # np.float64 is both
    if given is not None:
        return _convert(base, *given)
    if isinstance(value, list | tuple):
        return _from_list(base, value, depth + 1)
    return np.frombuffer(scalar_encoder(base)(value), base.item).reshape(())


def _integer_encoder(base: Integer) -> Callable[[object], bytes]:
    pack = struct.Struct(f"<{base.code}").pack

    def encode(value: object) -> bytes:
        if type(value) is not int:
            if isinstance(value, np.timedelta64) or not isinstance(value, int | np.integer):  # NumPy counts it as one
                return _encode_item(base, value)
            value = int(value)
        try:
            return pack(value)
        except struct.error:
            _refuse_range(base, value)

    return encode


def _encode_bool(value: object) -> bytes:
    if not isinstance(value, int):
        return _encode_item(BOOL, value)
    if value not in (0, 1):
        _refuse_range(BOOL, value)
    return b"\1" if value else b"\0"


def _float_encoder(base: Float) -> Callable[[object], bytes]:
    pack = base.pack

    def encode(value: object) -> bytes:
        if type(value) is not float:
            if isinstance(value, int):
                if not _exact(base, value):
                    _refuse_inexact(base, value)
            elif not isinstance(value, float):  # np.float64 is one
                return _encode_item(base, value)
            value = float(value)
        try:
            return pack(value)
        except OverflowError:
            raise Refused(f"a number that is finite as {base.name}", value) from None

    return encode


def _encode_item(base: Number, value: object) -> bytes:
    """Encode one number, given as a NumPy scalar, or as a tensor or array without dimensions."""
    given = as_array(value)
    if given is None or given[0].shape:
        raise Refused(f"one {base.name}", describe(value), hint=_way_out(value))
    return _convert(base, *given).tobytes()


def _from_list(base: Number, values: Sequence[object], depth: int) -> NDArray[Any]:
    kinds = set(map(type, values))
    if not kinds <= {int, bool, float}:
        return _stack(each(values, lambda value: to_items(base, value, depth=depth)), values)
    if base.code and (kinds == {float} if isinstance(base, Float) else float not in kinds):
        try:
            return np.frombuffer(struct.pack(f"<{len(values)}{base.code}", *values), base.item)
        except (struct.error, OverflowError):
            pass  # encoding them one by one finds the item that does not fit, and the reason
    return np.frombuffer(b"".join(each(values, scalar_encoder(base))), base.item)


def _stack(parts: list[NDArray[Any]], values: Sequence[object]) -> NDArray[Any]:
    shapes = {part.shape for part in parts}
    if len(shapes) > 1:
        raise Refused("items of one shape", f"{describe(values)} of shapes {sorted(map(list, shapes))[:4]}")
    return np.stack(parts)


def _convert(base: Number, items: NDArray[Any], given: str) -> NDArray[Any]:
    """Return `items`, whose dtype is named `given`, as `base` in its storage dtype."""
    if given == BOOL.name:  # true is stored as 1, whatever its byte was
        items = np.not_equal(items.view(np.uint8), 0).view(np.uint8)
    if given == base.name:
        return items.astype(base.item, copy=False)
    source = NUMBERS.get(given)
    if isinstance(base, Float):
        return _integers_to_floats(base, items) if isinstance(source, Integer) else _widen(base, items, given, source)
    assert isinstance(base, Integer)
    if not isinstance(source, Integer):
        hint = "round them first, such as with .astype" if source is not None else _way_out(items)
        raise Refused(f"{base.name} or other integers in range", describe(items), hint=hint)
    bad = _outside(items, base.low, base.high)
    if bad is not None:
        at = first_true(bad)
        _refuse_range(base, int(items[at]), at)
    return items.astype(base.item)


def _integers_to_floats(base: Float, items: NDArray[Any]) -> NDArray[Any]:
    safe = 2**base.digits  # every integer up to this is exact
    bad = _outside(items, -safe, safe)
    if bad is not None:
        for at in np.argwhere(bad).tolist():
            value = int(items[tuple(at)])
            if not _exact(base, value):
                _refuse_inexact(base, value, tuple(at))
    return base.narrow(items if base.native else items.astype(np.float32))


def _widen(base: Float, items: NDArray[Any], given: str, source: Number | None) -> NDArray[Any]:
    if not isinstance(source, Float) or not base.holds(source):
        hint = f"convert them to {base.name} if they may lose precision" if "float" in given else _way_out(items)
        raise Refused(f"{base.name}, a narrower float, or integers", given, hint=hint)
    return base.narrow(source.numpy(items))


def _outside(items: NDArray[Any], low: int, high: int) -> NDArray[np.bool_] | None:
    """Return a mask of the integers outside low..high, or None if there are none."""
    limits = np.iinfo(items.dtype)
    low, high = max(low, int(limits.min)), min(high, int(limits.max))
    if not items.size or (low <= int(items.min()) and int(items.max()) <= high):
        return None
    return (items < low) | (items > high)


def _exact(base: Float, value: int) -> bool:
    """Return whether a float of this base can hold this integer exactly."""
    value = abs(value)
    zeros = (value & -value).bit_length() - 1
    return value.bit_length() - zeros <= base.digits and value <= base.largest


def _refuse_range(base: Integer, value: int, at: tuple[int, ...] = ()) -> NoReturn:
    raise Refused(f"{base.low} to {base.high}", short(value), at=at)


def _refuse_inexact(base: Float, value: int, at: tuple[int, ...] = ()) -> NoReturn:
    expected = f"an integer that {base.name} holds exactly"
    raise Refused(expected, short(value), at=at, hint="give a float if it may be rounded")


def _way_out(value: object) -> str | None:
    """Return a hint on how to convert such a value to numbers."""
    dtype = getattr(value, "dtype", None)
    kind = getattr(dtype, "kind", None)
    if kind == "m" or isinstance(value, timedelta):
        return "give a number in a unit, such as value / np.timedelta64(1, 's'); for NaT, None in a column with '?'"
    if kind == "M" or isinstance(value, date):
        return "give a number in a unit, such as value.astype('datetime64[s]').astype('int64'), or a str; for NaT, None"
    if kind == "c" or isinstance(value, complex):
        return "give the real and imaginary parts as two columns, or as an additional dimension"
    if getattr(dtype, "names", None) is not None:
        return "give each field as a column"
    return None
