"""How epochs are cut into steps of groups: packed rows, or length-bounded batches.

A step takes the next groups of the epoch's sequence: `rows` for each rank. A thread plans ahead; a plan needs lengths
only. The cursor names a window and the groups taken from it, so a run can continue with another number of rows or
ranks.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.base.process import Counters
from mdsx.base.work import iterate_ahead
from mdsx.order import Balance, Busiest, BusiestRank, Course, Dealing, GroupSequence, Tick
from mdsx.stream.batching import Cut
from mdsx.stream.planning import Block, Planner, cut_steps, further
from mdsx.stream.steps import Cursor, PlannedEpoch, RankGroups, RankShare, Task, check_epoch, no_batch

_BLOCKS_AHEAD = 3  # with the one being planned and the one being read
_IN_PLANNING = "mdsx: while the groups of the next batch were planned, from the lengths of samples"


class GroupSteps:
    """Cuts epochs of groups into steps of `cut.rows` groups for each rank.

    `epoch_steps`: the number of steps of an epoch, which then continues where the one before it stopped. Only the
    process that plans has the planner: a copy for another process cannot cut steps.
    """

    def __init__(
        self,
        planner: Planner,
        course: Course,
        cut: Cut,
        *,
        epoch_steps: int | None,
        group_samples: float,
        balance: Balance | None = None,
    ) -> None:
        self.cut, self.world_size, self.epoch_steps = cut, cut.world_size, epoch_steps
        self.size = cut.rows * cut.world_size
        """The groups of a step over all ranks."""
        self._lanes, self._samples, self._cut_at = course.lanes, course.epoch_samples, course.cut
        self.period = planner.rule.window * course.lanes
        self.step_samples = max(round(self.size * group_samples), 1)
        self._splits = planner.rule.splits
        self._planner: Planner | None = planner
        self.node = 1 if balance is None else balance.node(cut.ranks_per_node, cut.world_size)
        self._dealing = None if balance is None else Dealing(balance, self.node)
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

    def check(self, epoch: int) -> None:
        check_epoch(epoch, self._samples)

    def count(self, cursor: Cursor) -> int:
        if self.epoch_steps is not None:
            return self.epoch_steps - cursor.step % self.epoch_steps
        groups = self.counted.get(cursor.epoch)
        if groups is None:
            raise TypeError(
                "the number of batches of an epoch is not known: it depends on the lengths of all its samples; call "
                "loader.plan(), which counts them, or give the loader epoch_steps="
            )
        return self._steps_of(int(groups[cursor.window :].sum()) - cursor.taken)

    def last_size(self, cursor: Cursor) -> int:
        return 0

    def plan(self, epoch: int) -> PlannedEpoch:
        samples = values = places = 0
        counts, rule, busiest = [], self.planner.rule, self._busiest()
        for window in range(len(self.planner.windows(epoch))):
            block = self.planner.block(epoch, window)
            counts.append(len(block.groups))
            samples += int((block.groups.firsts == 0).sum())
            values += int(block.groups.sizes.sum())
            places += _places(block.groups, None if rule.kind == "max_tokens" else rule.capacity)
            if busiest is not None:
                busiest.add(block.groups.lanes, block.groups.sizes, block.groups.edges)
        self.counted[epoch] = np.array(counts, np.int64)
        groups = sum(counts)
        found = (busiest and busiest.found()) or (None, None)
        return PlannedEpoch(epoch, self._steps_of(groups), groups, samples, values, values / max(places, 1), *found)

    def busiest(self, steps: int, micro_batch: int | None = None) -> tuple[Busiest, Busiest] | None:
        found = self._busiest(micro_batch)
        if found is None:
            return None
        for window in range(len(self.planner.windows(0))):
            groups = self.planner.block(0, window).groups
            found.add(groups.lanes, groups.sizes, groups.edges)
            if found.steps >= steps:
                break
        return found.found()

    def _busiest(self, micro_batch: int | None = None) -> BusiestRank | None:
        if self._dealing is None:
            return None
        return BusiestRank(
            self._dealing, lanes=self._lanes, size=self.size, world_size=self.world_size, micro_batch=micro_batch
        )

    def tasks(self, cursor: Cursor) -> Generator[Task, None, None]:
        """Yield the tasks from there to the end of the run's epoch, planned ahead in a thread."""
        planner, counters = self.planner, self.counters  # the thread must not hold the loader
        endless = self.epoch_steps is not None

        blocks = iterate_ahead(planner.blocks(cursor, endless=endless), _BLOCKS_AHEAD, counters)
        try:
            yield from self._in_fixed_epochs(cursor, blocks) if endless else self._to_the_end(cursor, blocks)
        finally:
            blocks.close()

    def _in_fixed_epochs(self, cursor: Cursor, blocks: Iterator[Block | None]) -> Iterator[Task]:
        """Yield the tasks of an epoch with a fixed number of steps."""
        step, fixed, left = cursor.step, self.epoch_steps or 1, None
        epoch = step // fixed
        while True:
            try:
                block = next(blocks)
            except Exception as error:
                error.add_note(_IN_PLANNING)
                raise
            if block is None:
                continue
            steps, left = self._cut_steps(epoch, block if left is None else left.followed_by(block))
            for task in steps:
                step += 1
                yield task._replace(after=task.after._replace(step=step))
                if step % fixed == 0:
                    return

    def _to_the_end(self, cursor: Cursor, blocks: Iterator[Block | None]) -> Iterator[Task]:
        """Yield the tasks up to the end of the order's epoch."""
        epoch, left = cursor.epoch, None
        held: Task | None = None  # the last task so far: it may be the epoch's last
        while True:
            try:
                block = next(blocks)
            except Exception as error:
                if held is not None:
                    yield held
                error.add_note(_IN_PLANNING)
                raise
            if block is None:
                break
            steps, left = self._cut_steps(epoch, block if left is None else left.followed_by(block))
            for task in steps:
                if held is not None:
                    yield held
                held = task
        if left is not None and not self.cut.drop_last:
            if held is not None:
                yield held
            (held,), _ = self._cut_steps(epoch, left, len(left.groups))
        if held is not None:
            yield held._replace(after=Cursor(epoch + 1))
        elif not cursor.window and not cursor.taken:
            hint = "give a smaller batch_size, drop_last=False, or epoch_steps="
            groups = len(left.groups) if left else 0
            raise no_batch(groups, "group", of=self.cut.rows, ranks=self.world_size, hint=hint)

    def _cut_steps(self, epoch: int, block: Block, size: int = 0) -> tuple[list[Task], Block | None]:
        """Return the steps of `size` groups that the block has whole, as if the run's epoch had more; and the groups
        that are left."""
        size = size or self.size
        planned = cut_steps(block, size, self._lanes, self.cut.rank, self.world_size, self._dealing)
        found, stretches = [], iter(block.stretches)
        stretch, passed = next(stretches), 0  # groups of it in earlier steps
        for groups in planned:
            start, missing = stretch.start, size
            while missing > stretch.groups - passed:
                missing -= stretch.groups - passed
                stretch, passed = next(stretches), 0
            passed += missing
            whole = passed == stretch.groups
            after = stretch.after if whole else further(stretch.cursor, passed)
            done = stretch.stop if whole else stretch.start
            found.append(Task(epoch, start, stretch.stop, done, after, groups))
            if whole and (following := next(stretches, None)) is not None:
                stretch, passed = following, 0
        cut = len(planned) * size
        return found, block.after(cut) if cut < len(block.groups) else None

    def share(self, task: Task, rank: int) -> int:
        """Return how many samples begin in the rank's groups of `task`. Only this rank's are known."""
        groups = _of(task)
        return int((groups.firsts == 0).sum()) if self._splits else len(groups.firsts)

    def rank_share(self, tasks: Sequence[Task], course: Course, rank: int) -> RankShare:
        located = [_of(task).located for task in tasks]
        ticks, shards, samples, _ = np.concatenate(located, axis=1)
        return RankShare(ticks, np.array([each.shape[1] for each in located], np.int64), (shards, samples))

    def window_end(self, tick: Tick) -> Tick:
        """Return the end of the window that begins at `tick`."""
        ends = [tick + self.period, (tick // self._samples + 1) * self._samples]
        if self._cut_at:
            ends.append((tick // self._cut_at + 1) * self._cut_at)
        return Tick(min(ends))

    def _steps_of(self, groups: int) -> int:
        """Return how many steps `groups` groups make."""
        return groups // self.size if self.cut.drop_last else -(-groups // self.size)


def failed_in_planning(error: BaseException) -> bool:
    """Return whether a batch of groups could not be planned. It was not made, so nothing is wrong with its samples."""
    return _IN_PLANNING in getattr(error, "__notes__", ())


def _of(task: Task) -> RankGroups:
    assert task.groups is not None
    return task.groups


def _places(groups: GroupSequence, row: int | None) -> int:
    """Return the places in batches of these groups: rows of `row` places, or None: as long as the longest sample."""
    if row is not None or not len(groups):
        return len(groups) * (row or 0)
    longest = np.maximum.reduceat(groups.sizes, groups.edges[:-1])
    return int((longest * np.diff(groups.edges)).sum())
