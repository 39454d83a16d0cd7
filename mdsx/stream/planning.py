"""Plan groups: find the samples of a run's next groups, from lengths alone.

A plan is made window by window, for all lanes and ranks. No sample is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.base.cached import cached_property
from mdsx.errors import SampleError, StateError
from mdsx.order import (
    Bucketing,
    Course,
    Dealing,
    Grouping,
    Position,
    Tick,
    Windows,
    group_positions,
    items_of,
    rank_edges,
    step_order,
)
from mdsx.shards import Lengths, View
from mdsx.stream.stages import ONE, Stages
from mdsx.stream.steps import FIRST, SHARD, SIZE, Cursor, RankGroups


class Origin(NamedTuple):
    """Where a grid of windows begins: an epoch of the order, a position in it, and the number of its first window."""

    epoch: int = 0
    position: Position = Position(0)
    number: int = 0


START = Origin()


@dataclass(frozen=True, slots=True)
class EpochWindows:
    """The windows of an epoch, or of its part after a grid's origin. `first`: the number of the first window."""

    every: Windows
    first: int

    @property
    def end(self) -> int:
        """Return the number after that of the last window."""
        return self.first + len(self.every)

    def __getitem__(self, number: int) -> tuple[int, int]:
        return self.every[number - self.first]


class Stretch(NamedTuple):
    """The remaining groups of a window, after those that were taken before."""

    cursor: Cursor  # where it begins
    groups: int
    start: Tick  # of the window
    stop: Tick
    after: Cursor  # where the next window begins
    stage: int  # of the plan


class Components(NamedTuple):
    """The number of components, and the component of each shard."""

    total: int
    of_shards: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Block:
    """Successive groups of a run, and their windows."""

    lanes: NDArray[np.int64]  # of the groups; with buckets, the buckets instead
    edges: NDArray[np.int64]  # where the items of each group begin, and where those of the last one end
    items: NDArray[np.int64]  # [6, items], see RankGroups
    stretches: tuple[Stretch, ...]

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self.lanes)

    @property
    def firsts(self) -> NDArray[np.int64]:
        """Return the index of each item's first value in its sample."""
        return self.items[FIRST, :]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Return how many values each item has."""
        return self.items[SIZE, :]

    def followed_by(self, later: Block) -> Block:
        """Return a block with the groups of both."""
        return Block(
            np.concatenate((self.lanes, later.lanes)),
            np.concatenate((self.edges, self.edges[-1] + later.edges[1:])),
            np.concatenate((self.items, later.items), axis=1),
            self.stretches + later.stretches,
        )

    def before(self, count: int) -> Block:
        """Return the first `count` groups of a window."""
        if count == len(self):
            return self
        stretches = tuple(stretch._replace(groups=count) for stretch in self.stretches)
        return Block(self.lanes[:count], self.edges[: count + 1], self.items[:, : self.edges[count]], stretches)

    def after(self, count: int) -> Block:
        """Return the groups without the first `count`."""
        if not count:
            return self
        left, rest, first = list[Stretch](), count, self.edges[count]
        for stretch in self.stretches:
            passed = min(rest, stretch.groups)
            rest -= passed
            if passed < stretch.groups:
                cursor = further(stretch.cursor, passed, stretch.cursor.step)
                left.append(stretch._replace(cursor=cursor, groups=stretch.groups - passed))
        return Block(self.lanes[count:], self.edges[count:] - first, self.items[:, first:], tuple(left))


def further(cursor: Cursor, groups: int, step: int) -> Cursor:
    """Return the cursor after `groups` more groups of its window, where `step` begins."""
    return Cursor(cursor.epoch, cursor.position, cursor.window, cursor.taken + groups, step, 0, cursor.planned)


class Planner:
    """Plans the groups of the samples of `view` in the order of `course`.

    `origin`: where the grid of windows begins; `stages`: what a plan changes, and from how many planned values on. A
    grid ends where a stage with other groups begins.
    """

    def __init__(
        self,
        view: View,
        course: Course,
        lengths: Lengths,
        rule: Grouping | Bucketing,
        *,
        seed: int,
        shuffle: bool,
        origin: Origin = START,
        stages: Stages = ONE,
    ) -> None:
        self._view, self._course, self._lengths, self.rule = view, course, lengths, rule
        self._seed, self._shuffle, self._origin, self.stages = seed, shuffle, origin, stages

    @cached_property
    def components(self) -> Components:
        """Return the number of components, and the component of each shard."""
        firsts = self._view.firsts
        return Components(len(firsts) - 1, np.repeat(np.arange(len(firsts) - 1), np.diff(firsts)))

    def windows(self, epoch: int) -> EpochWindows:
        """Return the windows of an epoch: the first and last tick (exclusive) of each."""
        samples, course, origin = self._course.epoch_samples, self._course, self._origin
        position, first = origin[1:] if epoch == origin.epoch else (0, 0)
        start, size = epoch * samples, self.rule.window * course.lanes
        every = Windows(start + position, start + samples, course.cut, size)
        return EpochWindows(every, first)

    def blocks(self, cursor: Cursor, *, endless: bool) -> Iterator[Block | None]:
        """Yield the groups from `cursor` on, window by window, and None after each epoch; `endless`: for all epochs.

        The last window is the one before a stage with other groups.
        """
        stages, planned = self.stages, cursor.planned
        stage, course = stages.at(planned), self._course
        epoch, window, taken = cursor.epoch, cursor.window, cursor.taken
        while True:
            every = self.windows(epoch)
            for number in range(window, every.end):
                block, planned = self.block(epoch, number, taken if number == window else 0, planned, course)
                if block:
                    yield block
                if (following := stages.at(planned)) != stage:
                    if stages.grids[following] != stages.grids[stage]:
                        return
                    for passed in stages.starts[stage + 1 : following]:
                        stages.begun.pop(passed, None)  # it began in an epoch that was left
                    stages.begun[stages.starts[following]] = Tick(every[number][1])
                    course = stages.course(course, range(following, following + 1), Tick(every[number][1]))
                    stage = following
            yield None
            if not endless:
                return
            epoch, window, taken = epoch + 1, 0, 0

    def block(
        self, epoch: int, window: int, taken: int = 0, planned: int = 0, course: Course | None = None
    ) -> tuple[Block, int]:
        """Return the groups of a window, without the first `taken`, and the values planned up to its end. `planned`:
        the values of all windows before it. Raise SampleError for a sample that is too long."""
        every, course = self.windows(epoch), course or self._course
        start, stop = every[window]
        ticks = np.arange(start, stop)
        shards, samples = course.locate(ticks)
        if course.excluded is not None:
            kept = course.excluded.kept(ticks, shards, samples)
            ticks, shards, samples = ticks[kept], shards[kept], samples[kept]
        samples = self._view.stored(shards, samples)
        lengths = self._lengths_of(shards, samples)
        groups = group_positions(
            self.rule, course, ticks, lengths, seed=self._seed, epoch=epoch, window=window, shuffle=self._shuffle
        )
        if taken > len(groups):
            raise StateError("the state has taken more groups than the window has", found=taken, expected=len(groups))
        begin = epoch * course.epoch_samples
        cursor = Cursor(epoch, Position(start - begin), window, planned=planned)
        after = planned + int(groups.sizes.sum())
        following = Cursor(epoch, Position(stop - begin), window + 1, planned=after)
        if window == every.end - 1:
            following = Cursor(epoch + 1, planned=after)
        stretch = Stretch(cursor, len(groups), Tick(start), Tick(stop), following, self.stages.at(planned))
        places = groups.positions - start if len(ticks) == stop - start else np.searchsorted(ticks, groups.positions)
        located = groups.positions, shards[places], samples[places], lengths[places]
        items = np.stack((*located, groups.firsts, groups.sizes))
        return Block(groups.lanes, groups.edges, items, (stretch,)).after(taken), after

    def _lengths_of(self, shards: NDArray[np.int64], samples: NDArray[np.int64]) -> NDArray[np.int64]:
        lengths = self._lengths.of(shards, samples)
        if not isinstance(self.rule, Bucketing) and (bad := self.rule.first_oversize(lengths)) is not None:
            pieces = self.rule.kind == "pack" and "longest" not in self._lengths.identity  # of several columns
            split = ', or oversize="split" to cut it into pieces' if pieces else ""
            added = ", including added tokens" if "added" in self._lengths.identity else ""
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
    block: Block,
    size: int,
    lanes: int,
    rank: int,
    world_size: int,
    amounts: NDArray[np.int64],
    dealing: Dealing | None = None,
) -> Iterator[RankGroups]:
    """Yield the rank's groups in each complete step of `size` groups in the block. `amounts`: see `amounts_of`;
    `dealing`: how a node's rows are dealt to its ranks by cost."""
    count = len(block) // size
    if not count:
        return
    order = step_order(block.lanes[: count * size].reshape(count, size), lanes)
    if dealing is not None:
        order = dealing.reorder(order, block.sizes, block.edges, rank, world_size)
    mine = order[:, rank * size // world_size : (rank + 1) * size // world_size]
    rows = mine.shape[1]
    edges, chosen = items_of(block.edges, (mine + np.arange(count)[:, None] * size).ravel())
    items = block.items[:, chosen]
    samples, values = amounts.reshape(count, 2, -1).sum(axis=2).T.tolist()
    bounds = edges[np.arange(count + 1) * rows]
    of_step = edges[np.arange(count)[:, None] * rows + np.arange(rows + 1)] - bounds[:-1, None]
    own_items = (items[:, start:stop] for start, stop in pairwise(bounds.tolist()))
    yield from map(RankGroups, of_step, own_items, samples, values)


def cut_groups(block: Block, rank: int, world_size: int) -> Iterator[RankGroups]:
    """Yield the rank's samples in each group, which is a step of one bucket."""
    begins, stops = rank_edges(block.edges, rank, world_size)
    edges, chosen = items_of(np.stack((begins, stops), axis=1).ravel(), np.arange(0, 2 * len(block), 2))
    items = block.items[:, chosen]
    sizes = np.diff(block.edges).tolist()
    parts = pairwise(edges.tolist())
    for (start, stop), size, bucket in zip(parts, sizes, block.lanes.tolist(), strict=True):
        yield RankGroups(np.arange(stop - start + 1), items[:, start:stop], size, size, bucket)


def amounts_of(block: Block, size: int, components: Components) -> NDArray[np.int64]:
    """Return the samples and values of each component in each complete step of `size` groups: [steps, 2 * K]."""
    most, of_shards = components
    count = len(block) // size
    if not count:
        return np.zeros((0, 2 * most), np.int64)
    edges = block.edges[: count * size + 1 : size]
    begun, sizes = block.firsts[: edges[-1]] == 0, block.sizes[: edges[-1]]
    found = np.empty((count, 2 * most), np.int64)
    if most == 1:
        found[:, 0] = np.diff(edges) if begun.all() else np.add.reduceat(begun, edges[:-1], dtype=np.int64)
        found[:, 1] = np.add.reduceat(sizes, edges[:-1])
        return found
    of = of_shards[block.items[SHARD, : edges[-1]]]
    of += np.repeat(np.arange(count) * most, np.diff(edges))
    found[:, :most] = np.bincount(of if begun.all() else of[begun], minlength=count * most).reshape(count, most)
    found[:, most:] = np.bincount(of, sizes, count * most).reshape(count, most)  # exact up to 2^53
    return found


def in_parts(groups: RankGroups, parts: int, rows: int) -> list[RankGroups]:
    """Return the micro-batches of a rank's groups in a step, `rows` each, the last ones filled up with empty groups."""
    found, groups = [], groups.filled(parts * rows)
    for part in range(parts):
        own = groups.edges[part * rows : (part + 1) * rows + 1]
        found.append(groups._replace(edges=own - own[0], items=groups.items[:, own[0] : own[-1]]))
    return found
