"""Cut epochs into steps of groups: packed rows, length-bounded batches, or batches of one shape.

A step takes the next groups of the epoch's sequence: `rows` for each rank, or one that all ranks divide. A thread plans
ahead, from lengths only. The cursor names a window and the number of groups taken from it, so a run can continue with
another number of rows or ranks.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.base.process import Counters
from mdsx.base.work import iterate_ahead
from mdsx.errors import UsageError
from mdsx.order import Balance, Bucketing, Busiest, BusiestRank, Course, Dealing, Grouping, Tick
from mdsx.stream.accounts import AMOUNTS, DROPPED, ROWS, SKIPPED, STEPS
from mdsx.stream.batching import Cut
from mdsx.stream.planning import Block, Planner, amounts_of, cut_groups, cut_steps, further, in_parts
from mdsx.stream.samples import is_in
from mdsx.stream.steps import Cursor, PlannedEpoch, RankGroups, RankShare, Task, all_excluded, check_epoch, no_batch

_BLOCKS_AHEAD = 3  # with the one being planned and the one being read
_LARGE_BLOCKS_AHEAD = 1  # the same for buckets, whose blocks take 50 MB by default
_IN_PLANNING = "mdsx: while the groups of the next batch were planned, from the lengths of samples"
_NOTHING = RankGroups.alone(0)


class GroupSteps:
    """Cuts epochs of groups into steps of `cut.size` groups over all ranks.

    `epoch_steps`: the number of steps in an epoch, which then begins where the previous epoch ended. `drop_short`:
    whether incomplete batches of buckets are dropped. Only the planning process has the planner: a copy in another
    process cannot cut steps.
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
        drop_short: bool = False,
    ) -> None:
        self.cut, self.world_size, self.epoch_steps = cut, cut.world_size, epoch_steps
        self.batch_samples = cut.micro
        self._lanes, self._samples, self._cut_at = course.lanes, course.epoch_samples, course.cut
        self.period = planner.rule.window * course.lanes
        self._divides = isinstance(planner.rule, Bucketing)  # all ranks divide one group
        self._size = 1 if self._divides else cut.size
        self._drop_short = drop_short
        self.step_samples = max(round(self._size * group_samples), 1)
        self._splits = planner.rule.splits
        self._planner: Planner | None = planner
        self.node = 1 if balance is None else balance.node(cut.ranks_per_node, cut.world_size)
        self._dealing = None if balance is None else Dealing(balance, self.node)
        self.counters: Counters | None = None
        self.counted: dict[int, NDArray[np.int64]] = {}
        """epoch -> int64 [windows]: the number of groups in each window, for epochs that were planned completely."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None, "counters": None, "counted": {}}

    @property
    def planner(self) -> Planner:
        """Return the planner of the groups."""
        assert self._planner is not None, "steps are cut in the process that planned them"
        return self._planner

    def check(self, epoch: int) -> None:
        check_epoch(epoch, self._samples)

    def count(self, cursor: Cursor) -> int:
        if self.cut.until is not None or (self.cut.skip and self.epoch_steps is None):
            raise TypeError("the number of batches of an epoch is unknown: the plan changes the steps in it")
        if self._divides and self.cut.micro is not None:
            raise TypeError(
                "the number of batches of an epoch is unknown: steps of different buckets have different numbers of "
                "micro-batches; loader.plan() counts them"
            )
        if self.epoch_steps is not None:
            end = (cursor.step // self.epoch_steps + 1) * self.epoch_steps
            left, at = end - cursor.step, cursor.step
            for start, stop in self.cut.skip:  # in order; they may overlap
                left -= max(min(stop, end) - max(start, at), 0)
                at = max(at, stop)
            return left * self._parts_of(self._size) - cursor.part
        groups = self.counted.get(cursor.epoch)
        if groups is None:
            raise TypeError(
                "the number of batches of an epoch is unknown: it depends on the lengths of all its samples; call "
                "loader.plan(), which counts them, or give the loader epoch_steps="
            )
        first = self.planner.windows(cursor.epoch).first  # above 0 if groups changed in the epoch
        groups = groups[max(cursor.window - first, 0) :]
        taken = min(cursor.taken, int(groups[0])) if len(groups) else 0
        return self._batches_of(int(groups.sum()) - taken) - cursor.part

    def last_size(self, cursor: Cursor) -> int:
        return 0

    def plan(self, epoch: int, cursor: Cursor) -> PlannedEpoch:
        samples = values = places = steps = 0
        counts, rule, busiest = [], self.planner.rule, self._busiest(self.cut.micro)
        every, planned = self.planner.windows(epoch), cursor.planned
        coming = next((start for start in self.planner.stages.starts if start > planned), None)
        for earlier in range(cursor.epoch, epoch if coming is not None else cursor.epoch):
            for window in range(cursor.window if earlier == cursor.epoch else 0, self.planner.windows(earlier).end):
                _check_phase(epoch, planned, coming)
                _, planned = self.planner.block(earlier, window, planned=planned)
        for window in range(every.first, every.end):
            _check_phase(epoch, planned, coming)
            block, after = self.planner.block(epoch, window, planned=planned)
            planned = planned if (epoch, window) < (cursor.epoch, cursor.window) else after
            block = block.before(kept_groups(block, rule, drop_short=self._drop_short))
            counts.append(len(block))
            samples += int((block.firsts == 0).sum())
            values += int(block.sizes.sum())
            places += places_of(block, rule)
            if self._divides:
                steps += sum(map(self.cut.parts, np.diff(block.edges).tolist()))
            if busiest is not None:
                busiest.add(block.lanes, block.sizes, block.edges)
        self.counted[epoch] = np.array(counts, np.int64)
        groups = sum(counts)
        found = (busiest and busiest.found()) or (None, None)
        steps = steps if self._divides else self._batches_of(groups)
        return PlannedEpoch(epoch, steps, groups, samples, values, values / max(places, 1), *found)

    def busiest(self, steps: int, micro_batch: int | None = None) -> tuple[Busiest, Busiest] | None:
        found = self._busiest(micro_batch)
        if found is None:
            return None
        every = self.planner.windows(0)
        for window in range(every.first, every.end):
            block, _ = self.planner.block(0, window)
            found.add(block.lanes, block.sizes, block.edges)
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
        """Yield the tasks up to the end of the run's epoch, or of the plan's stage. A thread plans them ahead.

        A step that the plan skips is one task, and none of it is read.
        """
        planner, counters = self.planner, self.counters  # the thread must not hold the loader
        endless, skips, part, at = self.epoch_steps is not None, self.cut.skip, cursor.part, cursor

        ahead = _LARGE_BLOCKS_AHEAD if self._divides else _BLOCKS_AHEAD
        blocks = iterate_ahead(planner.blocks(cursor, endless=endless), ahead, counters)
        steps = self._in_fixed_epochs(cursor, blocks) if endless else self._to_the_end(cursor, blocks)
        try:
            for task in steps:
                if not task.skip and is_in(skips, at.step):
                    yield task._replace(groups=_NOTHING, skip=True, amounts=_moved(_amounts(task), SKIPPED))
                elif task.skip or self.cut.micro is None:
                    yield task
                else:
                    yield from self._parts(task, at, part)
                part, at = 0, task.after
        finally:
            blocks.close()

    def _parts(self, task: Task, before: Cursor, begun: int) -> Iterator[Task]:
        """Yield the micro-batches of the step at `before` that were not returned yet."""
        groups, parts = _of(task), self.cut.parts(int(_amounts(task)[ROWS - AMOUNTS]))
        for part, own in enumerate(in_parts(groups, parts, self.cut.micro or 1)):
            if part < begun:
                continue
            if part < parts - 1:
                after = before._replace(part=part + 1)
                yield task._replace(groups=own, part=part, after=after, done=task.start, amounts=None)
            else:
                yield task._replace(groups=own, part=part)

    def _in_fixed_epochs(self, cursor: Cursor, blocks: Iterator[Block | None]) -> Iterator[Task]:
        """Yield the steps of an epoch that has a fixed number of steps."""
        fixed, left, at = self.epoch_steps or 1, None, cursor
        epoch, useful = cursor.step // fixed, bool(cursor.window or cursor.taken)
        for found in _planned(blocks):
            if found is None:  # the order's epoch ends
                if not useful:
                    raise _no_whole_batch() if self._drop_short else all_excluded()
                useful = False
                continue
            useful = useful or not self._drop_short
            block = left.followed_by(found) if left else found
            for task in self._cut_steps(epoch, block, at):
                yield task
                at, useful = task.after, useful or not task.skip
                if at.step // fixed > epoch:
                    return
            if self._is_over(at, cursor):
                return
            left = block.after(len(block) - len(block) % self._size)
        if left:  # the grid ends here
            yield from self._cut_steps(epoch, left, at, len(left))

    def _to_the_end(self, cursor: Cursor, blocks: Iterator[Block | None]) -> Iterator[Task]:
        """Yield the steps up to the end of the order's epoch, or of the stage."""
        epoch, left, at = cursor.epoch, None, cursor
        held: Task | None = None  # the latest one: it may be the epoch's last
        whole = False
        try:
            for found in _planned(blocks):
                if whole := found is None:
                    break
                block = left.followed_by(found) if left else found
                for task in self._cut_steps(epoch, block, at):
                    if held is not None and task.skip:  # its groups are dropped
                        both = _amounts(held) + _amounts(task)
                        task = held._replace(after=task.after, planned=task.after.planned, amounts=both)
                    elif held is not None:
                        yield held
                    held, at = task, task.after
                if held is not None and self._is_over(at, cursor):
                    yield held
                    return
                left = block.after(len(block) - len(block) % self._size)
        except Exception:
            if held is not None:
                yield held
            raise
        if left and not (whole and self.cut.drop_last):
            if held is not None:
                yield held
            (held,) = self._cut_steps(epoch, left, at, len(left))
            left, at = None, held.after
        if not whole:  # the grid ends here
            if held is not None:
                yield held
            return
        end = left.stretches[-1].after if left else at
        after = Cursor(epoch + 1, step=at.step, planned=end.planned)
        if self._divides and not (cursor.window or cursor.taken) and (held is None or held.skip):
            raise _no_whole_batch()
        if held is not None:
            amounts = _amounts(held) + self._dropped(left) if left else held.amounts
            yield held._replace(after=after, planned=after.planned, amounts=amounts)
        elif not (cursor.window or cursor.taken):
            hint = "give a smaller batch_size, drop_last=False, or epoch_steps="
            raise no_batch(len(left or ()), "group", size=self.cut.size, ranks=self.world_size, hint=hint)
        elif left:  # after a state whose steps were smaller
            start = left.stretches[0].start
            yield Task(epoch, start, start, start, after, _NOTHING, skip=True, amounts=self._dropped(left))

    def _is_over(self, at: Cursor, cursor: Cursor) -> bool:
        """Return whether `at` is in a later stage of the plan than `cursor`."""
        stages = self.planner.stages
        return stages.at(at.planned) != stages.at(cursor.planned)

    def _cut_steps(self, epoch: int, block: Block, cursor: Cursor, size: int = 0) -> Iterator[Task]:
        """Yield the block's complete steps of `size` groups from `cursor` on, as if the run's epoch continued. Steps
        that begin in another stage of the plan are not cut.

        Steps are created one by one: thousands of long-lived objects would slow down Python's garbage collector.
        """
        if self._divides:
            yield from self._cut_groups(epoch, block, cursor)
            return
        size = size or self.cut.size
        stage, stretches = self.planner.stages.at(cursor.planned), block.stretches
        ends = list(accumulate(stretch.groups for stretch in stretches))
        amounts = self._with_totals(amounts_of(block, size, self.planner.components), size)
        planned = cut_steps(
            block, size, self._lanes, self.cut.rank, self.world_size, amounts[:, :-AMOUNTS], self._dealing
        )
        for number, (groups, amount) in enumerate(zip(planned, amounts, strict=True), 1):
            first = stretches[bisect_right(ends, (number - 1) * size)]
            if first.stage != stage:
                return
            at = bisect_left(ends, number * size)
            last, left, step = stretches[at], ends[at] - number * size, cursor.step + number
            after = further(last.cursor, last.groups - left, step) if left else further(last.after, 0, step)
            done = last.start if left else last.stop
            yield Task(epoch, first.start, last.stop, done, after, groups, amounts=amount, planned=after.planned)

    def _cut_groups(self, epoch: int, block: Block, cursor: Cursor) -> Iterator[Task]:
        """Yield the groups of a window as steps, and then a task for dropped groups, if any."""
        (stretch,) = block.stretches
        if stretch.stage != self.planner.stages.at(cursor.planned):
            return
        count, start = kept_groups(block, self.planner.rule, drop_short=self._drop_short), stretch.start
        amounts = self._with_totals(amounts_of(block, 1, self.planner.components), np.diff(block.edges))
        planned = cut_groups(block.before(count), self.cut.rank, self.world_size)
        for number, (groups, amount) in enumerate(zip(planned, amounts[:count], strict=True), 1):
            left, step = stretch.groups - number, cursor.step + number
            after = further(stretch.cursor, number, step) if left else further(stretch.after, 0, step)
            done = start if left else stretch.stop
            yield Task(epoch, start, stretch.stop, done, after, groups, amounts=amount, planned=after.planned)
        if count < len(block):
            after, dropped = further(stretch.after, 0, cursor.step + count), amounts[count:].sum(axis=0)
            yield Task(
                epoch, start, start, start, after, _NOTHING, skip=True, amounts=_moved(dropped, DROPPED, steps=0)
            )

    def _with_totals(self, amounts: NDArray[np.int64], size: int | NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the amounts of steps of `size` rows, as accounts store them."""
        totals = np.zeros((len(amounts), AMOUNTS), np.int64)
        totals[:, STEPS], totals[:, ROWS] = 1, size
        return np.concatenate((amounts, totals), axis=1)

    def _dropped(self, left: Block) -> NDArray[np.int64]:
        """Return the amounts of groups that do not fill a step."""
        (amounts,) = self._with_totals(amounts_of(left, len(left), self.planner.components), 0)
        return _moved(amounts, DROPPED, steps=0)

    def share(self, task: Task, rank: int) -> int:
        """Return how many samples begin in the rank's groups of `task`. Only this rank's groups are known."""
        groups = _of(task)
        return int((groups.firsts == 0).sum()) if self._splits else groups.items.shape[1]

    def rank_share(self, tasks: Sequence[Task], course: Course, rank: int) -> RankShare:
        items = [_of(task).items for task in tasks]
        ticks, shards, samples = np.concatenate(items, axis=1)[:3]
        return RankShare(ticks, np.array([each.shape[1] for each in items], np.int64), (shards, samples))

    def window_end(self, tick: Tick) -> Tick:
        """Return the end of the window that begins at `tick`."""
        ends = [tick + self.period, (tick // self._samples + 1) * self._samples]
        if self._cut_at:
            ends.append((tick // self._cut_at + 1) * self._cut_at)
        return Tick(min(ends))

    def _batches_of(self, groups: int) -> int:
        """Return how many batches each rank gets from `groups` groups."""
        steps, rest = divmod(groups, self._size)
        last = self._parts_of(rest) if rest and not self.cut.drop_last else 0
        return steps * self._parts_of(self._size) + last

    def _parts_of(self, groups: int) -> int:
        """Return how many batches each rank gets from a step."""
        return 1 if self._divides else self.cut.parts(groups)


def failed_in_planning(error: BaseException) -> bool:
    """Return whether the error was raised while a batch of groups was planned, before any of its samples was read."""
    return _IN_PLANNING in getattr(error, "__notes__", ())


def _planned(blocks: Iterator[Block | None]) -> Iterator[Block | None]:
    """Yield the blocks. Add a note to errors: they come from planning."""
    try:
        yield from blocks
    except Exception as error:
        error.add_note(_IN_PLANNING)
        raise


def _check_phase(epoch: int, planned: int, coming: int | None) -> None:
    """Raise UsageError if the next phase, which begins at `coming`, has begun where so many values are planned."""
    if coming is not None and planned >= coming:
        hint = "call loader.plan() in a later epoch, or count steps with epoch_steps="
        raise UsageError(f"what epoch {epoch} has is unknown: a phase begins at {coming:,}", hint=hint)


def _no_whole_batch() -> UsageError:
    hint = 'give smaller global batch sizes, or tails="keep"'
    return UsageError("no bucket has enough samples in an epoch for a batch", hint=hint)


def _moved(amounts: NDArray[np.int64], to: int, *, steps: int = 1) -> NDArray[np.int64]:
    """Return a step's amounts as skipped or dropped ones. Dropped samples stay dropped."""
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


def _amounts(task: Task) -> NDArray[np.int64]:
    assert task.amounts is not None
    return task.amounts


def kept_groups(block: Block, rule: Grouping | Bucketing, *, drop_short: bool) -> int:
    """Return how many of a window's groups are not dropped. Those come first."""
    short = drop_short and isinstance(rule, Bucketing) and rule.short(block.lanes, block.edges).sum()
    return len(block) - int(short)


def places_of(block: Block, rule: Grouping | Bucketing) -> int:
    """Return how many places these groups have in batches: those of rows, or of samples padded to the longest, or of
    complete batches of a bucket."""
    if isinstance(rule, Bucketing):
        return rule.places(block.lanes)
    if rule.kind != "max_tokens" or not block:
        return len(block) * rule.capacity
    longest = np.maximum.reduceat(block.sizes, block.edges[:-1])
    return int((longest * np.diff(block.edges)).sum())
