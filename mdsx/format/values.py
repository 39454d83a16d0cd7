"""Values of columns <-> their stored bytes, in the heap or, for fixed-size columns, in the row.

The records of the base types define how one item is stored. This module adds arrays (in C order and of exactly the
type's shape; a u32 for each starred dimension precedes the items), lists, and null. A scalar is read as a NumPy scalar
of its dtype (`bool` as Python's), an array as an array of its dtype. Invalid bytes raise only CorruptError.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from mdsx.errors import CorruptError, UnsupportedError
from mdsx.format.families.integers import BOOL
from mdsx.format.families.record import Number
from mdsx.format.inputs import Refused, all_masked, describe, each
from mdsx.format.numbers import scalar_encoder, to_items
from mdsx.format.packaged import codec, missing
from mdsx.format.rows import NULL as NULL_LENGTH
from mdsx.format.types import MAX_SPAN, ColumnType, span


class _Null(bytes):
    """The type of NULL, so that NULL is a different object from b""."""


NULL = _Null()
"""The encoded null: no bytes. Use `is` to distinguish it from an empty value."""

ValueDecoder = Callable[[memoryview], object]
ValuesDecoder = Callable[[Iterable[memoryview]], list[object]]


# --- encoding


def value_encoder(kind: ColumnType) -> Callable[[object], bytes]:
    """Return a function that encodes one value, or raises Refused. None becomes NULL if the type is nullable."""
    encode = _encoder(kind)
    if not kind.nullable:
        return encode
    return lambda value: (
        NULL if value is None or (isinstance(value, np.ma.MaskedArray) and all_masked(value)) else encode(value)
    )


def quick_encoder(kind: ColumnType) -> Callable[[object], bytes]:
    """Return a faster encoder, which may also raise TypeError or ValueError in place of Refused."""
    quick = None if kind.nullable or kind.shape is not None or kind.scalar else kind.object.quick
    return quick or value_encoder(kind)


def _encoder(kind: ColumnType) -> Callable[[object], bytes]:
    if kind.scalar:
        return scalar_encoder(kind.number) if kind.shape is None else _array_encoder(kind)
    encode = kind.object.encoder()
    return _list_encoder(encode) if kind.is_list else encode


def _list_encoder(encode_item: Callable[[object], bytes]) -> Callable[[object], bytes]:
    def encode(value: object) -> bytes:
        items = each(as_sequence(value, "a list or another sequence of values"), encode_item)
        lengths = list(map(len, items))
        size = 4 + 4 * len(items) + sum(lengths)
        if size >= NULL_LENGTH:
            raise Refused(f"fewer than {NULL_LENGTH} bytes", size)
        return b"".join((struct.pack(f"<{len(items) + 1}I", len(items), *lengths), *items))

    return encode


def as_sequence(value: Any, expected: str) -> Sequence[object]:
    """Return the items of a list, tuple, array or other sequence. Raise Refused for text, mappings and sets."""
    if isinstance(value, list | tuple):
        return value
    ordered = hasattr(value, "__len__") and hasattr(value, "__iter__")
    if not ordered or isinstance(value, str | bytes | bytearray | memoryview | Mapping | Set):
        raise Refused(expected, describe(value))
    try:
        return list(value)
    except (TypeError, ValueError, RuntimeError):  # such as zero-dimensional arrays
        raise Refused(expected, describe(value)) from None


def _array_encoder(kind: ColumnType) -> Callable[[object], bytes]:
    base, shape, dtype, native = kind.number, kind.shape, kind.item_dtype, kind.number.native
    dimensions = dimensions_encoder(kind)

    def encode(value: object) -> bytes:
        # Fast path for NumPy arrays of this dtype and shape.
        if native and type(value) is np.ndarray and value.dtype == dtype and value.shape == shape:
            return value.tobytes()
        items = to_items(base, value)
        if items.shape == (0,) and isinstance(value, list | tuple):
            items = items.reshape(_empty_shape(kind))
        return dimensions(items.shape) + items.tobytes()

    return encode


def dimensions_encoder(kind: ColumnType) -> Callable[[tuple[int, ...]], bytes]:
    """Return a function that encodes a shape's starred dimensions, or raises Refused if the shape does not fit."""
    shape = kind.shape or ()
    starred = [axis for axis, size in enumerate(shape) if size is None]
    pack, item_size = struct.Struct(f"<{len(starred)}I").pack, kind.item_dtype.itemsize

    def encode(found: tuple[int, ...]) -> bytes:
        if len(found) != len(shape) or any(a != b for a, b in zip(found, shape, strict=True) if b is not None):
            raise Refused(f"shape {str(kind).removesuffix('?').removeprefix(kind.base)}", f"shape {list(found)}")
        if span(item_size, found) >= MAX_SPAN:
            raise Refused("dimensions that span less than 2^31 bytes", f"shape {list(found)}")
        return pack(*[found[axis] for axis in starred])

    return encode


def _empty_shape(kind: ColumnType) -> tuple[int, ...]:
    """Return the shape of an empty list: [0, 3] for float32[*,3], whose inner dimensions are known."""
    first, *inner = kind.shape or (None,)
    if first in (None, 0) and None not in inner:
        return (0, *[size for size in inner if size is not None])
    return (0,)


# --- decoding


def value_decoder(type: ColumnType, name: str, *, stored: bool = False) -> ValueDecoder:
    """Return a function that decodes one value of a variable-size column. The caller handles nulls, by their length.

    With `stored`, items of a type that NumPy lacks stay bits. The function raises CorruptError without naming the
    sample. Raise UnsupportedError for a type from a later version, or from a package that is not available.
    """
    if type.foreign is not None:
        return type.foreign
    if type.scalar:
        decode = _starred_decoder(type) if type.stars else _sized_decoder(type)
        return decode if type.number.native or (stored and type.number is not BOOL) else _numpy_decoder(type, decode)
    if type.packaged and codec(type.base) is None:
        raise missing(type.base, name, read=str(replace(type.stored, nullable=False)))
    if not type.packaged and not type.known:
        message = f"column {name!r} has type '{type}', which this version cannot decode"
        raise UnsupportedError(message, found=str(type), hint="upgrade mdsx, or leave the column out")
    return _list_decoder(type.object.decode) if type.is_list else type.object.decode


def values_decoder(type: ColumnType, name: str, *, views: bool = False, stored: bool = False) -> ValuesDecoder:
    """Return a function that decodes many values, each like `value_decoder`. With `views`, values of `bytes` and
    pictures are views of the memory passed to it, except in lists."""
    if type.kind == "bytes" and views and not type.is_list:
        return list
    if type.kind == "text" and not type.is_list and type.object.decode_all is not None:
        return type.object.decode_all
    decode = value_decoder(type, name, stored=stored)
    return lambda pieces: list(map(decode, pieces))


def bare_decoder(type: ColumnType, *, stored: bool = False) -> ValueDecoder:
    """Return a function that decodes one-dimensional arrays that are stored without their dimension. `stored`: as for
    `value_decoder`."""
    decode = _bare_decoder(type)
    return decode if type.number.native or (stored and type.number is not BOOL) else _numpy_decoder(type, decode)


def numpy_values(type: ColumnType, values: Any) -> Any:
    """Convert a column from storage form (see `ColumnType.item_dtype`) to the types that NumPy users expect: `bool` to
    bool_, types that NumPy lacks to float32. `values`: an array, or a list of arrays, scalars and None."""
    if not type.scalar or type.number.native:
        return values
    if isinstance(values, list):
        return [value if value is None else type.number.numpy(value) for value in values]
    return type.number.numpy(values)


def check_items(base: Number, items: Any) -> None:
    """Raise CorruptError for stored items, an array or a scalar, that are not valid numbers of `base`."""
    if base.highest is not None and np.any(items > base.highest):
        raise CorruptError(f"a {base.name} is neither 0 nor 1", found=int(np.max(items)))


def _numpy_decoder(type: ColumnType, decode: ValueDecoder) -> ValueDecoder:
    base = type.number

    def decode_items(data: memoryview) -> object:
        items: Any = decode(data)
        check_items(base, items)
        return base.numpy(items)

    return decode_items


def _sized_decoder(type: ColumnType) -> ValueDecoder:
    """Return the decoder of nullable scalars and of arrays without a star, which always have the same size."""
    size, dtype = type.nbytes, type.item_dtype
    shape = None if type.shape is None else tuple(dim or 0 for dim in type.shape)

    def decode_sized(data: memoryview) -> object:
        if len(data) != size:
            raise CorruptError(
                f"a value of type '{type}' has the wrong size", found=len(data), expected=f"{size} bytes"
            )
        items = np.frombuffer(data, dtype)
        return items[0] if shape is None else items.reshape(shape).copy()

    return decode_sized


def _starred_decoder(type: ColumnType) -> ValueDecoder:
    """Return the decoder of arrays with stars: one u32 for each starred dimension, then the items."""
    dtype, stars = type.item_dtype, struct.Struct(f"<{type.stars}I")
    dims = type.shape or ()

    def decode_starred(data: memoryview) -> object:
        if len(data) < stars.size:
            raise CorruptError(
                "an array ends within its dimensions", found=len(data), expected=f"{stars.size} or more bytes"
            )
        varying = iter(stars.unpack_from(data))
        shape = tuple(next(varying) if dim is None else dim for dim in dims)
        if span(dtype.itemsize, shape) >= MAX_SPAN:
            expected = "below 2^31 bytes, ignoring dimensions of 0"
            raise CorruptError("an array's dimensions are too large", found=shape, expected=expected)
        size = stars.size + math.prod(shape) * dtype.itemsize
        if len(data) != size:
            raise CorruptError(
                f"an array of shape {shape} has the wrong size", found=len(data), expected=f"{size} bytes"
            )
        return np.frombuffer(data, dtype, offset=stars.size).reshape(shape).copy()

    return decode_starred


def _bare_decoder(type: ColumnType) -> ValueDecoder:
    dtype = type.item_dtype

    def decode_bare(data: memoryview) -> object:
        if len(data) % dtype.itemsize:
            expected = f"a multiple of {dtype.itemsize} bytes"
            raise CorruptError(f"the size is wrong for an array of {type.base}", found=len(data), expected=expected)
        return np.frombuffer(data, dtype).copy()

    return decode_bare


def _list_decoder(decode: ValueDecoder) -> ValueDecoder:
    """Return the decoder of lists: a u32 count, as many u32 lengths, then the values."""

    def decode_list(data: memoryview) -> object:
        count = int.from_bytes(data[:4], "little")
        at = 4 + 4 * count
        if len(data) < max(at, 4):
            found = f"{len(data)} bytes" + (f" for {count} values" if len(data) >= 4 else "")
            raise CorruptError("a list ends within its lengths", found=found, expected=f"{max(at, 4)} or more")
        edges = list(accumulate(struct.unpack_from(f"<{count}I", data, 4), initial=at))
        if edges[-1] != len(data):
            raise CorruptError("a list has the wrong size", found=len(data), expected=f"{edges[-1]} bytes")
        return [decode(data[start:stop]) for start, stop in pairwise(edges)]

    return decode_list


def field_decoder(type: ColumnType) -> Callable[[Any], Any] | None:
    """Return the conversion from a fixed-size value in a row to the value that users get; None if they are the same."""
    convert = type.number.numpy
    if type.shape is None:
        return None if type.number.native else convert
    return np.ndarray.copy if type.number.native else lambda items: convert(items.copy())
