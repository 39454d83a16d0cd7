"""Plans groups: which samples are in the next groups of a run, from their lengths alone.

A plan is made window by window, for all lanes and ranks. No sample is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, starmap
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import SampleError, StateError
from mdsx.order import (
    Course,
    Dealing,
    Grouping,
    GroupSequence,
    Position,
    Tick,
    Windows,
    group_positions,
    items_of,
    step_order,
    windows,
)
from mdsx.shards import Lengths, View
from mdsx.stream.steps import Cursor, RankGroups


class Stretch(NamedTuple):
    """Groups of a window, from those that were taken before up to its end."""

    cursor: Cursor  # where it begins
    groups: int
    start: Tick  # of the window
    stop: Tick
    after: Cursor  # where the next window begins


class Block(NamedTuple):
    """Successive groups of a run, where the samples of their items are, and the windows that they are of."""

    groups: GroupSequence
    located: NDArray[np.int64]  # [4, items], see RankGroups
    stretches: tuple[Stretch, ...]

    def followed_by(self, later: Block) -> Block:
        """Return the groups of both."""
        located = np.concatenate((self.located, later.located), axis=1)
        return Block(self.groups + later.groups, located, self.stretches + later.stretches)

    def after(self, count: int) -> Block:
        """Return the groups without the first `count`."""
        if not count:
            return self
        groups, left, rest = self.groups.take(np.arange(count, len(self.groups))), [], count
        for stretch in self.stretches:
            passed = min(rest, stretch.groups)
            rest -= passed
            if passed < stretch.groups:
                left.append(stretch._replace(cursor=further(stretch.cursor, passed), groups=stretch.groups - passed))
        return Block(groups, self.located[:, self.groups.edges[count] :], tuple(left))


def further(cursor: Cursor, groups: int) -> Cursor:
    """Return the cursor after `groups` more groups of its window."""
    return cursor._replace(taken=cursor.taken + groups)


class Planner:
    """Plans the groups of the samples of `view` in the order of `course`."""

    def __init__(
        self, view: View, course: Course, lengths: Lengths, rule: Grouping, *, seed: int, shuffle: bool
    ) -> None:
        self._view, self._course, self._lengths, self.rule = view, course, lengths, rule
        self._seed, self._shuffle = seed, shuffle

    def windows(self, epoch: int) -> Windows:
        """Return the windows of an epoch: the first and last tick (exclusive) of each."""
        samples, course = self._course.epoch_samples, self._course
        return windows(epoch * samples, (epoch + 1) * samples, course.cut, self.rule.window * course.lanes)

    def blocks(self, cursor: Cursor, *, endless: bool) -> Iterator[Block | None]:
        """Yield the groups from there on, window by window, and None after each epoch; `endless`: for all epochs."""
        epoch, window, taken = cursor.epoch, cursor.window, cursor.taken
        while True:
            for number in range(window, len(self.windows(epoch))):
                block = self.block(epoch, number, taken if number == window else 0)
                if len(block.groups):
                    yield block
            yield None
            if not endless:
                return
            epoch, window, taken = epoch + 1, 0, 0

    def block(self, epoch: int, window: int, taken: int = 0) -> Block:
        """Return the groups of a window, without the first `taken`. Raise SampleError for a sample that is too long."""
        every = self.windows(epoch)
        start, stop = every[window]
        ticks = np.arange(start, stop)
        shards, samples = self._course.locate(ticks)
        samples = self._view.stored(shards, samples)
        lengths = self._lengths_of(shards, samples)
        groups = group_positions(
            self.rule, self._course, ticks, lengths, seed=self._seed, epoch=epoch, window=window, shuffle=self._shuffle
        )
        if taken > len(groups):
            raise StateError("more groups were taken from a window than it has", found=taken, expected=len(groups))
        cursor = Cursor(epoch, Position(start - every.start), window)
        after = Cursor(epoch, Position(stop - every.start), window + 1)
        if window == len(every) - 1:
            after = Cursor(epoch + 1)
        stretch = Stretch(cursor, len(groups), Tick(start), Tick(stop), after)
        located = np.stack((ticks, shards, samples, lengths))[:, groups.positions - start]
        return Block(groups, located, (stretch,)).after(taken)

    def _lengths_of(self, shards: NDArray[np.int64], samples: NDArray[np.int64]) -> NDArray[np.int64]:
        lengths = self._lengths.of(shards, samples)
        bad = self.rule.first_oversize(lengths)
        if bad is not None:
            split = ', or oversize="split" to cut it into pieces' if self.rule.kind == "pack" else ""
            added = ", with the tokens that are added" if "added" in self._lengths.identity else ""
            raise SampleError(
                "a sample is longer than a group",
                file=self._view.file(int(shards[bad])),
                place=f"sample {samples[bad]}",
                found=int(lengths[bad]),
                expected=f"at most {self.rule.capacity}{added}",
                hint=f'give oversize="truncate" to take its first {self.rule.capacity} values{split}, or a larger '
                "capacity",
            )
        return lengths


def cut_steps(
    block: Block, size: int, lanes: int, rank: int, world_size: int, dealing: Dealing | None = None
) -> list[RankGroups]:
    """Return the groups that `rank` has of each step of `size` groups, for all whole steps of the block. `dealing`: how
    a node's rows are dealt to its ranks by cost."""
    groups, count = block.groups, len(block.groups) // size
    if not count:
        return []
    order = step_order(groups.lanes[: count * size].reshape(count, size), lanes)
    if dealing is not None:
        order = dealing.reorder(order, groups.sizes, groups.edges, rank, world_size)
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
        RankGroups(own, firsts[cut], sizes[cut], step_samples, step_values, located[:, cut])
        for cut, own, step_samples, step_values in zip(cuts, of_step, samples, values, strict=True)
    ]
