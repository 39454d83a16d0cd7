"""Read all samples of a dataset once, in order, with as few bytes as the needed columns allow.

If only fixed-size columns of our own format are needed, only the rows are read from storage, not the heap with the
large values. Other shards are read as usual. The threads for requests read ahead of the caller.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.base.process import REQUESTS, Share
from mdsx.format import Selection
from mdsx.shards.gather import Columns
from mdsx.shards.view import View

_RUN_BYTES = 2**24
_AHEAD = 6  # runs
_WORTH_CHECKING = 4  # check a shard as a whole, which is fast, if at least a fourth of it is read
_ROWS_KEPT = 2  # shards of each dataset whose rows are kept, beside those of the runs in flight


class ScannedRun(NamedTuple):
    """The next samples of a view, in storage form."""

    columns: Columns
    shard: int
    samples: NDArray[np.int64]  # numbered as stored


def scan(view: View, *, most: int, join: bool = False, check: bool = False) -> Iterator[ScannedRun]:
    """Yield all samples of a view of one excerpt, in order, in runs of at most `most` samples of a shard.

    `join`: variable-size columns as JoinedValues. `check`: check every sample as usual, even if that reads more bytes
    than the columns need. Raise CorruptError, MissingError or TransportError.
    """
    scanner = _Scanner(view, join=join, check=check)
    try:
        yield from scanner.runs(most)
    finally:
        scanner.pool.shutdown(wait=False)


class _Scanner:
    def __init__(self, view: View, *, join: bool, check: bool) -> None:
        self.pool = Share(REQUESTS)
        self._view, self._join = view, join
        (excerpt,) = view.excerpts
        schemas = [shards.schema for shards in excerpt.datasets]
        varying = {
            home
            for home, column in zip(excerpt.homes, excerpt.columns, strict=True)
            if not schemas[home].columns[column].type.fixed_size
        }
        self._fixed = [part.home not in varying and not check for part in view.parts]
        """Whether only fixed-size columns of each part are read, without checking samples."""
        self._rows: OrderedDict[int, Future[Selection | None]] = OrderedDict()

    def runs(self, most: int) -> Iterator[ScannedRun]:
        ahead = deque[_Reading]()
        for shard, samples in self._samples(most):
            ahead.append(self._begin(shard, samples))
            if len(ahead) > _AHEAD:
                yield self._end(ahead.popleft())
        while ahead:
            yield self._end(ahead.popleft())

    def _samples(self, most: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Yield the samples of each run, numbered as stored."""
        view = self._view
        size = min(most, max(int(_RUN_BYTES / max(self._sample_bytes(), 1.0)), 1))
        for shard in np.flatnonzero(view.counts).tolist():
            count = int(view.counts[shard])
            for start in range(0, count, size):
                numbers = np.arange(start, min(start + size, count))
                yield shard, view.stored(np.full(len(numbers), shard), numbers)

    def _sample_bytes(self) -> float:
        """Return the mean number of bytes read per sample."""
        total = 0.0
        for part, fixed in zip(self._view.parts, self._fixed, strict=True):
            index = part.shards.index
            total += index.schema.row_size if fixed else float(index.raw_sizes.sum()) / max(index.samples, 1)
        return total

    def _begin(self, shard: int, samples: NDArray[np.int64]) -> _Reading:
        view = self._view
        places, groups = view.by_shard(np.full(len(samples), shard), samples)
        found = []
        for number, group in groups:
            rows = self._rows_of(number) if self._fixed[view.part(number)] else None
            found.append((number, self.pool.submit(self._select, number, group, rows)))
        return _Reading(shard, samples, places, found)

    def _rows_of(self, shard: int) -> Future[Selection | None]:
        rows = self._rows.get(shard)
        if rows is None:
            shards, number = self._view.at(shard)
            rows = self._rows[shard] = self.pool.submit(shards.rows, number)
            if len(self._rows) > _ROWS_KEPT * len(self._view.parts):
                self._rows.popitem(last=False)
        self._rows.move_to_end(shard)
        return rows

    def _select(self, shard: int, samples: NDArray[np.int64], rows: Future[Selection | None] | None) -> Selection:
        whole = None if rows is None else rows.result()
        if whole is not None:
            return replace(whole, samples=samples, take=samples)
        view = self._view
        shards, number = view.at(shard)
        shards.open(number, whole=view.shard_counts[shard] * _WORTH_CHECKING >= shards.index.counts[number])
        return view.select(shard, samples)

    def _end(self, reading: _Reading) -> ScannedRun:
        found = [(shard, selection.result()) for shard, selection in reading.found]
        (columns,) = self._view.gather(found, reading.places, [len(reading.samples)], join=self._join)
        del found  # a selection holds a lease
        for part in self._view.parts:
            part.shards.release()
        return ScannedRun(columns, reading.shard, reading.samples)


class _Reading(NamedTuple):
    shard: int
    samples: NDArray[np.int64]
    places: NDArray[np.int64]
    found: list[tuple[int, Future[Selection]]]
