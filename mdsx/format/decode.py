"""Decode stored bytes to values: of a column, or of one sample of a shard.

A scalar becomes a NumPy scalar of its dtype (`bool` becomes Python's), an array becomes an array of its own in C order
(`bfloat16` as float32, which holds it exactly); `bytes`, `jpeg` and `png` become bytes; `str`, `json` and `msgpack`
become the values that they encode; `str[*]` and its like become lists of these. Whatever the bytes are, they raise no
error but CorruptError.

`SampleDecoder` is for random access, where arrays of one item would cost more than the sample.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise, repeat
from struct import Struct
from typing import Any, NoReturn

import msgpack
import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from mdsx.errors import CorruptError, UnsupportedError
from mdsx.format.rows import NULL, check_row, heap_extents, row_checksum
from mdsx.format.schema import Column, Schema
from mdsx.format.shard import ShardView
from mdsx.format.strict_json import parse_json
from mdsx.format.types import MAX_SPAN, ColumnType, span

ValueDecoder = Callable[[memoryview], object]
ValuesDecoder = Callable[[Iterable[memoryview]], list[object]]


def value_decoder(type: ColumnType, name: str) -> ValueDecoder:
    """Return a function that decodes one value of a variable-size column. The caller handles nulls, by their length.

    The function raises CorruptError, without naming the sample. Raise UnsupportedError for a type of a later version.
    """
    if type.foreign is not None:
        return type.foreign
    if type.scalar:
        decode = _starred_decoder(type) if type.stars else _sized_decoder(type)
        return _public_decoder(type, decode) if type.base in ("bool", "bfloat16") else decode
    if not type.known:
        message = f"column {name!r} has type '{type}', which this version cannot decode"
        raise UnsupportedError(message, found=str(type), hint="upgrade mdsx, or leave the column out")
    return _list_decoder(_OBJECTS[type.base]) if type.is_list else _OBJECTS[type.base]


def values_decoder(column: Column, *, views: bool = False) -> ValuesDecoder:
    """Return a function that decodes many values, each like `value_decoder`. With `views`, values of `bytes`, `jpeg`
    and `png` columns are views of the memory passed to it, except in lists."""
    kind = column.type
    if views and kind.base in ("bytes", "jpeg", "png") and not kind.is_list:
        return list
    if kind.base == "str" and not kind.is_list:
        return _decode_texts
    decode = value_decoder(kind, column.name)
    return lambda pieces: list(map(decode, pieces))


def _decode_texts(pieces: Iterable[memoryview]) -> list[object]:
    try:
        return list(map(str, pieces, repeat("utf-8")))
    except UnicodeDecodeError as error:
        raise CorruptError(f"this is not UTF-8: {error}") from None


def numpy_values(type: ColumnType, values: Any) -> Any:
    """Convert a column from storage form (`bool` as uint8, `bfloat16` as uint16; see `ColumnType.item_dtype`) to what
    NumPy users expect: bool_ and float32. `values` is an array, or a list of arrays, scalars and None."""
    if type.base not in ("bool", "bfloat16"):
        return values
    if isinstance(values, list):
        return [value if value is None else _public(type, value) for value in values]
    return _public(type, values)


def widen_bfloat16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Return the float32 values of bfloat16 `bits`, exactly."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _public(type: ColumnType, value: Any) -> Any:
    """Convert a stored array or scalar of bool or bfloat16, unless it was converted before."""
    if type.base == "bool":
        return value.view(np.bool_) if isinstance(value, np.ndarray) else bool(value)
    return widen_bfloat16(value) if value.dtype == np.uint16 else value


def _public_decoder(type: ColumnType, decode: ValueDecoder) -> ValueDecoder:
    def decode_public(data: memoryview) -> object:
        value: Any = decode(data)
        if type.base == "bool" and np.any(value > 1):
            raise CorruptError("a bool is neither 0 nor 1", found=int(np.max(value)))
        return _public(type, value)

    return decode_public


def _sized_decoder(type: ColumnType) -> ValueDecoder:
    """Return the decoder of nullable scalars and of arrays without a star, which always have the same size."""
    size, dtype = type.nbytes, type.item_dtype
    shape = None if type.shape is None else tuple(dim or 0 for dim in type.shape)

    def decode_sized(data: memoryview) -> object:
        if len(data) != size:
            raise CorruptError(
                f"a value of type '{type}' has the wrong size", found=len(data), expected=f"{size} bytes"
            )
        items = np.frombuffer(data, dtype) if size else np.empty(0, dtype)
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
            expected = "below 2^31 bytes, dimensions of 0 left out"
            raise CorruptError("an array's dimensions are too large", found=shape, expected=expected)
        size = stars.size + math.prod(shape) * dtype.itemsize
        if len(data) != size:
            raise CorruptError(
                f"an array of shape {shape} has the wrong size", found=len(data), expected=f"{size} bytes"
            )
        if size > stars.size:
            return np.frombuffer(data, dtype, offset=stars.size).reshape(shape).copy()
        return np.empty(shape, dtype)

    return decode_starred


def _list_decoder(decode: ValueDecoder) -> ValueDecoder:
    """Return the decoder of lists: a u32 count, that many u32 lengths, then the values."""

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


def _decode_str(data: memoryview) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise CorruptError(f"this is not UTF-8: {error}") from None


def _decode_json(data: memoryview) -> object:
    return parse_json(bytes(data))


def _decode_msgpack(data: memoryview) -> object:
    try:
        return msgpack.unpackb(data, raw=False, ext_hook=_refuse_extension)
    except ValueError:
        pass  # keys that are neither str nor bytes, maybe: then Python may not be able to tell them apart
    except _MSGPACK_ERRORS as error:
        raise _no_msgpack(error) from None
    try:
        return msgpack.unpackb(
            data, raw=False, strict_map_key=False, object_pairs_hook=_any_map, ext_hook=_refuse_extension
        )
    except _MSGPACK_ERRORS as error:
        raise _no_msgpack(error) from None


_MSGPACK_ERRORS = (ValueError, TypeError, OverflowError, RecursionError, MemoryError)
"""TypeError: an array or a map is the key of a map. MemoryError: nested arrays each claim as many items as there are
bytes."""


def _no_msgpack(error: Exception) -> CorruptError:
    return CorruptError(f"this is not MessagePack: {error or type(error).__name__}")


def _any_map(pairs: list[tuple[Any, object]]) -> dict[Any, object]:
    """Return a map with any keys. If it repeats a key, the last value counts. Raise CorruptError if Python's dict
    cannot hold it."""
    last = {map_key(key): (key, value) for key, value in pairs}
    found = dict(last.values())
    if len(found) < len(last):
        first = {key: key for key, _ in reversed(last.values())}
        lost = next(key for key, _ in last.values() if map_key(first[key]) != map_key(key))
        message = "a map has keys that are equal in Python, so it cannot be read"
        raise CorruptError(message, found=f"{first[lost]!r} and {lost!r}")
    return found


def map_key(key: Any) -> tuple[type, object]:
    """Return what identifies a key of a MessagePack map: its type and value; of a float, the bits of the binary64."""
    return type(key), struct.pack("<d", key) if isinstance(key, float) else key


def _refuse_extension(code: int, data: bytes) -> NoReturn:
    raise ValueError(f"extension type {code} (only timestamps, -1, are allowed)")


_OBJECTS: dict[str, ValueDecoder] = {
    "bytes": bytes,
    "jpeg": bytes,
    "png": bytes,
    "str": _decode_str,
    "json": _decode_json,
    "msgpack": _decode_msgpack,
}


Field = tuple[str, NDArray[Any] | None, Callable[[Any], Any] | None]
"""A column's name; for a fixed-size one, its stored values in all samples of a shard; and their conversion, if any."""


class SampleDecoder:
    """Decodes single samples of shards of `schema`. `columns`: the name that each wanted column gets -> its number."""

    def __init__(self, schema: Schema, columns: Mapping[str, int]) -> None:
        self._schema, self._columns, self._row_size = schema, dict(columns), schema.row_size
        self._head = Struct(f"<QQ{len(schema.variable)}I" if schema.variable else "<Q")
        self._may_be_null = [schema.columns[number].type.nullable for number in schema.variable]
        kinds = {name: schema.columns[number].type for name, number in columns.items()}
        self._fixed = {name: _reader(kinds[name]) for name in columns if kinds[name].fixed_size}
        places = {number: place for place, number in enumerate(schema.variable)}
        self._variable: dict[str, tuple[int, ValueDecoder]] = {
            name: (places[number], value_decoder(kinds[name], name))
            for name, number in columns.items()
            if not kinds[name].fixed_size
        }

    def __reduce__(self) -> tuple[object, ...]:
        return SampleDecoder, (self._schema, self._columns)

    def decode(self, view: ShardView, sample: int, *, verify: bool) -> dict[str, Any]:
        """Return the values of sample number `sample`; with `verify`, check it first. Raise CorruptError."""
        at = view.rows_offset + sample * self._row_size
        stored, *extent = self._head.unpack_from(view.buffer, at)
        heap = view.heap
        edges: Sequence[int] = (0, 0)
        lengths: Sequence[int] = ()
        if self._may_be_null:
            start, *lengths = extent
            if NULL in lengths:
                if not all(may for may, length in zip(self._may_be_null, lengths, strict=True) if length == NULL):
                    self._refuse(view, sample)
                edges = list(accumulate((0 if length == NULL else length for length in lengths), initial=start))
            elif len(lengths) == 1:
                edges = start, start + lengths[0]
            else:
                edges = list(accumulate(lengths, initial=start))
            if edges[-1] > len(heap):
                self._refuse(view, sample)
        if verify:
            if edges[0] == edges[-1]:
                computed = xxh3_64_intdigest(view.buffer[at + 8 : at + self._row_size], sample)
            else:
                row = view.buffer[at : at + self._row_size]
                computed = row_checksum(row, heap[edges[0] : edges[-1]], sample)
            if computed ^ view.row_key != stored:
                row = view.buffer[at : at + self._row_size]
                check_row(row, heap[edges[0] : edges[-1]], sample, view.row_key, view.file)
        values: dict[str, Any] = {}
        for name, field, read in view.fields.get(self) or self._bind(view):
            if field is not None:
                value = field[sample]
                values[name] = value if read is None else read(value)
                continue
            place, decode = self._variable[name]
            try:
                null = lengths[place] == NULL
                values[name] = None if null else decode(heap[edges[place] : edges[place + 1]])
            except CorruptError as error:
                raise CorruptError(str(error), file=view.file, place=f"sample {sample}, column {name!r}") from error
        return values

    def _bind(self, view: ShardView) -> list[Field]:
        """Return the columns, each fixed-size one as an array over all rows of the shard, and keep them in the view."""
        fields: list[Field] = [
            (name, view.rows[f"column{number}"], self._fixed[name]) if name in self._fixed else (name, None, None)
            for name, number in self._columns.items()
        ]
        view.fields[self] = fields
        return fields

    def _refuse(self, view: ShardView, sample: int) -> NoReturn:
        samples = np.array([sample])
        heap_extents(self._schema, view.rows[samples], len(view.heap), file=view.file, samples=samples)
        raise AssertionError("unreachable")


def _reader(kind: ColumnType) -> Callable[[Any], Any] | None:
    """Return the conversion of a stored item to the value that users get, or None if they are the same."""
    if kind.base in ("bool", "bfloat16"):
        return lambda item: numpy_values(kind, item if kind.shape is None else item.copy())
    return None if kind.shape is None else np.ndarray.copy
