"""Some samples of one shard, found and checked, but not copied yet.

A selection is made from a mapped shard or from rows and heap bytes that were fetched by range; `gather.py` makes
columns of many of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mdsx.format import Schema, ShardView, check_row, heap_extents
from mdsx.shards.ranges import RawShard


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """`samples` (int64 [n]) of a shard: the row of sample i is `rows[take[i]]`, whose `start` counts from `heap`'s."""

    schema: Schema
    file: str | None
    samples: NDArray[np.int64]
    rows: NDArray[np.void]
    take: NDArray[np.int64]
    heap: memoryview

    @property
    def addresses(self) -> NDArray[np.int64]:
        """Where in memory the rows lie, int64 [n]; as long as this object lives."""
        if len(self.take) and int(self.take.view(np.uint64).max()) >= len(self.rows):  # also a negative one
            raise IndexError(f"sample {self.take.max()} of {len(self.rows)} in {self.file}")
        return self.take * self.rows.itemsize + self.rows.ctypes.data

    def each(self) -> list[Selection]:
        """Its samples, each as a selection of one."""
        cuts = [slice(place, place + 1) for place in range(len(self.take))]
        return [replace(self, samples=self.samples[cut], take=self.take[cut]) for cut in cuts]

    def copied(self) -> Selection:
        """The same samples in memory of their own: what they were selected from may be closed."""
        rows, starts, stops = self.rows[self.take], [0], [0]
        if self.schema.variable:
            low, high, _ = heap_extents(self.schema, rows, len(self.heap), file=self.file, samples=self.samples)
            rows["start"] = np.cumsum(high - low) - (high - low)
            starts, stops = low.tolist(), high.tolist()
        heap = b"".join(map(self.heap.__getitem__, map(slice, starts, stops)))
        return Selection(self.schema, self.file, self.samples, rows, np.arange(len(rows)), memoryview(heap))


def select_mapped(view: ShardView, samples: NDArray[np.int64], *, verify: bool) -> Selection:
    """`samples` of a shard in memory; with `verify` each is checked by its row checksum."""
    if verify:
        _check_mapped(view, samples)
    return Selection(view.schema, view.file, samples, view.rows, samples, view.heap)


def _check_mapped(view: ShardView, samples: NDArray[np.int64]) -> None:
    schema, size = view.schema, view.schema.row_size
    starts = stops = np.zeros(len(samples), np.int64)
    if schema.variable:  # only what the extents are in, as rows may be long
        extents = np.empty(len(samples), schema.extents_dtype)
        extents["start"], extents["lengths"] = view.rows["start"][samples], view.rows["lengths"][samples]
        starts, stops, _ = heap_extents(schema, extents, len(view.heap), file=view.file, samples=samples)
    checksums = (view.rows["checksum"][samples] ^ np.uint64(view.row_key)).tolist()
    bounds = zip(samples.tolist(), starts.tolist(), stops.tolist(), checksums, strict=True)
    for sample, start, stop, checksum in bounds:
        at = view.rows_offset + sample * size
        check_row(view.buffer[at : at + size], view.heap[start:stop], sample, checksum, view.file)


def select_ranges(
    raw: RawShard,
    samples: NDArray[np.int64],
    *,
    schema: Schema,
    row_key: int,
    rows_offset: int,
    count: int,
    raw_size: int,
) -> Selection:
    """`samples` of a shard of `count` samples, fetched by range and verified by their checksums under `row_key`."""
    size = schema.row_size
    at = [(rows_offset + sample * size, rows_offset + (sample + 1) * size) for sample in samples.tolist()]
    data = bytearray().join(raw.read(at))
    rows = np.frombuffer(data, dtype=schema.row_dtype)
    low = high = np.zeros(len(samples), np.int64)
    heaps: Sequence[memoryview] = [memoryview(b"")] * len(samples)
    if schema.variable:
        heap_offset = -(-(rows_offset + count * size) // 64) * 64
        low, high, _ = heap_extents(schema, rows, raw_size - heap_offset, file=raw.file, samples=samples)
        heaps = raw.read([(heap_offset + a, heap_offset + b) for a, b in zip(low.tolist(), high.tolist(), strict=True)])
    checksums = (rows["checksum"] ^ np.uint64(row_key)).tolist()
    for place, sample in enumerate(samples.tolist()):
        row = memoryview(data)[place * size : (place + 1) * size]
        check_row(row, heaps[place], sample, checksums[place], raw.file)
    if schema.variable:  # the heap holds only these samples
        rows["start"] = np.cumsum(high - low) - (high - low)
    heap = memoryview(b"".join(heaps))
    return Selection(schema, raw.file, samples, rows, np.arange(len(samples)), heap)
