"""Batches of samples: each step has the next global batch of the order.

No sample is ever padded or repeated: a tail that does not fill a batch is dropped, or handed out short.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from mdsx.base.process import Counters
from mdsx.errors import UsageError, shown
from mdsx.order import Course, Position, Tick
from mdsx.shards import View
from mdsx.stream.batching import Cut, Resumed
from mdsx.stream.packing import Packing
from mdsx.stream.run import Run
from mdsx.stream.state import OrderIdentity
from mdsx.stream.steps import START, Cursor, PlannedEpoch, RankShare, Task, check_epoch, no_batch


class Samples:
    """Batches of samples, which is what a run has without `batching=`."""

    window: int | None = None
    fields: Mapping[str, Any] = {}

    def rows(
        self, batch_size: int | None, *, epoch_steps: int | None, collate: Callable[..., Any] | None, uneven: str
    ) -> int:
        if epoch_steps is not None:
            hint = "for batches of samples, give the dataset epoch_samples="
            raise UsageError("epoch_steps needs batching=", hint=hint)
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
        return SampleSteps(course.epoch_samples, cut.rows, cut.world_size, cut.drop_last)

    def reached(self, course: Course, cursor: Cursor) -> Tick:
        return Tick(cursor.epoch * course.epoch_samples + cursor.position)

    def state(self, identity: OrderIdentity, course: Course, cursor: Cursor) -> dict[str, Any]:
        return identity.state(cursor.epoch, cursor.position)

    def resumed(self, identity: OrderIdentity, course: Course, state: Mapping[str, Any]) -> Resumed:
        epoch, position, phases = identity.check(state)
        return Resumed(Cursor(epoch, position), phases, self)


SAMPLES = Samples()


@dataclass(frozen=True, slots=True)
class SampleSteps:
    """How an epoch of `samples` is cut into batches of `batch_size` per rank over `world_size` ranks."""

    samples: int
    batch_size: int
    world_size: int
    drop_last: bool

    def __post_init__(self) -> None:
        for name in ("batch_size", "world_size"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError(f"{name} must be an integer of at least 1", found=shown(value))

    @property
    def global_batch_size(self) -> int:
        """Return the samples of one step over all ranks."""
        return self.batch_size * self.world_size

    @property
    def node(self) -> int:
        return 1

    @property
    def step_samples(self) -> int:
        return self.global_batch_size

    @property
    def period(self) -> int:
        return self.global_batch_size

    def check(self, epoch: int) -> None:
        check_epoch(epoch, self.samples)
        if self.count() == 0:
            hint = "give a smaller batch_size, or drop_last=False"
            raise no_batch(self.samples, "sample", of=self.batch_size, ranks=self.world_size, hint=hint)

    def count(self, cursor: Cursor = START) -> int:
        left = max(self.samples - cursor.position, 0)
        return left // self.global_batch_size if self.drop_last else -(-left // self.global_batch_size)

    def last_size(self, cursor: Cursor) -> int:
        if self.count(cursor) == 0:
            return 0
        size = self.global_batch_size
        return size if self.drop_last else (self.samples - cursor.position - 1) % size + 1

    def plan(self, epoch: int) -> PlannedEpoch:
        raise UsageError("only a loader with batching= has a plan", hint="len(loader) is its number of batches")

    def busiest(self, steps: int, micro_batch: int | None = None) -> None:
        return None

    def tasks(self, cursor: Cursor) -> Generator[Task, None, None]:
        epoch, end, size, first = cursor.epoch, cursor.position, self.global_batch_size, cursor.epoch * self.samples
        stop = Tick(first + end)
        for _ in range(self.count(cursor)):
            start, end = stop, Position(min(end + size, self.samples))
            stop = Tick(first + end)
            yield Task(epoch, start, stop, stop, self.after(epoch, end))

    def after_batches(self, start: Cursor, batches: int) -> Cursor:
        """Return where a run is `batches` batches after `start`. Raise UsageError if the epoch has fewer."""
        if isinstance(batches, bool) or not isinstance(batches, int) or not 0 <= batches <= self.count(start):
            raise UsageError("the epoch has fewer batches left", found=batches, expected=f"0 to {self.count(start)}")
        stop = min(start.position + batches * self.global_batch_size, self.samples)
        return self.after(start.epoch, Position(stop)) if batches else start

    def after(self, epoch: int, stop: Position) -> Cursor:
        """Return where a run is after a batch that ended at `stop`: after an epoch's last one, at the next epoch."""
        enough = self.global_batch_size if self.drop_last else 1  # else one sample makes a batch
        return Cursor(epoch, stop) if self.samples - stop >= enough else Cursor(epoch + 1)

    def window_end(self, tick: Tick) -> Tick:
        return tick

    def share(self, task: Task, rank: int) -> int:
        size, ranks = task.stop - task.start, self.world_size
        if size == self.batch_size * ranks:
            return self.batch_size
        return (rank + 1) * size // ranks - rank * size // ranks

    def rank_share(self, tasks: Sequence[Task], course: Course, rank: int) -> RankShare:
        starts, stops = np.array([(task.start, task.stop) for task in tasks]).T
        return RankShare(*course.rank_ticks(starts, stops, rank, self.world_size))


def given_rows(batch_size: int | None, what: str) -> int:
    """Return the batch size. Raise UsageError if there is none. `what`: samples, or packed rows."""
    if batch_size is None:
        raise UsageError("batch_size is not given", hint=f"give the number of {what} per rank, such as batch_size=8")
    return batch_size
