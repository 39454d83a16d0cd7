"""How epochs are cut into steps of groups: packed rows, or length-bounded batches.

A step takes the next groups of the epoch's sequence: `rows` for each rank. A thread plans ahead; a plan needs lengths
only. The place of a run is (window, groups taken from it), so a run can continue with another number of rows or ranks.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import UsageError
from mdsx.order import Course, GroupSequence
from mdsx.process import Counters, work_for
from mdsx.stream.background import Background
from mdsx.stream.batching import GroupStep, RankShare, Task, check_epoch, no_batch
from mdsx.stream.planning import Block, Planner, cut_steps

_BLOCKS_AHEAD = 1  # besides the one being planned and the one being read
_IN_PLANNING = "mdsx: while the groups of the next batch were planned, from the lengths of samples"


class GroupPlace(NamedTuple):
    """Where a run of groups is: after `taken` groups of a window of the order's epoch.

    `step`: the steps taken of the run's epoch, if epochs have a fixed number of them, else 0.
    """

    step: int
    epoch: int
    window: int
    taken: int


class Plan(NamedTuple):
    """What an epoch of groups has, over all ranks. See `StreamingDataLoader.plan`."""

    epoch: int
    steps: int
    """Batches of each rank."""
    groups: int
    """Packed rows, or length-bounded batches."""
    samples: int
    values: int
    """Values of all samples together, such as tokens; without those that `oversize="truncate"` cuts off."""
    fill: float
    """The share of places in the batches that have a value, before `pad_to_multiple_of`: the rest is padding."""


class GroupBatching:
    """Cuts epochs of groups into steps of `rows` groups for each of `world_size` ranks.

    `epoch_steps`: the number of steps of an epoch, which then continues where the one before it stopped. Only the
    process that plans has the planner: a copy for another process cannot cut steps.
    """

    def __init__(
        self,
        planner: Planner,
        course: Course,
        *,
        rows: int,
        rank: int,
        world_size: int,
        drop_last: bool,
        epoch_steps: int | None,
        group_samples: float,
    ) -> None:
        self.rows, self.rank, self.world_size = rows, rank, world_size
        self.drop_last, self.epoch_steps = drop_last, epoch_steps
        self.lanes, self.samples, self._cut = course.lanes, course.epoch_samples, course.cut
        self.divided = planner.rule.window * course.lanes
        self.step_samples = max(round(rows * world_size * group_samples), 1)
        self._splits = planner.rule.oversize == "split"
        self._planner: Planner | None = planner
        self.counters: Counters | None = None
        self.counted: dict[int, NDArray[np.int64]] = {}
        """epoch -> int64 [windows]: the groups of each window, of epochs that were planned whole."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None, "counters": None, "counted": {}}

    @property
    def planner(self) -> Planner:
        """Return what plans the groups."""
        assert self._planner is not None, "steps are cut in the process that planned them"
        return self._planner

    @property
    def size(self) -> int:
        """Return the groups of a step over all ranks."""
        return self.rows * self.world_size

    def start(self, epoch: int, before: Any) -> GroupPlace:
        """Return where `epoch` begins, in a run that is at `before`."""
        return first_place(epoch, before, fixed=self.epoch_steps is not None)

    def check(self, epoch: int) -> None:
        """Raise UsageError if no pass can begin."""
        if not self.samples:
            raise UsageError("the dataset has no samples, so its epochs have no batch")
        check_epoch(epoch, self.samples)

    def count(self, place: GroupPlace) -> int:
        """Count the steps from there to the end of the run's epoch. Raise TypeError if that costs a pass."""
        if self.epoch_steps is not None:
            return self.epoch_steps - place.step
        groups = self.counted.get(place.epoch)
        if groups is None:
            raise TypeError(
                "the number of batches of an epoch is not known: it depends on the lengths of all its samples; call "
                "loader.plan(), which counts them, or give the loader epoch_steps="
            )
        left = int(groups[place.window :].sum()) - place.taken
        return left // self.size if self.drop_last else -(-left // self.size)

    def plan(self, epoch: int) -> Plan:
        """Plan a whole epoch, and keep the number of its groups."""
        samples = values = places = 0
        counts, rule = [], self.planner.rule
        for window in range(len(self.planner.windows(epoch))):
            block = self.planner.block(epoch, window)
            counts.append(len(block.groups))
            samples += int((block.groups.firsts == 0).sum())
            values += int(block.groups.sizes.sum())
            places += _places(block.groups, None if rule.kind == "max_tokens" else rule.capacity)
        self.counted[epoch] = np.array(counts, np.int64)
        groups = sum(counts)
        steps = groups // self.size if self.drop_last else -(-groups // self.size)
        return Plan(epoch, steps, groups, samples, values, values / max(places, 1))

    def tasks(self, epoch: int, place: GroupPlace) -> Generator[Task, None, None]:
        """Yield the steps from there to the epoch's end, planned ahead in a thread."""
        planner, counters = self.planner, self.counters  # the thread must not hold the loader

        def planned() -> Iterator[Block | None]:
            if counters is not None:
                work_for(counters)
            return _blocks(planner, place, endless=self.epoch_steps is not None)

        blocks = Background(planned, _BLOCKS_AHEAD)
        try:
            yield from self._steps(epoch, place, blocks)
        finally:
            blocks.close()

    def _steps(self, epoch: int, place: GroupPlace, blocks: Iterator[Block | None]) -> Iterator[Task]:
        """Yield the steps of `blocks`. None is the end of the order's epoch."""
        left: Block | None = None  # groups that do not fill a step
        held: GroupStep | None = None  # the last step so far: it may be the epoch's last
        step, fixed = place.step, self.epoch_steps
        while True:
            try:
                block = next(blocks)
            except Exception as error:
                if held is not None:
                    yield self._task(epoch, held)
                error.add_note(_IN_PLANNING)
                raise
            if block is None and fixed is not None:
                continue
            if block is None:
                if left is not None and not self.drop_last:
                    if held is not None:
                        yield self._task(epoch, held)
                    (held,) = self._cut_steps(epoch, left, len(left.groups))
                if held is not None:
                    after = self.start(epoch + 1, None)
                    yield self._task(epoch, held._replace(next_epoch=epoch + 1, after=after))
                elif not place.window and not place.taken:
                    count = len(left.groups) if left else 0
                    hint = "give a smaller batch_size, drop_last=False, or epoch_steps="
                    raise no_batch(count, "group", of=self.rows, ranks=self.world_size, hint=hint)
                return
            left = block if left is None else left.followed_by(block)
            steps = self._cut_steps(epoch, left, self.size)
            for found in steps:
                if fixed is not None:
                    step += 1
                    over = step == fixed
                    after = found.after._replace(step=0 if over else step)
                    yield self._task(epoch, found._replace(next_epoch=epoch + over, after=after))
                    if over:
                        return
                    continue
                if held is not None:
                    yield self._task(epoch, held)
                held = found
            rest = len(left.groups) - len(steps) * self.size
            left = left.after(len(steps) * self.size) if rest else None

    def _cut_steps(self, epoch: int, block: Block, size: int) -> list[GroupStep]:
        """Return the steps of `size` groups that the block has whole, as if the run's epoch had more."""
        planned = cut_steps(block, size, self.lanes, self.rank, self.world_size)
        found, origins = [], iter(block.origins)
        origin, passed = next(origins), 0  # groups of it in earlier steps
        for located, groups in planned:
            first, missing = origin.start, size
            while missing > origin.groups - passed:
                missing -= origin.groups - passed
                origin, passed = next(origins), 0
            passed += missing
            stop = done = origin.stop
            if passed < origin.groups:
                after = GroupPlace(0, origin.epoch, origin.window, origin.taken + passed)
                done = origin.start
            elif origin.final:
                after = GroupPlace(0, origin.epoch + 1, 0, 0)
            else:
                after = GroupPlace(0, origin.epoch, origin.window + 1, 0)
            found.append(GroupStep(located, groups, first, stop, done, epoch, after))
            if passed == origin.groups and (following := next(origins, None)) is not None:
                origin, passed = following, 0
        return found

    def _task(self, epoch: int, step: GroupStep) -> Task:
        start = step.first % self.samples
        return Task(epoch, start, start + step.stop - step.first, step)

    def task(self, epoch: int, place: GroupPlace) -> Task:
        """Return the step that begins at `place`."""
        tasks = self.tasks(epoch, place)
        try:
            return next(tasks)
        finally:
            tasks.close()

    def after(self, task: Task) -> tuple[int, GroupPlace]:
        """Return (epoch, place) after `task`."""
        assert task.groups is not None
        return task.groups.next_epoch, task.groups.after

    def share(self, task: Task, rank: int) -> int:
        """Return how many samples begin in the rank's groups of `task`. Only this rank's are known."""
        assert task.groups is not None
        if not self._splits:
            return len(task.groups.groups.firsts)
        return int((task.groups.groups.firsts == 0).sum())

    def rank_share(self, tasks: Sequence[Task], course: Course, rank: int) -> RankShare:
        """Return what `rank` reads of `tasks`."""
        steps = [task.groups for task in tasks if task.groups is not None]
        first = steps[0].first
        positions, shards, samples = np.concatenate([step.located for step in steps], axis=1)
        return RankShare(
            positions,
            np.array([step.located.shape[1] for step in steps], np.int64),
            np.array([step.first for step in steps], np.int64),
            first // self.samples * self.samples,
            first,
            max(step.stop for step in steps),
            steps[-1].done,
            (shards, samples),
        )

    def window_end(self, position: int) -> int:
        """Return the end of the window that begins at `position`."""
        ends = [position + self.divided, (position // self.samples + 1) * self.samples]
        if self._cut:
            ends.append((position // self._cut + 1) * self._cut)
        return min(ends)


def failed_in_planning(error: BaseException) -> bool:
    """Whether a batch of groups could not be planned. It was not made, so nothing is wrong with its samples."""
    return _IN_PLANNING in getattr(error, "__notes__", ())


def first_place(epoch: int, before: Any, *, fixed: bool) -> GroupPlace:
    """Return where `epoch` begins in a run that is at `before`, a GroupPlace or None. `fixed`: epochs have a fixed
    number of steps, and continue where the one before stopped."""
    if fixed and isinstance(before, GroupPlace):
        return before._replace(step=0)
    return GroupPlace(0, 0 if fixed else epoch, 0, 0)


def _places(groups: GroupSequence, row: int | None) -> int:
    """Return the places in batches of these groups: rows of `row` places, or None: as long as the longest sample."""
    if row is not None or not len(groups):
        return len(groups) * (row or 0)
    longest = np.maximum.reduceat(groups.sizes, groups.edges[:-1])
    return int((longest * np.diff(groups.edges)).sum())


def _blocks(planner: Planner, place: GroupPlace, *, endless: bool) -> Iterator[Block | None]:
    """Yield the groups from `place` on, window by window, and None after each epoch; `endless`: for all epochs."""
    _, epoch, window, taken = place
    while True:
        for number in range(window, len(planner.windows(epoch))):
            block = planner.block(epoch, number, taken if number == window else 0)
            if len(block.groups):
                yield block
        yield None
        if not endless:
            return
        epoch, window, taken = epoch + 1, 0, 0
