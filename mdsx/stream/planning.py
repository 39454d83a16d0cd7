"""Plans groups: which samples are in the next groups of a run, from their lengths alone.

A plan is made window by window, for all lanes and ranks. No sample is read.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import SampleError, StateError
from mdsx.order import Course, Grouping, Windows, group_window, step_order, windows
from mdsx.shards import Lengths, View
from mdsx.stream.layouts import RankGroups


class Origin(NamedTuple):
    """Groups `taken` up to `taken + groups` of a window, which are in a block."""

    epoch: int  # of the order
    window: int
    taken: int
    groups: int
    start: int  # the window's first position, counted over all epochs
    stop: int
    whole: bool  # they are the window's last
    final: bool  # the window is its epoch's last


class Block(NamedTuple):
    """Successive groups in the epoch's sequence. Group g has samples `edges[g]` up to `edges[g + 1]`."""

    lanes: NDArray[np.int64]  # [G]
    edges: NDArray[np.int64]  # [G + 1]
    positions: NDArray[np.int64]  # [m], counted over all epochs
    firsts: NDArray[np.int64]  # [m]: the first value of the piece in its sample
    sizes: NDArray[np.int64]  # [m]: the values of the piece
    origins: tuple[Origin, ...]

    def __add__(self, later: object) -> Block:
        """Return the groups of both."""
        if not isinstance(later, Block):
            return NotImplemented
        parts = self, later
        return Block(
            np.concatenate([part.lanes for part in parts]),
            np.concatenate([self.edges, later.edges[1:] + self.edges[-1]]),
            np.concatenate([part.positions for part in parts]),
            np.concatenate([part.firsts for part in parts]),
            np.concatenate([part.sizes for part in parts]),
            self.origins + later.origins,
        )

    def after(self, count: int) -> Block:
        """Return the groups without the first `count`."""
        if not count:
            return self
        first, left = int(self.edges[count]), []
        for origin in self.origins:
            passed = min(count, origin.groups)
            count -= passed
            if passed < origin.groups:
                left.append(origin._replace(taken=origin.taken + passed, groups=origin.groups - passed))
        number = len(self.lanes) - sum(origin.groups for origin in left)
        return Block(
            self.lanes[number:],
            self.edges[number:] - first,
            self.positions[first:],
            self.firsts[first:],
            self.sizes[first:],
            tuple(left),
        )


class Planner:
    """Plans the groups of the samples of `view` in the order of `course`."""

    def __init__(
        self, view: View, course: Course, lengths: Lengths, rule: Grouping, *, seed: int, shuffle: bool
    ) -> None:
        self._view, self._course, self._lengths, self.rule = view, course, lengths, rule
        self._seed, self._shuffle = seed, shuffle

    def windows(self, epoch: int) -> Windows:
        """Return the windows of an epoch: the first and last position (exclusive) of each."""
        samples, course = self._course.epoch_samples, self._course
        return windows(epoch * samples, (epoch + 1) * samples, course.cut, self.rule.window * course.lanes)

    def block(self, epoch: int, window: int, taken: int = 0) -> Block:
        """Return the groups of a window, without the first `taken`. Raise SampleError for a sample that is too long."""
        every = self.windows(epoch)
        start, stop = every[window]
        positions = np.arange(start, stop)
        lengths = self._lengths_of(positions)
        found = group_window(
            self.rule,
            lengths,
            self._course.lanes_of(positions),
            seed=self._seed,
            epoch=epoch,
            window=window,
            shuffle=self._shuffle,
            lane_count=self._course.lanes,
        )
        if taken > len(found.lanes):
            raise StateError("more groups were taken from a window than it has", found=taken, expected=len(found.lanes))
        origin = Origin(epoch, window, 0, len(found.lanes), start, stop, True, window == len(every) - 1)
        whole = Block(found.lanes, found.edges, positions[found.items], found.firsts, found.sizes, (origin,))
        return whole.after(taken)

    def _lengths_of(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        shards, samples = self._course.locate(positions)
        samples = self._view.stored(shards, samples)
        lengths = self._lengths.of(shards, samples)
        bad = self.rule.first_oversize(lengths)
        if bad is not None:
            split = ', or oversize="split" to cut it into pieces' if self.rule.kind == "pack" else ""
            raise SampleError(
                "a sample is longer than a group",
                file=self._view.file(int(shards[bad])),
                place=f"sample {samples[bad]}",
                found=int(lengths[bad]),
                expected=f"at most {self.rule.capacity}",
                hint=f'give oversize="truncate" to take its first {self.rule.capacity} values{split}, or a larger '
                "capacity",
            )
        return lengths


def cut_steps(
    block: Block, size: int, lanes: int, rank: int, world_size: int
) -> list[tuple[NDArray[np.int64], RankGroups]]:
    """Return the positions and groups that `rank` has of each step of `size` groups, for all whole steps."""
    count = len(block.lanes) // size
    if not count:
        return []
    order = step_order(block.lanes[: count * size].reshape(count, size), lanes)
    mine = order[:, rank * size // world_size : (rank + 1) * size // world_size]
    rows = mine.shape[1]
    chosen = (mine + np.arange(count)[:, None] * size).ravel()
    sizes = np.diff(block.edges)[chosen]
    edges = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    items = np.arange(edges[-1]) + np.repeat(block.edges[chosen] - edges[:-1], sizes)
    positions, firsts, values = block.positions[items], block.firsts[items], block.sizes[items]
    at = block.edges[: count * size : size]
    ends = slice(0, int(block.edges[count * size]))
    totals = np.add.reduceat(block.sizes[ends], at).tolist()
    begun = np.add.reduceat(block.firsts[ends] == 0, at, dtype=np.int64).tolist()
    bounds = edges[::rows].tolist() if rows else [0] * (count + 1)
    steps = []
    for step in range(count):
        low, high = bounds[step], bounds[step + 1]
        groups = RankGroups(
            edges[step * rows : (step + 1) * rows + 1] - low,
            firsts[low:high],
            values[low:high],
            begun[step],
            totals[step],
        )
        steps.append((positions[low:high], groups))
    return steps
