"""Convert Arrow arrays of any type to arrays of plain types (`types.plain_type`), and take these apart.

Dictionaries and run-ends become their values, extension types their storage, and views their lists, strings or bytes.
The struct of `bytes` and `path` in which Hugging Face stores images and audio becomes the bytes. Decimals become their
exact text; dates, times and durations their integers, in the unit of the type. Only the outermost type becomes plain;
the items of lists are converted after they are taken out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.base.strict_json import parse_json
from mdsx.errors import CorruptError
from mdsx.foreign.arrow.library import pa
from mdsx.foreign.arrow.types import (
    is_file,
    is_json,
    is_list,
    is_list_view,
    is_run_end_encoded,
    is_string,
    is_tensor,
    large_type,
    plain_type,
)
from mdsx.format import Refused, each


def plain(array: Any) -> Any:
    """Return `array` (a `pyarrow.Array`) with a plain type. Raise Refused for a file whose bytes are missing."""
    type = array.type
    if is_tensor(type):
        return _tensor(array)
    if isinstance(type, pa.BaseExtensionType):
        return plain(array.storage)
    if pa.types.is_dictionary(type):
        values = plain(array.dictionary)
        return values.cast(large_type(values.type)).take(array.indices)
    if is_run_end_encoded(type):
        return plain(pa.compute.run_end_decode(array))
    if is_file(type):
        return plain(_file_bytes(array))
    if is_list_view(type):
        return _lists_of_view(array)
    wanted = plain_type(type)
    return array if type == wanted else array.cast(wanted)


def numpy_items(array: Any) -> NDArray[Any]:
    """Return the items of an array of numbers or bools without nulls; numbers without a copy.

    pyarrow's `to_numpy` imports pandas if it is installed, which takes half a second in each process.
    """
    count, first, (_, data) = len(array), array.offset, array.buffers()
    if pa.types.is_boolean(array.type):
        bits = np.unpackbits(np.frombuffer(data or b"", np.uint8), count=first + count, bitorder="little")
        return bits[first:].view(np.bool_)
    dtype = np.dtype(array.type.to_pandas_dtype())
    return np.frombuffer(data, dtype, count, first * dtype.itemsize) if count else np.empty(0, dtype)


def nulls(array: Any) -> NDArray[np.bool_] | None:
    """Return which values are null, [n], or None if none is."""
    return numpy_items(array.is_null()) if array.null_count else None


def validity(null: NDArray[np.bool_] | None) -> Any:
    """Return the Arrow buffer that says which values are not null, or None if none is."""
    return None if null is None else pa.array(~null).buffers()[1]


def edges_of(sizes: NDArray[Any]) -> NDArray[np.int64]:
    """Return where each of n values begins, and where the last one ends: [n + 1]."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)))


def has_nulls(column: Any) -> bool:
    """Return whether a value of a chunked array is null. pyarrow does not count nulls in dictionaries and run-ends."""
    kind = column.type
    if column.null_count or not (pa.types.is_dictionary(kind) or is_run_end_encoded(kind)):
        return bool(column.null_count)
    return any(plain(chunk).null_count for chunk in column.chunks)


def first_null(array: Any) -> int:
    """Return the place of the first null."""
    found = nulls(array)
    assert found is not None
    return int(found.argmax())


def list_lengths(array: Any) -> NDArray[np.int64]:
    """Return the number of items of each list (or map), [n]; 0 for null. `flatten()` returns the items."""
    if pa.types.is_fixed_size_list(array.type):
        lengths = np.full(len(array), array.type.list_size, np.int64)
    else:
        offsets = _offsets(array).astype(np.int64)
        lengths = offsets[1:] - offsets[:-1]
    if array.null_count:
        lengths[nulls(array)] = 0
    return lengths


def _lists_of_view(array: Any) -> Any:
    """Return a list view as lists. pyarrow's cast may return lists that lack the last offset."""
    sizes, null = numpy_items(array.sizes).astype(np.int64), nulls(array)
    if null is not None:
        sizes[null] = 0
    mask = None if null is None else pa.array(null)
    return pa.LargeListArray.from_arrays(pa.array(edges_of(sizes)), array.flatten(), mask=mask)


def _offsets(array: Any) -> NDArray[Any]:
    """Return the n + 1 offsets of n lists or maps. For 0 lists, there may be no offsets, as from Java."""
    return numpy_items(array.offsets) if len(array) else np.zeros(1, np.int64)


def binary_parts(array: Any) -> tuple[memoryview, NDArray[np.int64]]:
    """Return the bytes of an array of strings or bytes, and the n + 1 edges of its values in them.

    If a null has bytes, they count.
    """
    wide = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    _, offsets, data = array.buffers()
    if offsets is None or not len(array):
        return memoryview(b""), np.zeros(len(array) + 1, np.int64)
    edges = np.frombuffer(offsets, np.int64 if wide else np.int32)[array.offset :][: len(array) + 1].astype(np.int64)
    return memoryview(b"" if data is None else data).cast("B"), edges


@contextmanager
def items_of(edges: NDArray[Any]) -> Iterator[None]:
    """Make errors for an item name its list. List i has the items from `edges[i]` to `edges[i + 1]`."""
    try:
        yield
    except Refused as refused:
        if refused.at:
            owner = int(np.searchsorted(edges, refused.at[0], side="right")) - 1
            refused.at = (owner, refused.at[0] - int(edges[owner]), *refused.at[1:])
        raise


def check_text(array: Any) -> None:
    """Raise Refused unless an array of strings is valid, and its values UTF-8."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        data, edges = binary_parts(array)
        each([data[start:stop] for start, stop in pairwise(edges.tolist())], _check_utf8)
        raise Refused("a valid array", str(error)) from None


def _check_utf8(value: Any) -> None:
    try:
        str(value, "utf-8")
    except UnicodeDecodeError as error:
        raise Refused("text in UTF-8", str(error)) from None


def python_values(array: Any) -> list[Any]:
    """Return the values of nested types, which become JSON or MessagePack, as Python objects, with None for null.

    Maps with str keys become dicts, other maps lists of pairs. Raise Refused for a map with a duplicate key, or a
    struct with two fields of the same name.
    """
    json = is_json(array.type)
    array = plain(array)
    type = array.type
    if pa.types.is_struct(type):
        fields = [python_values(field) for field in array.flatten()]
        names = [field.name for field in type]
        if len(array) and len(set(names)) < len(names):
            raise Refused("a struct without duplicate names", names)
        rows: list[Any] = [dict(zip(names, values, strict=True)) for values in zip(*fields, strict=True)]
        return _with_nulls(array, rows or [{} for _ in range(len(array))])
    if pa.types.is_map(type):
        offsets = _offsets(array)
        edges = offsets - offsets[0]
        with items_of(edges):
            keys: list[Any] = python_values(array.keys[offsets[0] : offsets[-1]])
            items: list[Any] = python_values(array.items[offsets[0] : offsets[-1]])
        pairs = list(zip(keys, items, strict=True))
        return _with_nulls(array, each([pairs[start:stop] for start, stop in pairwise(edges)], _dict))
    if is_list(type):
        edges = edges_of(list_lengths(array))
        with items_of(edges):
            items = python_values(array.flatten())
        return _with_nulls(array, [items[start:stop] for start, stop in pairwise(edges.tolist())])
    if is_string(type):
        check_text(array)
    values: list[Any] = array.to_pylist()
    return each(values, _parse) if json else values


def _with_nulls(array: Any, values: list[Any]) -> list[Any]:
    if (null := nulls(array)) is not None:
        for place in np.flatnonzero(null).tolist():
            values[place] = None
    return values


def _dict(pairs: Any) -> Any:
    if not all(isinstance(key, str) for key, _ in pairs):
        return [list(pair) for pair in pairs]
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Refused("a map without duplicate keys", [key for key, _ in pairs])
    return found


def _parse(text: object) -> Any:
    try:
        return None if text is None else parse_json(str(text).encode())
    except CorruptError as error:
        raise Refused("JSON text", str(error)) from None


def _file_bytes(array: Any) -> Any:
    data, path = (pa.compute.struct_field(array, name) for name in ("bytes", "path"))
    missing = pa.compute.and_(data.is_null(), array.is_valid())
    if missing.true_count:
        place = missing.index(True).as_py()
        hint = "embed the files first, for example with datasets.table.embed_table_storage"
        raise Refused("the bytes of the file", f"none, path {path[place].as_py()!r}", at=(place,), hint=hint)
    return data


def _tensor(array: Any) -> Any:
    """Return tensors as nested lists of fixed sizes."""
    type, storage = array.type, array.storage
    shape, values = tuple(type.shape), storage.flatten()
    if type.permutation is not None:
        if values.null_count:
            raise Refused("no null inside an array", "None")
        stored = numpy_items(plain(values)).reshape(-1, *shape)
        stored = stored.transpose(0, *[axis + 1 for axis in type.permutation])
        shape, values = stored.shape[1:], pa.array(stored.reshape(-1))
    for size in reversed(shape):
        values = pa.FixedSizeListArray.from_arrays(values, size)
    if not storage.null_count:
        return values
    places = np.cumsum(~np.asarray(nulls(storage))) - 1  # of the values that are not null
    return values.take(pa.array(places, mask=nulls(storage)))
