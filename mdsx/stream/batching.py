"""How epochs are cut into batches.

No sample is ever padded or repeated: a tail that does not fill a batch is dropped, or handed out short.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import UsageError, shown
from mdsx.order import MAX_SAMPLES, Course, better_lanes, lane_spread
from mdsx.sizes import format_count
from mdsx.stream.layouts import RankGroups
from mdsx.warn import warn

T = TypeVar("T")

Place = Any
"""Where a run is in its epoch: a position (the samples handed out), or, in groups, a GroupPlace (see groups.py)."""


class GroupStep(NamedTuple):
    """One step of groups: what this rank reads. Positions count over all epochs."""

    located: NDArray[np.int64]  # [3, n] of its groups' samples, joined: position, shard, and number there as stored
    groups: RankGroups
    first: int  # position of its first group's window
    stop: int  # the end of its last group's window
    done: int  # the position before which no later step reads
    next_epoch: int
    after: Any  # the GroupPlace after the step, in that epoch

    @property
    def positions(self) -> NDArray[np.int64]:
        """Return the position of each sample."""
        positions: NDArray[np.int64] = self.located[0]
        return positions


class Task(NamedTuple):
    """One global batch: positions [start, stop) of an epoch, or groups of samples within them."""

    epoch: int
    start: int
    stop: int
    groups: GroupStep | None = None


class RankShare(NamedTuple):
    """What one rank reads of a run of tasks. Positions count over all epochs."""

    positions: NDArray[np.int64]  # of all tasks, joined, in the order of reading
    counts: NDArray[np.int64]  # of each task
    spares: NDArray[np.int64]  # a position of each task, of any rank
    begin: int  # the first position of the epoch
    first: int  # shards are in use from here
    stop: int  # up to here,
    done: int  # and those before here no longer are, once the run was handed out
    located: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None  # if planned: shards, numbers there as stored


class Steps(Protocol):
    """How the epochs of a run are cut into steps, each a batch on every rank: by samples, or by groups of them."""

    @property
    def world_size(self) -> int:
        """Return the number of ranks."""
        ...

    @property
    def step_samples(self) -> int:
        """Return about how many samples a step has over all ranks."""
        ...

    @property
    def divided(self) -> int:
        """Return how many successive positions have their lanes divided among the ranks as a step has."""
        ...

    def check(self, epoch: int) -> None:
        """Raise UsageError if no pass can begin: an epoch has no batch, or its positions are too large."""
        ...

    def start(self, epoch: int, before: Place) -> Place:
        """Return where `epoch` begins, in a run that is at `before`."""
        ...

    def count(self, place: Place) -> int:
        """Return the number of batches from `place` to the end of its epoch. Raise TypeError if that is not known."""
        ...

    def window_end(self, position: int) -> int:
        """Return the position up to which samples are read before any later one, if steps are read from `position`."""
        ...

    def tasks(self, epoch: int, place: Place) -> Iterator[Task]:
        """Yield the batches from there to the epoch's end."""
        ...

    def task(self, epoch: int, place: Place) -> Task:
        """Return the batch that begins at `place`."""
        ...

    def after(self, task: Task) -> tuple[int, Place]:
        """Return (epoch, place) after `task`: after an epoch's last batch, the next epoch's start."""
        ...

    def share(self, task: Task, rank: int) -> int:
        """Return how many samples of `task` are the rank's."""
        ...

    def rank_share(self, tasks: Sequence[Task], course: Course, rank: int) -> RankShare:
        """Return what `rank` reads of `tasks` of one epoch."""
        ...


@dataclass(frozen=True, slots=True)
class Batching:
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
    def global_batch(self) -> int:
        """Samples of one optimizer step over all ranks."""
        return self.batch_size * self.world_size

    @property
    def step_samples(self) -> int:
        return self.global_batch

    @property
    def divided(self) -> int:
        return self.global_batch

    def check(self, epoch: int) -> None:
        """Raise UsageError if no pass can begin: an epoch has no batch, or its positions are too large."""
        if not self.samples:
            raise UsageError("the dataset has no samples, so its epochs have no batch")
        if self.count() == 0:
            hint = "give a smaller batch_size, or drop_last=False"
            raise no_batch(self.samples, "sample", of=self.batch_size, ranks=self.world_size, hint=hint)
        check_epoch(epoch, self.samples)

    def start(self, epoch: int, before: Place) -> int:
        """Return where `epoch` begins: at position 0."""
        return 0

    def window_end(self, position: int) -> int:
        """Return `position`: samples are read in the order of positions."""
        return position

    def count(self, place: int = 0) -> int:
        """Count the batches from there to the end."""
        left = max(self.samples - place, 0)
        return left // self.global_batch if self.drop_last else -(-left // self.global_batch)

    def tasks(self, epoch: int, position: int) -> Iterator[Task]:
        """Yield the batches from there to the epoch's end."""
        size = self.global_batch
        for start in range(position, position + self.count(position) * size, size):
            yield Task(epoch, start, min(start + size, self.samples))

    def task(self, epoch: int, start: int) -> Task:
        """The batch that begins at `start`."""
        return Task(epoch, start, min(start + self.global_batch, self.samples))

    def share(self, task: Task, rank: int) -> int:
        """Return how many samples of `task` are the rank's."""
        size, ranks = task.stop - task.start, self.world_size
        if size == self.batch_size * ranks:
            return self.batch_size
        return (rank + 1) * size // ranks - rank * size // ranks

    def rank_share(self, tasks: Sequence[Task], course: Course, rank: int) -> RankShare:
        """Return what `rank` reads of `tasks` of one epoch."""
        begin = tasks[0].epoch * course.epoch_samples
        starts = np.array([task.start for task in tasks]) + begin
        stops = np.array([task.stop for task in tasks]) + begin
        positions, counts = course.rank_positions(starts, stops, rank, self.world_size)
        first, stop = int(starts[0]), int(stops[-1])
        return RankShare(positions, counts, starts, begin, first, stop, stop)

    def last_size(self, position: int) -> int:
        """Samples over all ranks of the last batch from `position` on; 0 if there is none."""
        if self.count(position) == 0:
            return 0
        return self.global_batch if self.drop_last else (self.samples - position - 1) % self.global_batch + 1

    def after(self, task: Task) -> tuple[int, int]:
        """Return (epoch, position) after `task`: after an epoch's last batch, the next epoch's start."""
        epoch, stop = task.epoch, task.stop
        enough = self.global_batch if self.drop_last else 1  # else one sample makes a batch
        return (epoch, stop) if self.samples - stop >= enough else (epoch + 1, 0)


def in_lists(items: Iterable[T], sizes: Iterable[int]) -> Iterator[list[T]]:
    """Yield `items` in lists of these sizes, the last one maybe shorter. Before an error, yield the items before it."""
    remaining = iter(items)
    for size in sizes:
        found: list[T] = []
        try:
            found.extend(islice(remaining, size))
        except Exception:
            if found:
                yield found
            raise
        if not found:
            return
        yield found


def run_sizes(workers: int, most: int) -> Iterator[int]:
    """Yield how many batches each run has, of those that `workers` get in turn: each gets one at first, then twice as
    many each time."""
    return (min(1 << min(number // workers, 30), most) for number in count())


def no_batch(count: int, noun: str, *, of: int, ranks: int, hint: str) -> UsageError:
    """Return the error that an epoch of `count` samples or groups has no batch of `of` samples on each rank."""
    each = f" on each of {ranks} ranks" if ranks > 1 else ""
    return UsageError(f"an epoch of {format_count(count, noun)} has no batch of {of}{each}", hint=hint)


def last_epoch(samples: int) -> int:
    """Return the last epoch whose positions, counted over all epochs of `samples`, are below 2^62."""
    return MAX_SAMPLES // max(samples, 1) - 1


def check_epoch(epoch: int, samples: int) -> None:
    """Raise UsageError if the positions of `epoch`, counted over all epochs, are too large."""
    if epoch > (last := last_epoch(samples)):
        raise UsageError("the epoch is too far", found=epoch, expected=f"at most {last}")


def warn_of_spread(course: Course, batching: Steps) -> None:
    """Warn if ranks share lanes because the global batch, the lanes and the world size do not fit."""
    if batching.world_size == 1 or course.lanes == 1:
        return
    size = batching.divided
    spread = lane_spread(size, lanes=course.lanes, world_size=batching.world_size)
    best = max(batching.world_size / course.lanes, 1.0)
    if size % course.lanes and spread > best:
        lanes = better_lanes(size, lanes=course.lanes, world_size=batching.world_size)
        warn(
            f"the global batch of {size} samples is no multiple of the {course.lanes} lanes, so the "
            f"ranks share lanes: shards are downloaded about {spread:.2g} times over all nodes instead of {best:.2g}; "
            f"lanes={lanes} would keep each rank on its own"
        )
