"""What a simulation needs to know about the stored data: the sizes of shards, and of the requests to read them.

It comes from a dataset's index, or is made up for a dataset that does not exist yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mdsx.base.sizes import format_size
from mdsx.errors import UsageError
from mdsx.foreign.mds import MdsIndex
from mdsx.format import FRAME_SIZE, Index, StoredIndex, seek_table_size
from mdsx.shards import View, coalesce, gap_in

_TABLE_ENTRY = 4  # bytes of an offset in an MDS shard


@dataclass(frozen=True)
class Stored:
    """Shards of one dataset or of several, under one numbering.

    Attributes:
        counts: int64 [shards]: samples.
        cached: int64 [shards]: bytes in the cache; 0 for a shard that is read in place.
        sent: int64 [shards]: bytes of a download.
        row_bytes: int64 [shards]: bytes of a sample's row in our format, or of its offset in MDS; 0 if single samples
            cannot be read.
        first_row: int64 [shards]: the offset of the first row.
        variable: bool [shards]: whether a sample has bytes besides its row.
        framed: bool [shards]: whether the shard is stored in compressed frames.
    """

    counts: NDArray[np.int64]
    cached: NDArray[np.int64]
    sent: NDArray[np.int64]
    row_bytes: NDArray[np.int64]
    first_row: NDArray[np.int64]
    variable: NDArray[np.bool_]
    framed: NDArray[np.bool_]

    @property
    def sample_bytes(self) -> int:
        """Return the average bytes of a sample."""
        return int(self.cached.sum()) // max(int(self.counts.sum()), 1)

    def chosen(self, shards: NDArray[np.int64]) -> Stored:
        """Return only these shards, with new numbers."""
        return replace(self, **{name: values[shards] for name, values in vars(self).items()})

    def rounds(self, shard: int, samples: NDArray[np.int64], *, first: bool) -> Iterator[list[int]]:
        """Yield the sizes of the requests for reading single samples, round by round.

        `first`: nothing of the shard was read before. Rows of our format are exact. The index lacks the sizes of a
        sample's other bytes, so the shard's mean is used.
        """
        row, start = int(self.row_bytes[shard]), int(self.first_row[shard])
        rows = [(start + sample * row, start + (sample + 1) * row) for sample in samples.tolist()]
        heap = start + int(self.counts[shard]) * row
        mean = (int(self.cached[shard]) - heap) / max(int(self.counts[shard]), 1)
        heaps = [(int(heap + sample * mean), int(heap + (sample + 1) * mean)) for sample in samples.tolist()]
        gap = gap_in(int(self.sent[shard]))
        rounds = [rows, heaps] if self.variable[shard] else [rows]
        if not self.framed[shard]:
            for ranges in rounds:
                yield [request.stop - request.start for request in coalesce(ranges, gap)]
            return
        raw, sent = int(self.cached[shard]), int(self.sent[shard])
        if first:
            yield [seek_table_size(raw)]
        known: set[int] = set()
        for ranges in rounds:
            frames = {frame for low, high in ranges for frame in range(low // FRAME_SIZE, -(-high // FRAME_SIZE))}
            parts = [
                (int(frame * FRAME_SIZE / raw * sent), int(min((frame + 1) * FRAME_SIZE, raw) / raw * sent))
                for frame in sorted(frames - known)
            ]
            known |= frames
            if parts:
                yield [request.stop - request.start for request in coalesce(parts, gap)]


def stored_in(view: View) -> Stored:
    """Return the stored data of a view, as if all of it were read through a cache. Raise UsageError for zipped
    datasets."""
    if len(view.parts) > len(view.excerpts):
        raise UsageError("zipped datasets cannot be simulated yet", hint="simulate the largest of them by itself")
    tables = [_of_index(part.shards.index, view.raw_sizes[view.numbers_of(n)]) for n, part in enumerate(view.parts)]
    joined = {name: np.concatenate([vars(table)[name] for table in tables]) for name in vars(tables[0])}
    return Stored(**{**joined, "counts": view.counts})


def _of_index(index: StoredIndex, cached: NDArray[np.int64]) -> Stored:
    shards = len(cached)
    ones = np.ones(shards, np.int64)
    row, first, variable, compression = 0, 0, False, None
    if isinstance(index, Index):
        row, first, variable = index.schema.row_size, index.rows_offset, bool(index.schema.variable)
        compression = index.compression
    elif isinstance(index, MdsIndex) and shards and index.has_ranges(0):
        row, first, variable = _TABLE_ENTRY, _TABLE_ENTRY, True
    return Stored(
        index.counts,
        cached,
        index.sizes,
        row * ones,
        first * ones,
        np.full(shards, variable),
        np.full(shards, compression is not None),
    )


def made_up(samples: int, sample_bytes: int, shard_bytes: int) -> Stored:
    """Return a dataset of equal samples in our format, remote and not compressed. Raise UsageError."""
    if samples < 1 or sample_bytes < 1:
        raise UsageError("samples and sample bytes must be at least 1", found=f"{samples} of {sample_bytes} bytes")
    if shard_bytes < sample_bytes:
        raise UsageError(
            "a shard must hold a sample",
            found=f"shards of {format_size(shard_bytes)} and samples of {format_size(sample_bytes)}",
            hint="give a larger --shard-size",
        )
    each = shard_bytes // sample_bytes
    shards = -(-samples // each)
    counts = np.full(shards, each, np.int64)
    counts[-1] = samples - each * (shards - 1)
    return plain(counts, counts * sample_bytes, sample_bytes)


def plain(counts: NDArray[np.int64], sizes: NDArray[np.int64], row_bytes: int) -> Stored:
    """Return shards that consist of rows alone, not compressed. `counts`, `sizes`: samples and bytes of each shard."""
    ones, none = np.ones_like(counts), np.zeros(len(counts), np.bool_)
    return Stored(counts, sizes, sizes, row_bytes * ones, 0 * ones, none, none)
