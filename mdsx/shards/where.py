"""Choose samples by a condition on fixed-size columns, lengths and nulls, from the rows of shards without their heaps.

Many shards are read concurrently, and each is evaluated in one step. A condition that needs more than rows is an error
before any data is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mdsx.base.process import REQUESTS, Share
from mdsx.format import Condition, Vector, evaluate, parse_condition, references
from mdsx.order import Marks, Subset, select_chosen
from mdsx.shards.excerpt import DatasetSlice
from mdsx.shards.row_values import RowValues, Vectors

_AT_ONCE = 64  # shards
_BYTES_AT_ONCE = 2**28
_LEAST_ROW = 16  # bytes of memory for a sample, however short its row

Read = Mapping[tuple[int, int], Vectors]
"""(number of a dataset, shard) -> the vectors of its samples."""


def choose_where(
    excerpt: DatasetSlice, condition: str, watch: Callable[[int], object] = lambda samples: None
) -> Subset:
    """Return the samples of `excerpt` for which `condition` is true: see `Dataset.filter`. `watch` is called with the
    number of samples evaluated so far."""
    reading, marks, done = _Reading(excerpt, parse_condition(condition)), Marks(), 0
    for found in reading.marks():
        marks.add(found)
        done += len(found)
        watch(done)
    return select_chosen(excerpt.subset, excerpt.shards.index.counts, marks)


def check_condition(excerpt: DatasetSlice, condition: str) -> None:
    """Raise UsageError if `condition` is invalid, or needs values that are not in the rows. No sample is read."""
    _Reading(excerpt, parse_condition(condition))


class _Reading:
    """Reads the samples of an excerpt, which may have columns of several datasets, for a condition.

    Datasets are numbered. The shards of the first one are the *main* shards, which determine the samples.
    """

    def __init__(self, excerpt: DatasetSlice, condition: Condition) -> None:
        self._excerpt, self._condition, self._pool = excerpt, condition, Share(REQUESTS)
        asked = [*dict.fromkeys(references(condition))]
        self._values = [RowValues(excerpt, home, asked) for home in range(len(excerpt.datasets))]
        self._edges = [np.append(0, np.cumsum(shards.index.counts)) for shards in excerpt.datasets]
        nothing = Vectors()
        for values in self._values:
            nothing |= values.nothing
        evaluate(condition, nothing)  # raises if the types do not fit

    def marks(self) -> Iterator[NDArray[np.bool_]]:
        """Yield which samples are chosen, for each main shard with samples of the excerpt."""
        for block in self._blocks():
            yield from self._evaluated(block)

    def _blocks(self) -> Iterator[list[int]]:
        """Yield the main shards to read together."""
        index, block, size = self._excerpt.shards.index, list[int](), 0
        for shard in np.flatnonzero(self._excerpt.subset.counts).tolist():
            own = int(index.counts[shard]) * max(index.schema.row_size, _LEAST_ROW)
            if block and (len(block) == _AT_ONCE or size + own > _BYTES_AT_ONCE):
                yield block
                block, size = [], 0
            block.append(shard)
            size += own
        if block:
            yield block

    def _evaluated(self, block: Sequence[int]) -> Iterator[NDArray[np.bool_]]:
        excerpt, wanted = self._excerpt, list[tuple[int, int]]()
        for home, values in enumerate(self._values):
            shards = self._needed(home, block)
            values.prepare(shards)
            wanted += [(home, shard) for shard in shards]
        found = self._pool.map(lambda each: self._values[each[0]].read(each[1]), wanted)
        read = dict(zip(wanted, found, strict=True))

        def evaluated(shard: int) -> NDArray[np.bool_]:
            vectors = Vectors()
            for home in range(len(self._values)):
                vectors |= self._of_shard(home, shard, read)
            true, chosen = evaluate(self._condition, vectors).true, int(excerpt.subset.counts[shard])
            return true if chosen == len(true) else true[excerpt.subset.samples(shard, np.arange(chosen))]

        yield from self._pool.map(evaluated, block)
        read.clear()  # a selection holds a lease
        for dataset in excerpt.datasets:
            dataset.release()

    def _needed(self, home: int, block: Sequence[int]) -> list[int]:
        """Return a dataset's shards with the samples of main shards; none if none of its columns is needed."""
        if not self._values[home].nothing:
            return []
        if home == 0:
            return [*block]
        edges, found = self._edges[home], set[int]()
        for shard in block:
            start, stop = self._edges[0][shard : shard + 2]
            first = int(np.searchsorted(edges, start, "right")) - 1
            found.update(range(first, int(np.searchsorted(edges, stop, "left"))))
        return sorted(found)

    def _of_shard(self, home: int, shard: int, read: Read) -> Vectors:
        """Return the vectors of a main shard's samples for the columns of a dataset."""
        own = self._needed(home, [shard])
        if home == 0 or not own:
            return read[0, shard] if own else {}
        (start, stop), edges = self._edges[0][shard : shard + 2], self._edges[home]
        cuts = [slice(max(start - edges[each], 0), stop - edges[each]) for each in own]
        return {
            reference: _joined([_cut(read[home, each][reference], here) for each, here in zip(own, cuts, strict=True)])
            for reference in self._values[home].nothing
        }


def _cut(vector: Vector, here: slice) -> Vector:
    return vector._replace(values=vector.values[here], nulls=None if vector.nulls is None else vector.nulls[here])


def _joined(parts: Sequence[Vector]) -> Vector:
    nulls = None
    if any(part.nulls is not None for part in parts):
        nulls = np.concatenate(
            [np.zeros(len(part.values), np.bool_) if part.nulls is None else part.nulls for part in parts]
        )
    return parts[0]._replace(values=np.concatenate([part.values for part in parts]), nulls=nulls)
