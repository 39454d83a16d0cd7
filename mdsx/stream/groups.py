"""How epochs are cut into steps of groups: packed rows, or length-bounded batches.

A step takes the next groups of the epoch's sequence: `rows` for each rank. A thread plans ahead; a plan needs lengths
only. The cursor names a window and the groups taken from it, so a run can continue with another number of rows or
ranks.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.base.process import Counters
from mdsx.base.work import iterate_ahead
from mdsx.order import Balance, Busiest, BusiestRank, Course, Dealing, GroupSequence, Tick
from mdsx.stream.accounts import AMOUNTS, DROPPED, ROWS, SKIPPED, STEPS
from mdsx.stream.batching import Cut
from mdsx.stream.planning import Block, Planner, amounts_of, cut_steps, further, in_parts
from mdsx.stream.samples import is_in
from mdsx.stream.steps import Cursor, PlannedEpoch, RankGroups, RankShare, Task, check_epoch, no_batch

_BLOCKS_AHEAD = 3  # with the one being planned and the one being read
_IN_PLANNING = "mdsx: while the groups of the next batch were planned, from the lengths of samples"
_NOTHING = RankGroups(np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64), 0, 0)


class _Step(NamedTuple):
    """A step of `size` groups over all ranks, as one task, and where it begins.

    With 0 groups, nothing is left of an epoch but what is dropped.
    """

    task: Task
    before: Cursor
    size: int


class GroupSteps:
    """Cuts epochs of groups into steps of `cut.size` groups over all ranks.

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
        self.batch_samples = cut.micro
        self._lanes, self._samples, self._cut_at = course.lanes, course.epoch_samples, course.cut
        self.period = planner.rule.window * course.lanes
        self.step_samples = max(round(cut.size * group_samples), 1)
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
        if self.cut.until is not None or (self.cut.skip and self.epoch_steps is None):
            raise TypeError("the number of batches of an epoch is not known: the plan has other steps in it")
        if self.epoch_steps is not None:
            end = (cursor.step // self.epoch_steps + 1) * self.epoch_steps
            left, at = end - cursor.step, cursor.step
            for start, stop in self.cut.skip:  # in order; they may overlap
                left -= max(min(stop, end) - max(start, at), 0)
                at = max(at, stop)
            return left * self.cut.parts(self.cut.size) - cursor.part
        groups = self.counted.get(cursor.epoch)
        if groups is None:
            raise TypeError(
                "the number of batches of an epoch is not known: it depends on the lengths of all its samples; call "
                "loader.plan(), which counts them, or give the loader epoch_steps="
            )
        first = self.planner.windows(cursor.epoch).first
        return self._batches_of(int(groups[cursor.window - first :].sum()) - cursor.taken) - cursor.part

    def last_size(self, cursor: Cursor) -> int:
        return 0

    def plan(self, epoch: int) -> PlannedEpoch:
        samples = values = places = 0
        counts, rule, busiest = [], self.planner.rule, self._busiest(self.cut.micro)
        every = self.planner.windows(epoch)
        for window in range(every.first, every.end):
            block, _ = self.planner.block(epoch, window)
            counts.append(len(block.groups))
            samples += int((block.groups.firsts == 0).sum())
            values += int(block.groups.sizes.sum())
            places += places_of(block.groups, None if rule.kind == "max_tokens" else rule.capacity)
            if busiest is not None:
                busiest.add(block.groups.lanes, block.groups.sizes, block.groups.edges)
        self.counted[epoch] = np.array(counts, np.int64)
        groups = sum(counts)
        found = (busiest and busiest.found()) or (None, None)
        return PlannedEpoch(epoch, self._batches_of(groups), groups, samples, values, values / max(places, 1), *found)

    def busiest(self, steps: int, micro_batch: int | None = None) -> tuple[Busiest, Busiest] | None:
        found = self._busiest(micro_batch)
        if found is None:
            return None
        every = self.planner.windows(0)
        for window in range(every.first, every.end):
            groups = self.planner.block(0, window)[0].groups
            found.add(groups.lanes, groups.sizes, groups.edges)
            if found.steps >= steps:
                break
        return found.found()

    def _busiest(self, micro_batch: int | None) -> BusiestRank | None:
        if self._dealing is None:
            return None
        return BusiestRank(
            self._dealing, lanes=self._lanes, size=self.cut.size, world_size=self.world_size, micro_batch=micro_batch
        )

    def tasks(self, cursor: Cursor) -> Generator[Task, None, None]:
        """Yield the tasks from there to the end of the run's epoch, or of the plan's stage, planned ahead in a thread.

        A step that the plan skips is one task, and nothing of it is read.
        """
        planner, counters = self.planner, self.counters  # the thread must not hold the loader
        endless, skips, part = self.epoch_steps is not None, self.cut.skip, cursor.part

        blocks = iterate_ahead(planner.blocks(cursor, endless=endless), _BLOCKS_AHEAD, counters)
        steps = self._in_fixed_epochs(cursor, blocks) if endless else self._to_the_end(cursor, blocks)
        try:
            for task, before, size in steps:
                if not size or (skips and is_in(skips, before.step)):
                    amounts = task.amounts if not size else _as_skipped(task.amounts)
                    yield task._replace(groups=_NOTHING, skip=True, amounts=amounts)
                elif self.cut.micro is None:
                    yield task
                else:
                    yield from self._parts(task, before, size, part)
                part = 0
        finally:
            blocks.close()

    def _parts(self, task: Task, before: Cursor, size: int, begun: int) -> Iterator[Task]:
        """Yield the micro-batches of a step of `size` groups, without those that were handed out."""
        groups, parts = _of(task), self.cut.parts(size)
        for part, own in enumerate(in_parts(groups, parts, self.cut.micro or 1)):
            if part < begun:
                continue
            if part < parts - 1:
                after = before._replace(part=part + 1)
                yield task._replace(groups=own, part=part, after=after, done=task.start, amounts=None)
            else:
                yield task._replace(groups=own, part=part)

    def _in_fixed_epochs(self, cursor: Cursor, blocks: Iterator[Block | None]) -> Iterator[_Step]:
        """Yield the steps of an epoch with a fixed number of them."""
        fixed, left, at = self.epoch_steps or 1, None, cursor
        epoch = cursor.step // fixed
        for block in _planned(blocks):
            if block is None:
                continue
            steps, left = self._cut_steps(epoch, block if left is None else left.followed_by(block), at)
            for step in steps:
                yield step
                at = step.task.after
                if at.step // fixed > epoch:
                    return
            if steps and self._is_over(steps[-1], cursor):
                return
        if left is not None:  # the grid ends here
            yield from self._cut_steps(epoch, left, at, len(left.groups))[0]

    def _to_the_end(self, cursor: Cursor, blocks: Iterator[Block | None]) -> Iterator[_Step]:
        """Yield the steps up to the end of the order's epoch, or of the stage."""
        epoch, left, at = cursor.epoch, None, cursor
        held: _Step | None = None  # the last one so far: it may be the epoch's last
        whole = False
        try:
            for block in _planned(blocks):
                if whole := block is None:
                    break
                steps, left = self._cut_steps(epoch, block if left is None else left.followed_by(block), at)
                for step in steps:
                    if held is not None:
                        yield held
                    held, at = step, step.task.after
                if held is not None and self._is_over(held, cursor):
                    yield held
                    return
        except Exception:
            if held is not None:
                yield held
            raise
        if left is not None and not (whole and self.cut.drop_last):
            if held is not None:
                yield held
            (held,), left = self._cut_steps(epoch, left, at, len(left.groups))
        if not whole:  # the grid ends here
            if held is not None:
                yield held
            return
        dropped = np.zeros(0, np.int64) if left is None else self._dropped(left)
        end = left.stretches[-1].after if left is not None else None
        if held is not None:
            task = held.task
            after = Cursor(epoch + 1, step=task.after.step, planned=task.after.planned if end is None else end.planned)
            amounts = task.amounts if end is None or task.amounts is None else task.amounts + dropped
            yield held._replace(task=task._replace(after=after, amounts=amounts))
        elif cursor.window or cursor.taken:
            if left is not None and end is not None:  # of a state whose steps were smaller
                start, after = left.stretches[0].start, Cursor(epoch + 1, step=at.step, planned=end.planned)
                yield _Step(Task(epoch, start, start, start, after, _NOTHING, amounts=dropped), cursor, 0)
        else:
            hint = "give a smaller batch_size, drop_last=False, or epoch_steps="
            groups = len(left.groups) if left else 0
            raise no_batch(groups, "group", size=self.cut.size, ranks=self.world_size, hint=hint)

    def _is_over(self, step: _Step, cursor: Cursor) -> bool:
        """Return whether another stage of the plan than that of `cursor` begins after a step."""
        stages = self.planner.stages
        return stages.at(step.task.after.planned) != stages.at(cursor.planned)

    def _cut_steps(self, epoch: int, block: Block, cursor: Cursor, size: int = 0) -> tuple[list[_Step], Block | None]:
        """Return the steps of `size` groups that the block has whole, as if the run's epoch had more; and the groups
        that are left. The first one is that at `cursor`. Steps that begin in another stage of the plan are not cut."""
        size = size or self.cut.size
        stage, number = self.planner.stages.at(cursor.planned), cursor.step
        amounts = self._with_totals(amounts_of(block, size, self.planner.components), size)
        planned = cut_steps(
            block, size, self._lanes, self.cut.rank, self.world_size, amounts[:, :-AMOUNTS], self._dealing
        )
        found, stretches = list[_Step](), iter(block.stretches)
        stretch, passed = next(stretches), 0  # groups of it in earlier steps
        for groups, amount in zip(planned, amounts, strict=True):
            if stretch.stage != stage:
                break
            start, missing = stretch.start, size
            before = further(stretch.cursor, passed, number)
            while missing > stretch.groups - passed:
                missing -= stretch.groups - passed
                stretch, passed = next(stretches), 0
            passed += missing
            number += 1
            whole = passed == stretch.groups
            after = further(stretch.after, 0, number) if whole else further(stretch.cursor, passed, number)
            done = stretch.stop if whole else stretch.start
            task = Task(epoch, start, stretch.stop, done, after, groups, amounts=amount)
            found.append(_Step(task, before, size))
            if whole and (following := next(stretches, None)) is not None:
                stretch, passed = following, 0
        cut = len(found) * size
        return found, block.after(cut) if cut < len(block.groups) else None

    def _with_totals(self, amounts: NDArray[np.int64], size: int) -> NDArray[np.int64]:
        """Return the amounts of steps of `size` groups, as accounts have them."""
        totals = np.zeros((len(amounts), AMOUNTS), np.int64)
        totals[:, STEPS], totals[:, ROWS] = 1, size
        return np.concatenate((amounts, totals), axis=1)

    def _dropped(self, left: Block) -> NDArray[np.int64]:
        """Return the amounts of groups that make no step."""
        (amounts,) = self._with_totals(amounts_of(left, len(left.groups), self.planner.components), 0)
        return _moved(amounts, DROPPED, steps=0)

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

    def _batches_of(self, groups: int) -> int:
        """Return how many batches of each rank `groups` groups make."""
        steps, rest = divmod(groups, self.cut.size)
        last = self.cut.parts(rest) if rest and not self.cut.drop_last else 0
        return steps * self.cut.parts(self.cut.size) + last


def failed_in_planning(error: BaseException) -> bool:
    """Return whether a batch of groups could not be planned. It was not made, so nothing is wrong with its samples."""
    return _IN_PLANNING in getattr(error, "__notes__", ())


def _planned(blocks: Iterator[Block | None]) -> Iterator[Block | None]:
    """Yield the blocks; say of an error that it comes from planning."""
    try:
        yield from blocks
    except Exception as error:
        error.add_note(_IN_PLANNING)
        raise


def _as_skipped(amounts: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
    """Return the amounts of a step that is skipped."""
    return None if amounts is None else _moved(amounts, SKIPPED)


def _moved(amounts: NDArray[np.int64], to: int, *, steps: int = 1) -> NDArray[np.int64]:
    """Return amounts as those of a step that was not taken. What was dropped stays so."""
    found = np.zeros_like(amounts)
    found[STEPS - AMOUNTS] = steps
    samples, values = amounts[:-AMOUNTS].reshape(2, -1).sum(axis=1).tolist()
    found[DROPPED - AMOUNTS :] = amounts[DROPPED - AMOUNTS :]
    found[to - AMOUNTS] += samples
    found[to + 1 - AMOUNTS] += values
    return found


def _of(task: Task) -> RankGroups:
    assert task.groups is not None
    return task.groups


def places_of(groups: GroupSequence, row: int | None) -> int:
    """Return the places in batches of these groups: rows of `row` places, or None: as long as the longest sample."""
    if row is not None or not len(groups):
        return len(groups) * (row or 0)
    longest = np.maximum.reduceat(groups.sizes, groups.edges[:-1])
    return int((longest * np.diff(groups.edges)).sum())
