"""Decode values of types that only MDS has. Invalid bytes raise only CorruptError.

| encoding | bytes | value |
|---|---|---|
| `str_int`, `str_float`, `str_decimal` | decimal text | int, float, Decimal |
| `ndarray` | u8 code of the dtype, then as below | NumPy array |
| `ndarray:dtype` | u8 `dimensions << 2 \\| s`, the shape in integers of 2^s bytes, items in C order | NumPy array |
| `pil` | u32 width, u32 height, u32 length of the mode, mode, pixels | Pillow image |
| `list[...]` | u32 0, u32 count, u32 size of each, the values | list |
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate, pairwise
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from mdsx.base.strict_json import parse_json
from mdsx.errors import CorruptError, UnsupportedError, UsageError
from mdsx.format import read_records

_T = TypeVar("_T")

ValueDecoder = Callable[[memoryview], object]

_CODES = {
    8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32", 33: "int32", 34: "float32",
    64: "uint64", 65: "int64", 66: "float64",
}  # fmt: skip
DTYPES = {name: np.dtype(name).newbyteorder("<") for name in _CODES.values()}
"""The stored dtypes of arrays."""

_ITEM_SIZES = np.array([DTYPES[_CODES[code]].itemsize if code in _CODES else 0 for code in range(256)])
"""By code."""

_BITS = {
    "1": 1, "L": 8, "P": 8, "RGB": 24, "RGBA": 32, "CMYK": 32, "YCbCr": 24, "LAB": 24, "HSV": 24, "I": 32, "F": 32,
    "LA": 16, "PA": 16, "RGBX": 32, "RGBa": 32, "La": 16, "I;16": 16, "I;16L": 16, "I;16B": 16, "I;16N": 16,
}  # fmt: skip
"""Pillow's modes, and the bits of a pixel. Each row of an image begins at a new byte."""


def decode_int(data: memoryview) -> int:
    return _number(data, int, "an integer")


def decode_float(data: memoryview) -> float:
    return _number(data, float, "a number")


def decode_decimal(data: memoryview) -> Decimal:
    return _number(data, Decimal, "a decimal number")


def _number(data: memoryview, convert: Callable[[str], _T], what: str) -> _T:
    try:
        return convert(str(data, "utf-8"))
    except (ValueError, ArithmeticError):  # decimal's errors are ArithmeticErrors
        raise CorruptError(f"this is not {what}", found=repr(bytes(data[:40]))) from None


def decode_json(data: memoryview) -> object:
    """Return the value. Its writer may have written NaN and infinities."""
    return parse_json(bytes(data), constants=True)


def decode_ndarray(data: memoryview, dtype: str | None = None) -> NDArray[Any]:
    """Return a new array. `dtype`: the declared dtype, which the bytes do not repeat."""
    at = 0
    if dtype is None:
        code = data[0] if len(data) else None
        if code not in _CODES:
            raise CorruptError("an array has no known dtype", found=code, expected=f"one of {[*_CODES]}")
        dtype, at = _CODES[code], 1
    head = data[at] if at < len(data) else 0
    size, first = 1 << (head & 3), at + 1
    stop = first + (head >> 2) * size
    if stop > len(data):
        raise CorruptError("an array ends within its shape", found=len(data), expected=f"{stop} or more bytes")
    shape = [int.from_bytes(data[place : place + size], "little") for place in range(first, stop, size)]
    return decode_items(data[stop:], dtype, shape)


@dataclass(frozen=True)
class ArrayDecoder:
    """Decodes arrays, each with its own shape. `dtype`: the declared dtype; None if each array has its own."""

    dtype: str | None = None

    def __call__(self, data: memoryview) -> NDArray[Any]:
        return decode_ndarray(data, self.dtype)

    def lengths(self, addresses: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many values each array has; -1 for a damaged array, or one that is not one-dimensional."""
        items, at = np.int64(0 if self.dtype is None else DTYPES[self.dtype].itemsize), 0 if self.dtype else 1
        here = sizes > at
        (heads,) = read_records(addresses[here], np.dtype(("u1", (at + 1,))), [int(here.sum())])
        widths = items if self.dtype else _ITEM_SIZES[heads[:, 0]]
        shape = heads[:, at].astype(np.int64)
        rest = sizes[here] - at - 1 - ((shape >> 2) << (shape & 3))
        right = (shape >> 2 == 1) & (rest >= 0) & (rest % np.maximum(widths, 1) == 0) & (widths > 0)
        found = np.full(len(sizes), -1, np.int64)
        found[here] = np.where(right, rest // np.maximum(widths, 1), -1)
        return found


def decode_items(data: memoryview, dtype: str, shape: Sequence[int]) -> NDArray[Any]:
    """Return an array of this shape with the items `data`."""
    kind = DTYPES[dtype]
    size = math.prod(shape) * kind.itemsize
    if size != len(data):
        found = f"{len(data)} bytes of items"
        raise CorruptError(f"an array of shape {tuple(shape)} has the wrong size", found=found, expected=size)
    try:
        return np.frombuffer(data, kind).reshape(shape).copy() if size else np.empty(shape, kind)
    except ValueError as error:  # more dimensions, or larger ones, than NumPy has
        raise CorruptError(f"NumPy has no such array: {error}", found=f"shape {tuple(shape)}") from None


def decode_pil(data: memoryview) -> object:
    """Return a Pillow image. Raise UsageError without Pillow."""
    try:
        import PIL.Image
    except ModuleNotFoundError:
        raise UsageError("columns of images (pil) need the package Pillow", hint="pip install 'mdsx[images]'") from None
    if len(data) < 12:
        raise CorruptError("an image ends within its sizes", found=len(data), expected="12 or more bytes")
    width, height, length = struct.unpack_from("<3I", data)
    mode, pixels = bytes(data[12 : 12 + min(length, 16)]).decode("latin-1"), data[12 + length :]
    if len(mode) != length or mode not in _BITS:
        message = "an image has no known mode; was the column given encoded images as bytes?"
        raise CorruptError(message, found=repr(mode), expected="one of Pillow's")
    size = -(-width * _BITS[mode] // 8) * height
    if size != len(pixels):
        found = f"{len(pixels)} bytes of pixels"
        raise CorruptError(f"an image of {width} x {height} {mode} has the wrong size", found=found, expected=size)
    try:
        return PIL.Image.frombytes(mode, (width, height), bytes(pixels))
    except (ValueError, KeyError, MemoryError, OverflowError) as error:  # no pixels, but a long side
        raise CorruptError(f"Pillow has no such image: {error}", found=f"{width} x {height} {mode}") from None


def decode_list(data: memoryview, item: ValueDecoder) -> list[object]:
    """Return the values, each decoded by `item`."""
    zero, count = struct.unpack_from("<2I", data) if len(data) >= 8 else (0, 0)
    start = 8 + 4 * count
    if zero or len(data) < start:
        found = f"{len(data)} bytes for {count} values" if not zero else f"first {zero}, not 0"
        raise CorruptError("a list ends within its sizes", found=found, expected=f"{start} or more")
    edges = list(accumulate(struct.unpack_from(f"<{count}I", data, 8), initial=start))
    if edges[-1] != len(data):
        raise CorruptError("a list has the wrong size", found=len(data), expected=f"{edges[-1]} bytes")
    return [item(data[low:high]) for low, high in pairwise(edges)]


def refuse(_data: memoryview, encoding: str, column: str) -> NoReturn:
    """Raise UnsupportedError for a value of a column of pickles, or of an encoding that is not MDS's own."""
    why = "pickles are never loaded, because they can run any program" if encoding == "pkl" else "this is not known"
    raise UnsupportedError(
        f"column {column!r} has the encoding {encoding!r}: {why}",
        hint="leave out the column: give columns= the names of the others, or use `mdsx convert mds --drop`",
    )
