"""Plans groups: which samples are in the next groups of a run, from their lengths alone.

A plan is made window by window, for all lanes and ranks. No sample is read.
"""

from __future__ import annotations

from itertools import pairwise, starmap
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import SampleError, StateError
from mdsx.order import Course, Grouping, GroupSequence, Windows, group_positions, items_of, step_order, windows
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
    """Successive groups of a run, where the samples of their items are, and the windows that they are of."""

    groups: GroupSequence
    located: NDArray[np.int64]  # [3, items], see GroupStep
    origins: tuple[Origin, ...]

    def followed_by(self, later: Block) -> Block:
        """Return the groups of both."""
        located = np.concatenate((self.located, later.located), axis=1)
        return Block(self.groups + later.groups, located, self.origins + later.origins)

    def after(self, count: int) -> Block:
        """Return the groups without the first `count`."""
        if not count:
            return self
        groups, left, rest = self.groups.take(np.arange(count, len(self.groups))), [], count
        for origin in self.origins:
            passed = min(rest, origin.groups)
            rest -= passed
            if passed < origin.groups:
                left.append(origin._replace(taken=origin.taken + passed, groups=origin.groups - passed))
        return Block(groups, self.located[:, self.groups.edges[count] :], tuple(left))


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
        shards, samples = self._course.locate(positions)
        samples = self._view.stored(shards, samples)
        lengths = self._lengths_of(shards, samples)
        groups = group_positions(
            self.rule,
            self._course,
            positions,
            lengths,
            seed=self._seed,
            epoch=epoch,
            window=window,
            shuffle=self._shuffle,
        )
        if taken > len(groups):
            raise StateError("more groups were taken from a window than it has", found=taken, expected=len(groups))
        origin = Origin(epoch, window, 0, len(groups), start, stop, window == len(every) - 1)
        located = np.stack((positions, shards, samples))[:, groups.positions - start]
        return Block(groups, located, (origin,)).after(taken)

    def _lengths_of(self, shards: NDArray[np.int64], samples: NDArray[np.int64]) -> NDArray[np.int64]:
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
    """Return the samples (int64 [3, n], see GroupStep) and groups that `rank` has of each step of `size` groups, for
    all whole steps."""
    groups, count = block.groups, len(block.groups) // size
    if not count:
        return []
    order = step_order(groups.lanes[: count * size].reshape(count, size), lanes)
    mine = order[:, rank * size // world_size : (rank + 1) * size // world_size]
    rows = mine.shape[1]
    edges, items = items_of(groups, (mine + np.arange(count)[:, None] * size).ravel())
    located, firsts, sizes = block.located[:, items], groups.firsts[items], groups.sizes[items]
    begins, end = groups.edges[: count * size : size], int(groups.edges[count * size])
    values = np.add.reduceat(groups.sizes[:end], begins).tolist()
    samples = np.add.reduceat(groups.firsts[:end] == 0, begins, dtype=np.int64).tolist()
    bounds = edges[np.arange(count + 1) * rows]
    of_step = edges[np.arange(count)[:, None] * rows + np.arange(rows + 1)] - bounds[:-1, None]
    cuts = starmap(slice, pairwise(bounds.tolist()))
    return [
        (located[:, cut], RankGroups(own, firsts[cut], sizes[cut], *numbers))
        for cut, own, *numbers in zip(cuts, of_step, samples, values, strict=True)
    ]
