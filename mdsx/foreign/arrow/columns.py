"""Encode Arrow arrays as columns: the items of a fixed-size column, or the bytes of each value as a binary array.

A binary array is an Arrow array of type binary or large_binary with n values, null where the value is null.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.foreign.arrow.arrays import NULLS_INSIDE, arrays, numbers
from mdsx.foreign.arrow.library import pa
from mdsx.foreign.arrow.plain import (
    binary_parts,
    check_text,
    edges_of,
    first_null,
    items_of,
    list_lengths,
    nulls,
    plain,
    python_values,
    validity,
)
from mdsx.foreign.arrow.types import is_binary, is_list, is_string
from mdsx.format import (
    ENCODED_NULL,
    JSON,
    MSGPACK,
    Beginning,
    ColumnType,
    Object,
    Refused,
    describe,
    each,
    value_encoder,
)


def encode_column(kind: ColumnType, array: Any) -> NDArray[Any] | Any:
    """Encode an Arrow array as a column of type `kind`: [n, ...] items if it is fixed-size, otherwise a binary array.

    For another package's type, the array has the stored bytes. Raise Refused, whose `at` begins with the value's
    number.
    """
    kind = kind.stored
    if kind.kind == "document" and not kind.is_list:  # None is a valid value
        return _encode_each(kind, array)
    array = plain(array)
    if array.null_count and not kind.nullable:
        raise Refused(str(kind), describe(None), at=(first_null(array),))
    if kind.is_list:
        return _lists(kind, array)
    if not kind.scalar:
        return _objects(kind.object, array)
    if kind.shape is None:
        items = numbers(kind.number, array)
        if kind.fixed_size:
            return items
        sizes = np.full(len(array), kind.item_dtype.itemsize)
        if (null := nulls(array)) is not None:
            sizes[null] = 0
        return binary(items.copy(), edges_of(sizes), null)  # an Arrow array may share its memory with NumPy
    found = arrays(kind, array)
    if kind.fixed_size:
        return found.items.reshape(len(array), *kind.shape)
    null, edges = nulls(array), found.edges * kind.item_dtype.itemsize
    if not kind.stars:
        return binary(found.items.copy(), edges, null)
    starred = [axis for axis, size in enumerate(kind.shape) if size is None]
    counts, values = np.full(len(array), kind.stars), binary(found.items, edges, null)
    return _with_heads(found.shapes[:, starred], counts, values, null)


def binary(items: NDArray[Any], edges: NDArray[np.int64], null: NDArray[np.bool_] | None = None) -> Any:
    """Return a binary array: the bytes of `items`, cut at the n + 1 `edges`."""
    return _from_parts(pa.py_buffer(np.ascontiguousarray(items)), edges, null)


def join(columns: list[Any]) -> Any:
    """Return the joined bytes of several binary arrays: for each value, one column after the other. Null has none."""
    wide = [column.cast(pa.large_binary()) for column in columns]
    how = {"null_handling": "replace", "null_replacement": ""}
    return pa.compute.binary_join_element_wise(*wide, pa.scalar(b"", pa.large_binary()), **how)


def from_pieces(pieces: list[bytes]) -> Any:
    """Return a binary array of encoded values, as `Encoder.column` returns them."""
    null = np.fromiter((piece is ENCODED_NULL for piece in pieces), np.bool_, len(pieces))
    edges = edges_of(np.fromiter(map(len, pieces), np.int64, len(pieces)))
    return _from_parts(pa.py_buffer(b"".join(pieces)), edges, null if null.any() else None)


def _from_parts(data: Any, edges: NDArray[np.int64], null: NDArray[np.bool_] | None) -> Any:
    return pa.Array.from_buffers(pa.large_binary(), len(edges) - 1, [validity(null), pa.py_buffer(edges), data])


def _with_heads(numbers: NDArray[np.int64], counts: Any, values: Any, null: NDArray[np.bool_] | None) -> Any:
    """Insert u32 numbers before the values: the next `counts[i]` before value i, none before null."""
    if null is not None:
        numbers, counts = (numbers[~null] if numbers.ndim == 2 else numbers), np.where(null, 0, counts)
    head = binary(numbers.astype("<u4"), edges_of(counts) * 4)
    data, edges = binary_parts(join([head, values]))
    return _from_parts(pa.py_buffer(data), edges, null)


def _objects(base: Object, array: Any) -> Any:
    """Return plain values as a binary array. Raise Refused."""
    if pa.types.is_null(array.type):
        return array.cast(pa.binary())
    if base.kind == "text":
        if not is_string(array.type):
            raise Refused(base.name, f"Arrow's {array.type}")
        check_text(array)
        return array.cast(pa.large_binary() if pa.types.is_large_string(array.type) else pa.binary())
    if not is_binary(array.type):
        raise Refused("bytes", f"Arrow's {array.type}")
    if base.magic and len(array):
        right = reduce(pa.compute.or_, (_begins(array, each) for each in base.magic))
        if right.false_count:
            place = right.index(False).as_py()
            try:
                base.encoder()(array[place].as_py())
            except Refused as refused:
                refused.at = (place,)
                raise
    return array


def _begins(array: Any, way: Beginning) -> Any:
    """Return which values begin like this; null for null."""
    parts = [pa.compute.equal(pa.compute.binary_slice(array, offset, offset + len(part)), part) for offset, part in way]
    return reduce(pa.compute.and_, parts)


def _encode_each(kind: ColumnType, array: Any) -> Any:
    """Encode values as Python objects, one by one."""
    return from_pieces(each(python_values(array), value_encoder(kind)))


def _lists(kind: ColumnType, array: Any) -> Any:
    """Encode lists of objects: a u32 count, that many u32 lengths, then the values."""
    if not is_list(array.type) and not pa.types.is_null(array.type):
        raise Refused("lists", f"Arrow's {array.type}")
    counts = list_lengths(array) if is_list(array.type) else np.zeros(len(array), np.int64)
    item = ColumnType(kind.base)
    first = edges_of(counts)
    inside = array.flatten() if is_list(array.type) else array[:0]
    with items_of(first):
        if inside.null_count:
            hint = NULLS_INSIDE if kind.kind == "text" else NULLS_INSIDE.replace(JSON.name, MSGPACK.name)
            raise Refused(kind.base, describe(None), at=(first_null(inside),), hint=hint)
        items = encode_column(item, inside)
    data, edges = binary_parts(items)
    null = nulls(array)
    there = first[:-1] if null is None else first[:-1][~null]
    lengths = np.insert(np.diff(edges), there, counts if null is None else counts[~null])
    values = _from_parts(pa.py_buffer(data), edges[first], null)
    return _with_heads(lengths, counts + 1, values, null)
