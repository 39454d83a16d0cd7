"""Plans groups: which samples are in the next groups of a run, from their lengths alone.

A plan is made window by window, for all lanes and ranks. No sample is read.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import SampleError, StateError
from mdsx.order import Course, Grouping, GroupSequence, Windows, group_window, step_order, windows
from mdsx.shards import Lengths, View
from mdsx.stream.layouts import RankGroups


class Origin(NamedTuple):
    """The groups of a block from `taken` of a window up to its end."""

    epoch: int  # of the order
    window: int
    taken: int
    groups: int
    start: int  # the window's first position, counted over all epochs
    stop: int
    final: bool  # the window is its epoch's last


class Block(NamedTuple):
    """Successive groups of a run, and the windows that they are of."""

    groups: GroupSequence
    origins: tuple[Origin, ...]

    def followed_by(self, later: Block) -> Block:
        """Return the groups of both."""
        return Block(self.groups + later.groups, self.origins + later.origins)

    def after(self, count: int) -> Block:
        """Return the groups without the first `count`."""
        if not count:
            return self
        groups, left = self.groups.take(np.arange(count, len(self.groups))), []
        for origin in self.origins:
            passed = min(count, origin.groups)
            count -= passed
            if passed < origin.groups:
                left.append(origin._replace(taken=origin.taken + passed, groups=origin.groups - passed))
        return Block(groups, tuple(left))


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
        origin = Origin(epoch, window, 0, len(found.lanes), start, stop, window == len(every) - 1)
        groups = GroupSequence(found.lanes, found.edges, positions[found.items], found.firsts, found.sizes)
        return Block(groups, (origin,)).after(taken)

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
    groups: GroupSequence, size: int, lanes: int, rank: int, world_size: int
) -> list[tuple[NDArray[np.int64], RankGroups]]:
    """Return the positions and groups that `rank` has of each step of `size` groups, for all whole steps."""
    count = len(groups) // size
    if not count:
        return []
    order = step_order(groups.lanes[: count * size].reshape(count, size), lanes)
    mine = order[:, rank * size // world_size : (rank + 1) * size // world_size]
    rows = mine.shape[1]
    own = groups.take((mine + np.arange(count)[:, None] * size).ravel())
    begins, end = groups.edges[: count * size : size], int(groups.edges[count * size])
    values = np.add.reduceat(groups.sizes[:end], begins).tolist()
    samples = np.add.reduceat(groups.firsts[:end] == 0, begins, dtype=np.int64).tolist()
    bounds = own.edges[::rows].tolist() if rows else [0] * (count + 1)
    steps = []
    for step in range(count):
        low, high = bounds[step], bounds[step + 1]
        edges = own.edges[step * rows : (step + 1) * rows + 1] - low
        found = RankGroups(edges, own.firsts[low:high], own.sizes[low:high], samples[step], values[step])
        steps.append((own.positions[low:high], found))
    return steps
