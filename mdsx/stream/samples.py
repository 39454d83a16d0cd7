"""Batches of samples: each step has the next global batch of the order.

No sample is padded or repeated: a tail that does not fill a batch is dropped, or returned as a shorter batch.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from mdsx.base.arguments import check_count
from mdsx.base.process import Counters
from mdsx.errors import UsageError
from mdsx.order import Course, Position, Size, Tick
from mdsx.shards import View
from mdsx.stream.batching import Batcher, Cut, Resumed
from mdsx.stream.packing import Packing
from mdsx.stream.run import Run
from mdsx.stream.stages import Stages
from mdsx.stream.state import OrderIdentity, number_of
from mdsx.stream.steps import START, Cursor, PlannedEpoch, RankShare, Task, check_epoch, no_batch


class Samples:
    """Batches of samples, the default without `batching=`."""

    window: int | None = None
    one_group: bool = False
    counts_tokens: bool = False
    step_samples: int | None = None
    buckets: tuple[Size, ...] | None = None
    fields: Mapping[str, Any] = {}

    @property
    def grouped(self) -> bool:
        return False

    @property
    def groups(self) -> Mapping[str, Any] | None:
        return None

    def with_groups(self, groups: Any) -> Samples:
        if groups is not None:
            raise ValueError("batches of samples")
        return self

    def rows(
        self, batch_size: int | None, *, epoch_steps: int | None, collate: Callable[..., Any] | None, uneven: str
    ) -> int:
        if epoch_steps is not None:
            hint = "for batches of samples, padded or not, give the dataset epoch_samples= instead"
            raise UsageError("epoch_steps needs batching=mdsx.Pack, mdsx.MaxTokens or mdsx.Buckets", hint=hint)
        return given_rows(batch_size, "samples")

    def packing(self, view: View, info: str | None, *, rows: int, transformed: bool) -> Packing | None:
        return None

    def run(self, before: Run, epoch_steps: int | None) -> Run:
        return copy(before)

    def batcher(self, view: View, course: Course, epoch_steps: int | None, *, seed: int, shuffle: bool) -> Samples:
        return self

    def of_first(self, samples: int) -> Samples:
        return self

    def steps(self, course: Course, cut: Cut, counters: Counters | None = None) -> SampleSteps:
        return SampleSteps(
            course.epoch_samples, cut.rows, cut.world_size, cut.drop_last, cut.size, cut.micro, cut.until, cut.skip
        )

    def reached(self, course: Course, cursor: Cursor) -> Tick:
        return Tick(cursor.epoch * course.epoch_samples + cursor.position)

    def progress(self, course: Course, cursor: Cursor) -> int:
        return self.reached(course, cursor)

    def progress_of(self, course: Course, state: Mapping[str, Any]) -> int | None:
        return number_of(state, "epoch") * course.epoch_samples + number_of(state, "position")

    def outlook(self, course: Course) -> None:
        return None

    def in_plan(self, stages: Stages, begun: Cursor | None) -> Samples:
        return self

    def going_on(self, before: Batcher) -> Samples:
        return self

    def state(self, identity: OrderIdentity, course: Course, cursor: Cursor) -> dict[str, Any]:
        return identity.state(cursor.epoch, cursor.position)

    def resumed(self, identity: OrderIdentity, course: Course, state: Mapping[str, Any]) -> Resumed:
        epoch, position, phases = identity.check(state)
        return Resumed(Cursor(epoch, position), phases, self)


SAMPLES = Samples()


@dataclass(frozen=True, slots=True)
class SampleSteps:
    """How an epoch of `samples` is cut into batches of `batch_size` per rank over `world_size` ranks.

    `size`: the samples of a step over all ranks, if the ranks may have different numbers; `micro`: the samples of a
    rank's micro-batch; `until`: the tick from which on steps have another size; `skip`: ranges of skipped steps.
    """

    samples: int
    batch_size: int
    world_size: int
    drop_last: bool
    size: int | None = None
    micro: int | None = None
    until: int | None = None
    skip: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        check_count("batch_size", self.batch_size)
        check_count("world_size", self.world_size)

    @property
    def global_batch_size(self) -> int:
        """Return the samples of one step over all ranks."""
        return self.batch_size * self.world_size if self.size is None else self.size

    @property
    def node(self) -> int:
        return 1

    @property
    def step_samples(self) -> int:
        return self.global_batch_size

    @property
    def period(self) -> int:
        return self.global_batch_size

    @property
    def batch_samples(self) -> int | None:
        return self.micro

    def check(self, epoch: int) -> None:
        check_epoch(epoch, self.samples)
        if self._count(START) == 0:
            hint = "give a smaller batch_size, or drop_last=False"
            raise no_batch(self.samples, "sample", size=self.global_batch_size, ranks=self.world_size, hint=hint)

    def count(self, cursor: Cursor = START) -> int:
        if self.until is not None or self.skip:
            raise TypeError("the number of batches of an epoch is unknown: the plan changes the steps in it")
        return self._count(cursor)

    def _count(self, cursor: Cursor) -> int:
        """Return the number of batches from `cursor` to the end of the epoch, as if no phase began in it."""
        left, size = max(self.samples - cursor.position, 0), self.global_batch_size
        steps, rest = divmod(left, size)
        last = 0 if self.drop_last else self._parts(rest)
        return steps * self._parts(size) + last - cursor.part

    def last_size(self, cursor: Cursor) -> int:
        if self._count(cursor) == 0:
            return 0
        size = self.global_batch_size
        return size if self.drop_last else (self.samples - cursor.position - 1) % size + 1

    def plan(self, epoch: int, cursor: Cursor) -> PlannedEpoch:
        message = "only a loader with batching=mdsx.Pack(...) or mdsx.MaxTokens(...) has a plan"
        raise UsageError(message, hint="len(loader) is its number of batches")

    def busiest(self, steps: int, micro_batch: int | None = None) -> None:
        return None

    def tasks(self, cursor: Cursor) -> Generator[Task, None, None]:
        epoch, end, size, first = cursor.epoch, cursor.position, self.global_batch_size, cursor.epoch * self.samples
        stop, step, begun = Tick(first + end), cursor.step, cursor.part
        enough = size if self.drop_last else 1  # else one sample makes a batch
        while self.samples - end >= enough and (self.until is None or stop < self.until):
            start, before, end = stop, end, Position(min(end + size, self.samples))
            stop = Tick(first + end)
            skip, step = is_in(self.skip, step), step + 1
            after = self.after(epoch, end, step)
            if end < self.samples and self.until is not None and stop >= self.until:  # the next phase cuts the rest
                after = Cursor(epoch, end, step=step)
            dropped = self.samples - end if after.epoch > epoch else 0
            parts = 1 if skip else self._parts(stop - start)
            for part in range(begun, parts - 1):
                yield Task(epoch, start, stop, start, Cursor(epoch, before, step=step - 1, part=part + 1), part=part)
            yield Task(epoch, start, stop, stop, after, part=parts - 1, skip=skip, dropped=dropped)
            begun = 0
        if end == cursor.position and self.samples > end and (self.until is None or stop < self.until):
            rest = self.samples - end  # after a state whose batches were smaller
            yield Task(epoch, stop, stop, stop, Cursor(epoch + 1, step=step), skip=True, dropped=rest)

    def after_batches(self, start: Cursor, batches: int) -> Cursor:
        """Return where a run is `batches` batches after `start`. Raise UsageError if the epoch has fewer."""
        if isinstance(batches, bool) or not isinstance(batches, int) or not 0 <= batches <= self.count(start):
            raise UsageError("the epoch has fewer batches left", found=batches, expected=f"0 to {self.count(start)}")
        stop = min(start.position + batches * self.global_batch_size, self.samples)
        return self.after(start.epoch, Position(stop), start.step + batches) if batches else start

    def after(self, epoch: int, stop: Position, step: int) -> Cursor:
        """Return where a run is after a batch that ended at `stop`; after an epoch's last batch, at the next epoch."""
        enough = self.global_batch_size if self.drop_last else 1  # else one sample makes a batch
        return Cursor(epoch, stop, step=step) if self.samples - stop >= enough else Cursor(epoch + 1, step=step)

    def window_end(self, tick: Tick) -> Tick:
        return tick

    def share(self, task: Task, rank: int) -> int:
        if task.skip:
            return 0
        size, ranks = task.stop - task.start, self.world_size
        share = (rank + 1) * size // ranks - rank * size // ranks
        return share if self.micro is None else min(max(share - task.part * self.micro, 0), self.micro)

    def rank_share(self, tasks: Sequence[Task], course: Course, rank: int) -> RankShare:
        starts, stops = np.array([(task.start, task.start if task.skip else task.stop) for task in tasks]).T
        ticks, counts = course.rank_ticks(starts, stops, rank, self.world_size)
        if self.micro is None:
            return _read(RankShare(ticks, counts), course)
        within = np.arange(len(ticks)) - np.repeat(np.cumsum(counts) - counts, counts)
        own = within // self.micro == np.repeat([task.part for task in tasks], counts)
        return _read(RankShare(ticks[own], np.array([self.share(task, rank) for task in tasks], np.int64)), course)

    def _parts(self, size: int) -> int:
        """Return how many batches each rank gets from a step of `size` samples."""
        return int(size > 0) if self.micro is None else -(-size // (self.world_size * self.micro))


def _read(share: RankShare, course: Course) -> RankShare:
    """Return a share without excluded samples."""
    if course.excluded is None:
        return share
    kept = course.excluded.kept(share.ticks, *course.locate(share.ticks))
    tasks = np.repeat(np.arange(len(share.counts)), share.counts)[kept]
    return RankShare(share.ticks[kept], np.bincount(tasks, minlength=len(share.counts)))


def is_in(ranges: Sequence[tuple[int, int]], step: int) -> bool:
    """Return whether a step is in any of `ranges`, each up to its second number (exclusive)."""
    return bool(ranges) and any(start <= step < stop for start, stop in ranges)  # each step asks; few runs have ranges


def given_rows(batch_size: int | None, what: str) -> int:
    """Return the batch size. Raise UsageError if it is missing. `what`: samples, or packed rows."""
    if batch_size is None:
        raise UsageError("batch_size is missing", hint=f"give the number of {what} per rank, such as batch_size=8")
    check_count("batch_size", batch_size)
    return batch_size
