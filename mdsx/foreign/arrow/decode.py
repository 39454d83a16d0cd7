"""Convert stored columns to an Arrow table, without a Python object per value.

Fixed-size columns keep their memory: the array becomes the Arrow buffer. Exceptions are `bool`, which Arrow packs into
bits, and types that Arrow lacks. Values of variable-size columns are `JoinedValues`. `str` and `bytes` keep their
memory too; arrays and lists are copied without the lengths before their items.

The bytes may be damaged. They get the same checks as in `value_decoder` before any size in them is used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import CorruptError, UsageError
from mdsx.foreign.arrow.library import pa
from mdsx.foreign.arrow.plain import edges_of, validity
from mdsx.foreign.arrow.types import arrow_type
from mdsx.format import (
    JSON,
    MAX_SPAN,
    ColumnType,
    JoinedValues,
    Object,
    Refused,
    Schema,
    check_empty_lists,
    check_items,
    numpy_values,
)

_json = JSON.encoder()


def to_table(schema: Schema, columns: Mapping[str, NDArray[Any] | JoinedValues]) -> Any:
    """Return a `pyarrow.Table` of `columns`: arrays in storage form, and the joined values of variable-size columns.

    Raise CorruptError, without naming the sample, and UsageError for a column that Arrow has no type for.
    """
    arrays = [_column(column.type, columns[column.name]) for column in schema.columns]
    return pa.Table.from_arrays(arrays, [column.name for column in schema.columns])


def _column(kind: ColumnType, values: NDArray[Any] | JoinedValues) -> Any:
    if kind.foreign is not None and isinstance(values, JoinedValues):
        if kind.kind != "document":
            return _foreign(kind, values)
        try:
            values, kind = json_texts(values, kind), replace(kind, foreign=None)
        except Refused as refused:
            message = "JSON cannot hold the value"
            raise UsageError(message, found=str(refused.found), expected=refused.expected) from None
    kind = kind.stored
    arrow_type(kind)  # raises UsageError if there is none
    if isinstance(values, np.ndarray):
        return _fixed(kind, values)
    if not kind.scalar:
        return _lists(kind, values) if kind.is_list else _objects(kind.object, values.data, values.edges, values.nulls)
    return _starred(kind, values) if kind.stars else _nullable(kind, values)


def _check_empty(shapes: NDArray[np.int64]) -> None:
    """Raise UsageError if a shape without items has too many lists."""
    try:
        for shape in np.unique(shapes[(shapes == 0).any(axis=1)], axis=0).tolist():
            check_empty_lists(shape)
    except Refused as refused:
        message = "an array without items would take too much memory as lists"
        raise UsageError(message, found=refused.found, expected=refused.expected) from None


def _fixed(kind: ColumnType, values: NDArray[Any], null: NDArray[np.bool_] | None = None) -> Any:
    """Return numbers, or arrays of one shape [n, ...], as Arrow."""
    _check_empty(np.array([values.shape[1:]], np.int64))
    found = _items(kind, values.reshape(-1), null if values.ndim == 1 else None)
    for axis in reversed(range(1, values.ndim)):
        count = math.prod(values.shape[:axis])
        found = _list(found, values.shape[axis], count, null if axis == 1 else None)
    return found


def _nullable(kind: ColumnType, values: JoinedValues) -> Any:
    """Return values that have a fixed size, or are null."""
    sizes = np.diff(values.edges)
    present = slice(None) if values.nulls is None else ~values.nulls
    if (wrong := sizes[present] != kind.nbytes).any():
        found = int(sizes[present][wrong.argmax()])
        raise CorruptError(f"a value of type '{kind}' has the wrong size", found=found, expected=f"{kind.nbytes} bytes")
    shape = tuple(size or 0 for size in kind.shape or ())
    items = np.frombuffer(values.data, kind.item_dtype).reshape(-1, *shape) if kind.nbytes else None
    if values.nulls is None and items is not None:
        return _fixed(kind, items)
    filled = np.zeros((len(sizes), *shape), kind.item_dtype)
    if items is not None:
        filled[present] = items
    return _fixed(kind, filled, values.nulls)


def _starred(kind: ColumnType, values: JoinedValues) -> Any:
    """Return arrays that begin with a u32 for each starred dimension."""
    shape = kind.shape or ()
    count, head = len(values.edges) - 1, 4 * kind.stars
    present = np.arange(count) if values.nulls is None else np.flatnonzero(~values.nulls)
    sizes = np.diff(values.edges)[present]
    if (sizes < head).any():
        raise CorruptError("an array ends within its dimensions", expected=f"{head} or more bytes")
    shapes = np.tile(np.array([size or 0 for size in shape], np.int64), (count, 1))
    dims = _u32(values.data, values.edges[:-1][present][:, None] + np.arange(0, head, 4))
    starred = np.flatnonzero([size is None for size in shape])
    shapes[np.ix_(present, starred)] = dims
    _check_empty(shapes[present])
    spans = np.maximum(shapes[present], 1).astype(np.float64).prod(axis=1) * kind.item_dtype.itemsize
    if (spans >= MAX_SPAN).any():  # as floats, which do not overflow
        raise CorruptError("an array's dimensions are too large", expected="below 2^31 bytes")
    if (sizes != head + shapes[present].prod(axis=1) * kind.item_dtype.itemsize).any():
        raise CorruptError(f"an array of type '{kind}' has the wrong size for its dimensions")
    items = np.frombuffer(_without_heads(values, present, np.full(len(present), head)), kind.item_dtype)
    found = _items(kind, items, None)
    for axis in reversed(range(len(shape))):
        lists = shapes[:, :axis].prod(axis=1)  # of each value at this depth
        size = shape[axis]
        lengths: Any = np.repeat(shapes[:, axis], lists) if size is None else size
        found = _list(found, lengths, int(lists.sum()), None if axis else values.nulls)
    return found


def _lists(kind: ColumnType, values: JoinedValues) -> Any:
    """Return lists: a u32 count, that many u32 lengths, then the items."""
    count = len(values.edges) - 1
    present = np.arange(count) if values.nulls is None else np.flatnonzero(~values.nulls)
    starts, sizes = values.edges[:-1][present], np.diff(values.edges)[present]
    if (sizes < 4).any():
        raise CorruptError("a list ends within its lengths", expected="4 or more bytes")
    counts = _u32(values.data, starts).astype(np.int64)
    heads = 4 + 4 * counts
    if (sizes < heads).any():
        raise CorruptError("a list ends within its lengths")
    first = edges_of(counts)
    lengths = _u32(values.data, np.repeat(starts + 4 - 4 * first[:-1], counts) + 4 * np.arange(first[-1]))
    edges = edges_of(lengths)
    if (heads + edges[first[1:]] - edges[first[:-1]] != sizes).any():
        raise CorruptError("a list has the wrong size")
    items = _objects(kind.object, _without_heads(values, present, heads), edges, None)
    whole = np.zeros(count, np.int64)
    whole[present] = counts
    return _list(items, whole, count, values.nulls)


def _foreign(kind: ColumnType, values: JoinedValues) -> Any:
    """Return values of another format's type: decoded one by one, with the type that Arrow finds for them."""
    assert kind.foreign is not None
    data = memoryview(values.data)
    null = [False] * (len(values.edges) - 1) if values.nulls is None else values.nulls.tolist()
    cuts = zip(null, pairwise(values.edges.tolist()), strict=True)
    found = [None if absent else kind.foreign(data[start:stop]) for absent, (start, stop) in cuts]
    try:
        return pa.array(found)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        hint = "leave out the column, or read it without Arrow"
        raise UsageError(f"Arrow has no type for '{kind}'", found=str(error), hint=hint) from None


def json_texts(values: JoinedValues, kind: ColumnType) -> JoinedValues:
    """Convert JSON of another format to our JSON text: values for a column of type `json`.

    Raise Refused, whose `at` has the value's number.
    """
    assert kind.foreign is not None
    data, texts = memoryview(values.data), []
    for number, (start, stop) in enumerate(pairwise(values.edges.tolist())):
        null = values.nulls is not None and bool(values.nulls[number])
        try:
            texts.append(b"" if null else _json(kind.foreign(data[start:stop])))
        except Refused as refused:
            refused.at = (number,)
            raise
    edges = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    return JoinedValues(b"".join(texts), edges, values.nulls)


def _items(kind: ColumnType, items: NDArray[Any], null: NDArray[np.bool_] | None) -> Any:
    """Return numbers in their storage dtype as Arrow."""
    check_items(kind.number, items)
    items = numpy_values(kind, items)
    if items.dtype == np.bool_:
        return pa.array(items, mask=null)
    type = arrow_type(ColumnType(kind.base))
    return pa.Array.from_buffers(type, len(items), [validity(null), pa.py_buffer(np.ascontiguousarray(items))])


def _objects(base: Object, data: Any, edges: NDArray[np.int64], null: NDArray[np.bool_] | None) -> Any:
    """Return the values between `edges` as strings or binary."""
    type = arrow_type(ColumnType(base.name))
    offsets = _offsets(edges)
    if offsets.dtype == np.int64:
        type = pa.large_string() if type == pa.string() else pa.large_binary()
    found = pa.Array.from_buffers(type, len(edges) - 1, [validity(null), pa.py_buffer(offsets), pa.py_buffer(data)])
    if base.textual:
        try:
            found.validate(full=True)
        except pa.ArrowInvalid as error:
            raise CorruptError(f"this is not UTF-8: {error}") from None
    return found


def _list(items: Any, lengths: Any, count: int, null: NDArray[np.bool_] | None) -> Any:
    """Return `count` lists of the items. `lengths`: one length for all, an int, or one for each."""
    if isinstance(lengths, int):
        type = pa.list_(items.type, lengths)
        return pa.Array.from_buffers(type, count, [validity(null)], children=[items])
    offsets = _offsets(edges_of(lengths))
    type = pa.list_(items.type) if offsets.dtype == np.int32 else pa.large_list(items.type)
    return pa.Array.from_buffers(type, count, [validity(null), pa.py_buffer(offsets)], children=[items])


def _without_heads(values: JoinedValues, present: NDArray[np.int64], heads: NDArray[np.int64]) -> memoryview:
    """Return the joined bytes of the values `present`, without the first `heads[i]` bytes of each."""
    starts = values.edges[:-1][present]
    edges = np.append(np.stack((starts, starts + heads), axis=1).reshape(-1), values.edges[-1])
    offsets = pa.py_buffer(edges)  # head, rest, head, rest, ...
    both = pa.Array.from_buffers(pa.large_binary(), len(edges) - 1, [None, offsets, pa.py_buffer(values.data)])
    rest = both.take(pa.array(np.arange(1, len(both), 2)))
    data = rest.buffers()[2]
    return memoryview(b"" if data is None else data)[: int((np.diff(values.edges)[present] - heads).sum())]


def _u32(data: Any, places: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Return the little-endian u32 at each of `places`."""
    found = np.frombuffer(data, np.uint8)[places[..., None] + np.arange(4)]
    return np.ascontiguousarray(found).view("<u4")[..., 0]


def _offsets(edges: NDArray[np.int64]) -> NDArray[Any]:
    """Return Arrow's offsets, 32 bits wide if they fit."""
    return edges if len(edges) and int(edges[-1]) > np.iinfo(np.int32).max else edges.astype(np.int32)
