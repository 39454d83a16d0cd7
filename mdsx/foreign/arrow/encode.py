"""Encode Arrow data as samples, column by column, without a Python object per value.

The bytes and the checks are the same as when `Encoder` encodes the values as Python objects or NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import SampleError
from mdsx.foreign.arrow.columns import encode_column, from_pieces, join
from mdsx.foreign.arrow.library import pa
from mdsx.foreign.arrow.plain import binary_parts, has_nulls, nulls
from mdsx.foreign.arrow.types import column_type
from mdsx.format import NULL, Encoded, Encoder, JoinedHeap, Refused, batch_error, check_length


class ArrowStream(Protocol):
    """Data with Arrow's C stream interface."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


class ArrowArray(Protocol):
    """Data with Arrow's C array interface."""

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...


ArrowData = ArrowStream | ArrowArray

_AT_ONCE = 2**16  # samples of a part
_SMALL = 2**10  # chunks of fewer samples are joined first


def is_arrow(values: object) -> bool:
    """Return whether `values` is Arrow data, that is, has one of Arrow's C interfaces, like objects of pyarrow, Polars
    and DuckDB. Columns of pandas are Arrow data unless they are based on NumPy."""
    kind = type(values)
    if hasattr(kind, "__arrow_c_stream__") or hasattr(kind, "__arrow_c_array__"):
        return not isinstance(getattr(values, "dtype", None), np.dtype)
    return False


def arrow_columns(data: Any) -> dict[str, str]:
    """Return the columns for writing Arrow data with a `Writer`: name -> type, with a question mark if there are nulls.

        with mdsx.Writer("dataset", mdsx.arrow_columns(table)) as out:
            out.write_batch(table)

    `data` is a pyarrow table or record batch, a Polars or pandas DataFrame, or any other object with columns and one of
    Arrow's C interfaces. A stream that can be read only once is consumed. docs/writing.md has the table of types.

    Raises:
        UsageError: No column type can hold a type of the data: unions, month intervals, and structs with two fields of
            the same name.
    """
    found = {}
    for name, values in _columns_of(data).items():
        column = _chunked(values, name) if is_arrow(values) else pa.array(np.asarray(values))
        found[name] = str(column_type(column.type, nullable=has_nulls(column)))
    return found


def encode_batch(encoder: Encoder, batch: Any) -> list[Encoded]:
    """Encode a batch, and return its samples in consecutive parts. Raise SampleError.

    `batch` is an Arrow table, a record batch, any object with columns and one of Arrow's C interfaces, or a mapping of
    column names to Arrow arrays or to anything else that `Encoder.batch` accepts.
    """
    given = _columns_of(batch) if is_arrow(batch) else batch
    if not isinstance(given, Mapping) or not any(map(is_arrow, given.values())):
        return [encoder.batch(given)]
    encoder.check_names(given, "batch")
    columns: list[Any] = []
    for number, column in enumerate(encoder.schema.columns):
        values = given[column.name]
        columns.append(_chunked(values, column.name) if is_arrow(values) else encoder.column(number, values))
    encoder.check_lengths([len(column) for column in columns])
    numbers = [number for number, column in enumerate(columns) if isinstance(column, pa.ChunkedArray)]
    if len(columns[0]) <= _AT_ONCE and all(columns[number].num_chunks == 1 for number in numbers):
        return [_encode_part(encoder, [_whole(column) for column in columns], 0)]
    table = pa.Table.from_arrays([columns[number] for number in numbers], list(map(str, numbers)))
    if table.num_rows < _SMALL * max(column.num_chunks for column in table.columns):
        table = table.combine_chunks()
    parts, start = [], 0
    for chunk in table.to_batches(max_chunksize=_AT_ONCE):
        stop = start + len(chunk)
        here = [column if number in numbers else column[start:stop] for number, column in enumerate(columns)]
        for number, array in zip(numbers, chunk.columns, strict=True):
            here[number] = array
        parts.append(_encode_part(encoder, here, start))
        start = stop
    return parts


def _whole(column: Any) -> Any:
    return column.chunk(0) if isinstance(column, pa.ChunkedArray) else column


def _columns_of(batch: Any) -> dict[str, Any]:
    """Return the columns of an object with one of Arrow's C interfaces."""
    if type(batch).__module__.partition(".")[0] == "pandas":  # its own conversion would turn NaN into null
        return {name: batch[name] for name in batch.columns}
    try:
        table = batch if isinstance(batch, pa.Table | pa.RecordBatch) else pa.table(batch)
    except (pa.ArrowException, TypeError, ValueError) as error:
        hint = "for one column, give a mapping of its name to it"
        raise SampleError("expected tabular Arrow data", found=f"{type(batch).__name__}: {error}", hint=hint) from None
    names = table.schema.names
    if len(set(names)) < len(names):
        raise SampleError("a column's name occurs twice in the batch", found=names)
    return dict(zip(names, table.columns, strict=True))


def _chunked(values: Any, name: str) -> Any:
    """Return a column as a chunked array without empty chunks. pyarrow cannot join some that came from a stream."""
    try:
        if not isinstance(values, pa.ChunkedArray):
            one = isinstance(values, pa.Array) or not hasattr(values, "__arrow_c_stream__")
            values = pa.chunked_array([pa.array(values)] if one else values)
    except (pa.ArrowException, TypeError, ValueError) as error:
        found = f"{type(values).__name__}: {error}"
        raise SampleError("the values are not an Arrow array", place=f"column {name!r}", found=found) from None
    filled = [chunk for chunk in values.chunks if len(chunk)] or values.chunks[:1]
    return values if len(filled) == values.num_chunks else pa.chunked_array(filled, values.type)


def _encode_part(encoder: Encoder, columns: Sequence[Any], first: int) -> Encoded:
    """Encode columns: Arrow arrays, or results of `Encoder.column`. `first`: the number of their first sample."""
    schema = encoder.schema
    encoded = []
    for column, values in zip(schema.columns, columns, strict=True):
        if isinstance(values, pa.Array):
            try:
                values = encode_column(column.type, values)
            except Refused as refused:
                if refused.at:
                    refused.at = (first + refused.at[0], *refused.at[1:])
                raise batch_error(column, refused) from None
        elif isinstance(values, list):
            values = from_pieces(values)
        encoded.append(values)
    samples = len(encoded[0])
    lengths = np.zeros((samples, len(schema.variable)), np.uint32)
    for place, number in enumerate(schema.variable):
        sizes = np.diff(binary_parts(encoded[number])[1])
        if samples:
            check_length(schema.columns[number], int(sizes.max()))
        lengths[:, place] = sizes
        if (null := nulls(encoded[number])) is not None:
            lengths[null, place] = NULL
    heap, edges = _heap([encoded[number] for number in schema.variable], samples)
    return Encoded(
        samples=samples,
        fixed=[encoded[number] for number in schema.fixed],
        lengths=lengths,
        stops=edges[1:] - edges[0],
        heap=JoinedHeap(heap),
    )


def _heap(columns: list[Any], samples: int) -> tuple[memoryview, NDArray[np.int64]]:
    """Return the heap bytes of samples with these variable-size columns, and their edges."""
    if not columns:
        return memoryview(b""), np.zeros(samples + 1, np.int64)
    if len(columns) > 1:
        data, edges = binary_parts(join(columns))
    else:
        (column,) = columns
        data, edges = binary_parts(column)
        if (null := nulls(column)) is not None and np.diff(edges)[null].any():  # bytes that belong to no value
            data, edges = binary_parts(join(columns))
    return data[int(edges[0]) : int(edges[-1])], edges
