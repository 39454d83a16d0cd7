"""Convert the numbers that a caller passes to stored items, and check each value.

Integers and bools must be in range; a float column must hold them exactly. Integer columns take no floats. Python
floats are rounded to nearest, ties to even; a finite one must not become infinite. A float array (or NumPy scalar, or
tensor) must have the column's dtype or a narrower one, so that no precision is lost by accident. np.float64 scalars
count as Python floats.

Dates and durations are refused, because a number has no unit.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from mdsx.format.inputs import Refused, as_array, describe, each, first_true, short
from mdsx.format.types import MAX_DIMENSIONS, SCALARS

_CODES = dict(zip(("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"), "bhiqBHIQ", strict=True))
_CODES |= {"float16": "e", "float32": "f", "float64": "d"}
"""Base -> its code in the struct module. Bool and bfloat16 are encoded without it."""

_RANGES = {
    base: (int(np.iinfo(SCALARS[base]).min), int(np.iinfo(SCALARS[base]).max)) for base in SCALARS if "int" in base
}
_RANGES["bool"] = (0, 1)

_FLOATS = {"float16": (11, 16), "bfloat16": (8, 128), "float32": (24, 128), "float64": (53, 1024)}
"""Base -> bits of the significand, and bits of the largest integers."""

_HELD = {"float16": ("float16",), "bfloat16": ("bfloat16",), "float32": ("float16", "bfloat16", "float32")}
_HELD["float64"] = (*_HELD["float32"], "float64")
"""Base -> the float dtypes whose values it can hold without loss."""


def scalar_encoder(base: str) -> Callable[[object], bytes]:
    """Return a function that encodes one number as one `base` item, or raises Refused."""
    if base in _FLOATS:
        return _float_encoder(base)
    return _encode_bool if base == "bool" else _integer_encoder(base)


def to_items(base: str, value: object, *, depth: int = 0) -> NDArray[Any]:
    """Return an array-like of any shape as `base` items in their storage dtype. Raise Refused.

    An array in the storage dtype is returned without a copy. `depth` is the number of lists around `value`.
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
    return np.frombuffer(scalar_encoder(base)(value), SCALARS[base]).reshape(())


def _integer_encoder(base: str) -> Callable[[object], bytes]:
    pack = struct.Struct("<" + _CODES[base]).pack

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
        return _encode_item("bool", value)
    if value not in (0, 1):
        _refuse_range("bool", value)
    return b"\1" if value else b"\0"


def _float_encoder(base: str) -> Callable[[object], bytes]:
    pack = _pack_bfloat16 if base == "bfloat16" else struct.Struct("<" + _CODES[base]).pack

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
            raise Refused(f"a number that is finite as {base}", value) from None

    return encode


def _pack_bfloat16(value: float) -> bytes:
    # Going through float32 would round twice.
    if math.isfinite(value):
        step = max(math.frexp(value)[1], -125) - 8  # neighbours are 2**step apart
        value = math.copysign(math.ldexp(round(math.ldexp(value, -step)), step), value)
    return struct.pack("<f", value)[2:]


def _encode_item(base: str, value: object) -> bytes:
    """Encode one number that is a NumPy scalar, or a tensor or array without dimensions."""
    given = as_array(value)
    if given is None or given[0].shape:
        raise Refused(f"one {base}", describe(value), hint=_way_out(value))
    return _convert(base, *given).tobytes()


def _from_list(base: str, values: Sequence[object], depth: int) -> NDArray[Any]:
    dtype = SCALARS[base]
    kinds = set(map(type, values))
    if not kinds <= {int, bool, float}:
        return _stack(each(values, lambda value: to_items(base, value, depth=depth)), values)
    if base in _CODES and (kinds == {float} if base in _FLOATS else float not in kinds):
        try:
            return np.frombuffer(struct.pack(f"<{len(values)}{_CODES[base]}", *values), dtype)
        except (struct.error, OverflowError):
            pass  # encoding them one by one finds which item does not fit, and why
    return np.frombuffer(b"".join(each(values, scalar_encoder(base))), dtype)


def _stack(parts: list[NDArray[Any]], values: Sequence[object]) -> NDArray[Any]:
    shapes = {part.shape for part in parts}
    if len(shapes) > 1:
        raise Refused("items of one shape", f"{describe(values)} of shapes {sorted(map(list, shapes))[:4]}")
    return np.stack(parts)


def _convert(base: str, items: NDArray[Any], given: str) -> NDArray[Any]:
    """Return `items`, whose dtype is named `given`, as `base` in its storage dtype."""
    dtype = SCALARS[base]
    if given == "bool":  # true is stored as 1, whatever its byte was
        items = np.not_equal(items.view(np.uint8), 0).view(np.uint8)
    if given == base:
        return items.astype(dtype, copy=False)
    if base in _FLOATS:
        return _integers_to_floats(base, items) if given in _RANGES else _widen(base, items, given)
    if given not in _RANGES:
        hint = "round them first, for instance with .astype" if given in _FLOATS else _way_out(items)
        raise Refused(f"{base} or other integers in range", describe(items), hint=hint)
    return _integers_to_integers(base, items)


def _integers_to_integers(base: str, items: NDArray[Any]) -> NDArray[Any]:
    low, high = _RANGES[base]
    bad = _outside(items, low, high)
    if bad is not None:
        at = first_true(bad)
        _refuse_range(base, int(items[at]), at)
    return items.astype(SCALARS[base])


def _integers_to_floats(base: str, items: NDArray[Any]) -> NDArray[Any]:
    safe = 2 ** _FLOATS[base][0]  # up to here every integer is exact
    bad = _outside(items, -safe, safe)
    if bad is not None:
        for at in np.argwhere(bad).tolist():
            value = int(items[tuple(at)])
            if not _exact(base, value):
                _refuse_inexact(base, value, tuple(at))
    if base == "bfloat16":
        return (items.astype("<f4").view("<u4") >> 16).astype("<u2")
    return items.astype(SCALARS[base])


def _widen(base: str, items: NDArray[Any], given: str) -> NDArray[Any]:
    if given not in _HELD[base]:
        narrow = given in _FLOATS or "float" in given
        hint = f"convert them to {base} if they may lose precision" if narrow else _way_out(items)
        raise Refused(f"{base}, a narrower float, or integers", given, hint=hint)
    if given == "bfloat16":
        items = (items.astype("<u4") << 16).view("<f4")
    return items.astype(SCALARS[base])


def _outside(items: NDArray[Any], low: int, high: int) -> NDArray[np.bool_] | None:
    """Return a mask of the integers outside low..high, or None if there are none."""
    limits = np.iinfo(items.dtype)
    low, high = max(low, int(limits.min)), min(high, int(limits.max))
    if not items.size or (low <= int(items.min()) and int(items.max()) <= high):
        return None
    return (items < low) | (items > high)


def _exact(base: str, value: int) -> bool:
    """Return whether a float of this base can hold this integer exactly."""
    significand, largest = _FLOATS[base]
    value = abs(value)
    zeros = (value & -value).bit_length() - 1
    return value == 0 or (value.bit_length() - zeros <= significand and value.bit_length() <= largest)


def _refuse_range(base: str, value: int, at: tuple[int, ...] = ()) -> NoReturn:
    raise Refused("{} to {}".format(*_RANGES[base]), short(value), at=at)


def _refuse_inexact(base: str, value: int, at: tuple[int, ...] = ()) -> NoReturn:
    raise Refused(
        f"an integer that {base} holds exactly", short(value), at=at, hint="give a float if it may be rounded"
    )


def _way_out(value: object) -> str | None:
    """Return a hint on how to convert such a value to numbers."""
    dtype = getattr(value, "dtype", None)
    kind = dtype.kind if isinstance(dtype, np.dtype) else ""
    if kind == "m" or isinstance(value, timedelta):
        return "give a number in a unit, such as value / np.timedelta64(1, 's'); for NaT, None in a column with '?'"
    if kind == "M" or isinstance(value, date):
        return "give a number in a unit, such as value.astype('datetime64[s]').astype('int64'), or a str; for NaT, None"
    if kind == "c" or isinstance(value, complex):
        return "give real and imaginary part as two columns, or as one more dimension"
    if isinstance(dtype, np.dtype) and dtype.names is not None:
        return "give each field as a column"
    return None
