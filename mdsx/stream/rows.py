"""The places of grouped samples' values in batches: in rows, or one sample after the other.

What need not be computed for each batch is computed once for a chunk of batches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise, starmap
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mdsx.base.cached import cached_property
from mdsx.shards import Columns
from mdsx.stream.extras import Extras
from mdsx.stream.steps import RankGroups

Number = bool | int | float


class Layout(Protocol):
    """How the values of groups are laid out in a batch, as `Pack`, `MaxTokens` and `Pad` define it."""

    @property
    def capacity(self) -> int | None: ...
    @property
    def oversize(self) -> str | None: ...
    @property
    def length_columns(self) -> tuple[str, ...]:
        """Return the columns by whose lengths samples are grouped; none if lengths were given as an array, or if
        samples are not grouped."""
        ...

    @property
    def own_lengths(self) -> bool:
        """Return whether each column has its own lengths. Otherwise all columns of a sample have its length."""
        ...

    @property
    def grouped(self) -> bool:
        """Return whether samples are grouped by length, so that each step knows its samples and values."""
        ...

    @property
    def pad_value(self) -> Number | Mapping[str, Number]: ...
    @property
    def dtypes(self) -> Mapping[str, str] | None: ...
    @property
    def extras(self) -> Extras:
        """Return what is added to samples."""
        ...

    @property
    def nested(self) -> bool:
        """Return whether a column that is not packed has one list of values per row, instead of one per batch."""
        ...

    def rows_of(self, chunk: Joined, sizes: NDArray[np.int64]) -> Rows:
        """Return the places of the values of successive batches. `sizes`: of all their samples."""
        ...

    def keys(self, rows: Rows, part: Part) -> Columns:
        """Return the keys of a batch that map values to samples."""
        ...


class Joined(NamedTuple):
    """The groups of the steps of a chunk, joined."""

    samples: list[int]  # where the samples of each step begin, and where those of the last one end
    groups: list[int]  # where its groups begin
    edges: NDArray[np.int64]  # where the samples of each group begin
    items: NDArray[np.int64]  # [6, samples], see RankGroups

    @classmethod
    def of(cls, steps: Sequence[RankGroups]) -> Joined:
        """Return the groups of `steps`, joined."""
        items = np.concatenate([step.items for step in steps], axis=1)
        samples = ends_of(step.items.shape[1] for step in steps)
        groups = ends_of(len(step.edges) - 1 for step in steps)
        edges = np.concatenate([np.zeros(1, np.int64), *(step.edges[1:] for step in steps)])
        edges[1:] += np.repeat(samples[:-1], np.diff(groups))
        return cls(samples, groups, edges, items)

    def filled(self, count: int) -> Joined:
        """Return the same with empty groups added to each step, up to `count`."""
        more = np.maximum(count - np.diff(self.groups), 0)
        ends, edges = np.repeat(self.groups[1:], more), np.repeat(self.samples[1:], more)
        groups = [group + added for group, added in zip(self.groups, ends_of(more.tolist()), strict=True)]
        return self._replace(groups=groups, edges=np.insert(self.edges, ends + 1, edges))


class Part(NamedTuple):
    """One batch's part of a chunk: its samples, rows and stretches, their number, and the shape of its values."""

    samples: slice
    rows: slice
    stretches: slice
    pieces: int
    shape: tuple[int, ...]


class Rows:
    """The places of a chunk's values: in *stretches*, one for each sample of a row, and one for the padding if rows
    have a width."""

    parts: list[Part]
    counts: NDArray[np.int64]  # how many values each stretch has
    at: NDArray[np.int64]  # the stretch of each sample
    longest_gap: int  # of padding

    def __init__(
        self,
        samples: Sequence[int],
        sizes: NDArray[np.int64],
        edges: NDArray[np.int64],
        rows: Sequence[int],
        widths: Sequence[int] | None,
    ) -> None:
        """Step s has samples `samples[s]` up to `samples[s + 1]`, and rows `rows[s]` up to `rows[s + 1]`, of width
        `widths[s]`; without a width, its values follow one another. Row r has samples `edges[r]` up to
        `edges[r + 1]`."""
        self.sizes, self.ends, self._padded = sizes, ends(sizes), widths is not None
        self._samples = samples
        shapes: list[tuple[int, ...]] = [(size,) for size in np.diff(self.ends[samples]).tolist()]
        stretches = samples
        self._edges: list[int] = edges.tolist()
        self.counts, self.at, self.longest_gap = sizes, np.arange(len(sizes)), 0
        if widths is not None:
            shapes = [(end - start, width) for (start, end), width in zip(pairwise(rows), widths, strict=True)]
            stretches = [sample + row for sample, row in zip(samples, rows, strict=True)]
            self._row_of = np.repeat(np.arange(rows[-1]), np.diff(edges))
            self._firsts = edges[self._row_of]
            self._gaps = np.repeat(widths, np.diff(rows)) - np.diff(self.ends[edges])
            self.longest_gap = int(self._gaps.max(initial=0))
            self.at += self._row_of
            self.counts = np.empty(stretches[-1], np.int64)
            self.counts[self.at], self.counts[edges[1:] + np.arange(rows[-1])] = sizes, self._gaps
        cuts = [list(starmap(slice, pairwise(found))) for found in (samples, rows, stretches)]
        self.parts = list(map(Part, *cuts, np.diff(stretches).tolist(), shapes))

    def positions(self, part: Part) -> NDArray[np.int32]:
        """Return the position of each value of a batch in its stretch, int32 with the shape of the batch."""
        counts = self.counts[part.stretches]
        positions: NDArray[np.int32] = self._offsets[part.stretches].repeat(counts)
        positions += self._numbers[: len(positions)]
        return positions.reshape(part.shape)

    def segments(self, part: Part) -> NDArray[np.int32]:
        """Return the number of each value's sample in its row, from 1 on; 0 for padding."""
        return self.spread(self._segments, part)

    def of_stretches(self, values: NDArray[np.int32], padding: int) -> NDArray[np.int32]:
        """Return a number for each stretch, from the samples' numbers; `padding` for padding."""
        found = np.full(len(self.counts), padding, np.int32)
        found[self.at] = values
        return found

    def spread(self, stretches: NDArray[np.int32], part: Part) -> NDArray[np.int32]:
        """Return the number of each value's stretch, with the shape of the batch."""
        return stretches[part.stretches].repeat(self.counts[part.stretches]).reshape(part.shape)

    def cuts(self, samples: NDArray[np.int64]) -> list[slice]:
        """Return each batch's part of `samples`, which ascend."""
        return list(starmap(slice, pairwise(np.searchsorted(samples, self._samples).tolist())))

    def gap(self, part: Part) -> int:
        """Return the padding after the last row of a batch."""
        return int(self._gaps[part.rows.stop - 1])

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where each stretch begins in all batches, joined, and where the last one ends."""
        return ends(self.counts)

    @cached_property
    def _offsets(self) -> NDArray[np.int32]:
        """Minus where each stretch begins in its batch: the values of earlier batches come before."""
        before = np.repeat(ends_of(self._values)[:-1], [part.pieces for part in self.parts])
        return (before - self.starts[:-1]).astype(np.int32)

    @cached_property
    def _numbers(self) -> NDArray[np.int32]:
        return np.arange(max(self._values), dtype=np.int32)

    @cached_property
    def _segments(self) -> NDArray[np.int32]:
        return self.of_stretches((self.at + 1 - self._row_of - self._firsts).astype(np.int32), 0)

    @cached_property
    def _values(self) -> list[int]:
        return [math.prod(part.shape) for part in self.parts]

    def others(self, values: list[Any] | NDArray[Any], part: Part, *, nested: bool) -> list[Any] | NDArray[Any]:
        """Return the values of a batch's samples; `nested`: one list for each row."""
        if not nested:
            return values[part.samples].copy()
        return [values[start:stop] for start, stop in pairwise(self._edges[part.rows.start : part.rows.stop + 1])]

    def pad(self, items: NDArray[Any], part: Part, value: NDArray[Any]) -> None:
        """Set the padding of the items of a batch."""
        if not self._padded or not part.pieces:
            return
        gaps = self._gaps[part.rows].tolist()
        for row, gap in zip(items.reshape(len(gaps), -1), gaps, strict=True):
            if gap:
                row[-gap:] = value

    def sample_at(self, part: Part, item: int) -> int:
        """Return the sample of an item of a batch."""
        stretch = np.searchsorted(np.cumsum(self.counts[part.stretches]), item, side="right")
        return int(np.searchsorted(self.at, part.stretches.start + stretch))


def padded_rows(samples: Sequence[int], sizes: NDArray[np.int64], multiple: int) -> Rows:
    """Return rows of one sample each, as long as the longest of their batch, rounded up to `multiple`."""
    all_sizes = sizes.tolist()
    widths = [-(-max(all_sizes[start:stop], default=0) // multiple) * multiple for start, stop in pairwise(samples)]
    return Rows(samples, sizes, np.arange(samples[-1] + 1), samples, widths)


def ends(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where each of some stretches begins, and where the last one ends."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))


def ends_of(sizes: Iterable[int]) -> list[int]:
    """Return the same for Python's integers."""
    return list(accumulate(sizes, initial=0))
