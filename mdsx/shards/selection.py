"""Some samples of one shard, and their columns as arrays and lists.

A selection is made from a mapped shard (nothing is copied until columns are taken) or from rows and heap bytes that
were fetched by range. Its columns are in *storage form*: `bool` as uint8, `bfloat16` as uint16; `present` turns them
into what NumPy users expect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import CorruptError
from mdsx.format import NULL, Column, Schema, ShardView, heap_extents, numpy_values, row_checksum, value_decoder
from mdsx.shards.ranges import RawShard

Columns = dict[str, Any]  # name -> array [n, ...] of a fixed-size column, list of n values of a variable-size one


@dataclass(frozen=True, slots=True)
class Selection:
    """`samples` (int64 [n]) of a shard: sample i's row is `rows[take[i]]`, its heap bytes start at `starts[i]`."""

    schema: Schema
    file: str
    samples: NDArray[np.int64]
    rows: NDArray[np.void]
    take: NDArray[np.int64] | slice
    heap: memoryview
    starts: NDArray[np.int64]
    lengths: NDArray[np.uint32]  # [n, V], V variable-size columns

    def fixed(self, column: int) -> NDArray[Any]:
        """The values of a fixed-size column, [n, ...], in storage form; a copy, or a view of the shard."""
        values: NDArray[Any] = self.rows[f"column{column}"][self.take]
        return values

    def variable(self, column: int, decode: Callable[[memoryview], object]) -> list[object]:
        """The values of a variable-size column. Raises CorruptError that names the sample."""
        place = self.schema.variable.index(column)
        sizes = np.where(self.lengths == NULL, 0, self.lengths).astype(np.int64)
        low = self.starts + sizes[:, :place].sum(axis=1)
        heap = self.heap
        bounds = zip(low.tolist(), (low + sizes[:, place]).tolist(), strict=True)
        values: list[object] = []
        try:
            if (self.lengths[:, place] == NULL).any():
                nulls = (self.lengths[:, place] == NULL).tolist()
                for null, (start, stop) in zip(nulls, bounds, strict=True):
                    values.append(None if null else decode(heap[start:stop]))
            else:
                for start, stop in bounds:
                    values.append(decode(heap[start:stop]))  # not a comprehension: `values` tells where it failed
        except CorruptError as error:
            name = self.schema.columns[column].name
            raise CorruptError(
                str(error), file=self.file, place=f"sample {int(self.samples[len(values)])}, column {name!r}"
            ) from error
        return values


def select_mapped(view: ShardView, samples: NDArray[np.int64], *, file: str, verify: bool) -> Selection:
    """`samples` of a shard in memory. With `verify` each row checksum is checked, else only what bounds need."""
    schema = view.schema
    starts, lengths = np.zeros(len(samples), np.int64), np.zeros((len(samples), 0), np.uint32)
    heap = view.heap
    if schema.variable:  # only what the extents are in, as rows may be long
        extents = np.empty(len(samples), np.dtype([("start", "<u8"), ("lengths", "<u4", (len(schema.variable),))]))
        extents["start"] = view.rows["start"][samples]
        lengths = extents["lengths"] = view.rows["lengths"][samples]
        starts, stops, lengths = heap_extents(schema, extents, len(heap), file=file, samples=samples)
    if verify:
        stored = view.rows["checksum"][samples]
        size = schema.row_size
        for place, sample in enumerate(samples.tolist()):
            row = view.buffer[view.rows_offset + sample * size : view.rows_offset + (sample + 1) * size]
            payload = heap[int(starts[place]) : int(stops[place])] if schema.variable else b""
            _check_row(row, payload, sample, int(stored[place]), file)
    return Selection(schema, file, samples, view.rows, samples, heap, starts, lengths)


def select_ranges(
    raw: RawShard, samples: NDArray[np.int64], *, schema: Schema, rows_offset: int, count: int, raw_size: int
) -> Selection:
    """`samples` of a shard of `count` samples, fetched by range and verified by their row checksums."""
    size = schema.row_size
    at = [(rows_offset + sample * size, rows_offset + (sample + 1) * size) for sample in samples.tolist()]
    data = b"".join(raw.read(at))
    rows = np.frombuffer(data, dtype=schema.row_dtype)
    starts, lengths = np.zeros(len(samples), np.int64), np.zeros((len(samples), 0), np.uint32)
    heaps: Sequence[memoryview] = [memoryview(b"")] * len(samples)
    if schema.variable:
        heap_offset = -(-(rows_offset + count * size) // 64) * 64
        low, high, lengths = heap_extents(schema, rows, raw_size - heap_offset, file=raw.file, samples=samples)
        heaps = raw.read([(heap_offset + a, heap_offset + b) for a, b in zip(low.tolist(), high.tolist(), strict=True)])
        starts = np.cumsum(high - low) - (high - low)
    stored = rows["checksum"].tolist()
    for place, sample in enumerate(samples.tolist()):
        row = memoryview(data)[place * size : (place + 1) * size]
        _check_row(row, heaps[place], sample, stored[place], raw.file)
    heap = memoryview(b"".join(heaps))
    return Selection(schema, raw.file, samples, rows, slice(None), heap, starts, lengths)


def _check_row(row: memoryview, heap: memoryview | bytes, sample: int, stored: int, file: str) -> None:
    computed = row_checksum(row, heap, sample)
    if computed != stored:
        raise CorruptError(
            "the sample's checksum does not match its bytes",
            file=file,
            place=f"sample {sample}",
            found=f"{computed:016x}",
            expected=f"{stored:016x}",
            hint="the shard is damaged: run `mdsx verify`, and write or copy it anew",
        )


Group = tuple[NDArray[np.int64], Selection, Sequence[int]]
"""Places of a result, the samples that fill them, and which of their columns is each column of the result."""


def gather(schema: Schema, groups: Sequence[Group], count: int) -> Columns:
    """Columns of `count` samples, in storage form."""
    found: Columns = {}
    for number, column in enumerate(schema.columns):
        if column.type.fixed_size:
            field = schema.row_dtype[f"column{number}"]
            out = np.empty((count, *field.shape), field.base)
            for places, selection, stored in groups:
                out[places] = selection.fixed(stored[number])
            found[column.name] = out
        else:
            decode = storage_decoder(column)
            values: list[object] = [None] * count
            for places, selection, stored in groups:
                for place, value in zip(places.tolist(), selection.variable(stored[number], decode), strict=True):
                    values[place] = value
            found[column.name] = values
    return found


def storage_decoder(column: Column) -> Callable[[memoryview], object]:
    """Decodes one value of a variable-size column; bfloat16 stays uint16, as NumPy has no such type."""
    kind = replace(column.type, base="uint16") if column.type.base == "bfloat16" else column.type
    return value_decoder(kind, column.name)


def present(schema: Schema, columns: Columns) -> Columns:
    """Columns from storage form to NumPy's: bool as bool_, bfloat16 widened to float32 (exact)."""
    return {
        column.name: numpy_values(column.type, columns[column.name])
        for column in schema.columns
        if column.name in columns
    }
