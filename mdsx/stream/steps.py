"""Cursors, tasks and steps: where a run is, what a step reads, and how epochs are cut into steps."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mdsx.base.sizes import format_count
from mdsx.errors import UsageError
from mdsx.order import MAX_SAMPLES, Busiest, Course, Position, Tick


class Cursor(NamedTuple):
    """Where a run is: the beginning of its next step."""

    epoch: int = 0
    """The epoch of the order."""
    position: Position = Position(0)
    """The position of the next sample; in groups, of the first one of the window."""
    window: int = 0
    """In groups: the number of that window in the epoch."""
    taken: int = 0
    """In groups: how many groups were taken from it."""
    step: int = 0
    """The number of the run's steps so far, skipped ones included."""
    part: int = 0
    """How many micro-batches of the step were returned. A state records the step's beginning."""
    planned: int = 0
    """In groups: the values of all windows of the run before this one, over all ranks."""


START = Cursor()
TICK, SHARD, SAMPLE, LENGTH, FIRST, SIZE = range(6)
"""The rows of `RankGroups.items`."""


class RankGroups(NamedTuple):
    """The groups of one rank in one step: each a row of `Pack`, all samples of `MaxTokens`, or one sample of `Buckets`.

    The rank's samples are in the order of its groups. A split sample occurs once for each of its pieces.
    """

    edges: NDArray[np.int64]
    """[groups + 1]: where the samples of each group begin, and where those of the last one end."""
    items: NDArray[np.int64]
    """[6, samples]: each sample's tick, its shard, its stored number there, the length by which it was grouped, the
    index of its first value in the group (0 unless it was split), and how many of its values the group has."""
    step_samples: int
    """Samples that begin in the step, over all ranks. Of a split sample, only the first piece counts."""
    step_values: int
    """Values of the step over all ranks."""
    bucket: int | None = None
    """In batches of one shape: the number of the step's bucket. Each sample is then a group by itself."""

    @classmethod
    def alone(cls, count: int) -> RankGroups:
        """Return `count` samples of a step that are not grouped: each is a row, and their lengths are unknown."""
        return cls(np.arange(count + 1), np.zeros((SIZE + 1, count), np.int64), 0, 0)

    @property
    def shards(self) -> NDArray[np.int64]:
        """Return the shard of each sample."""
        return self.items[SHARD, :]

    @property
    def firsts(self) -> NDArray[np.int64]:
        """Return the index of each sample's first value in its group."""
        return self.items[FIRST, :]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Return how many values of each sample the groups have."""
        return self.items[SIZE, :]

    def kept(self, places: NDArray[np.int64]) -> RankGroups:
        """Return the groups with only the samples at `places`, which ascend. The step's totals stay."""
        return self._replace(edges=np.searchsorted(places, self.edges), items=self.items[:, places])

    def filled(self, rows: int) -> RankGroups:
        """Return the groups, followed by empty ones up to `rows`."""
        return self._replace(edges=np.pad(self.edges, (0, max(rows + 1 - len(self.edges), 0)), mode="edge"))


class Task(NamedTuple):
    """What one step reads: all samples of the ticks [start, stop), or its groups' samples among them."""

    epoch: int
    """The run's epoch."""
    start: Tick
    stop: Tick
    done: Tick
    """No later step reads before it."""
    after: Cursor
    """Where the run is after the step was returned."""
    groups: RankGroups | None = None
    """This rank's groups, in a run of groups."""
    part: int = 0
    """Which micro-batch of the step it is."""
    skip: bool = False
    """Whether the plan skips the step, so that none of it is read."""
    dropped: int = 0
    """In batches of samples: how many samples of the epoch are dropped after it."""
    amounts: NDArray[np.int64] | None = None
    """In groups: what the step consumes (see accounts.py); only in its last micro-batch."""
    planned: int = 0
    """In groups: the values of all windows of the run before the next step's window."""

    @property
    def ends_step(self) -> bool:
        """Return whether it is the last micro-batch of its step."""
        return not self.after.part


class RankShare(NamedTuple):
    """What one rank reads of successive tasks."""

    ticks: NDArray[np.int64]  # of all tasks, joined, in the order of reading
    counts: NDArray[np.int64]  # of each task
    located: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None  # if planned: shards, and stored numbers there


class PlannedEpoch(NamedTuple):
    """What an epoch of groups has, over all ranks. See `StreamingDataLoader.plan`."""

    epoch: int
    steps: int
    """Batches of each rank."""
    groups: int
    """Packed rows, length-bounded batches, or batches of one shape."""
    samples: int
    values: int
    """Values of all samples together, such as tokens, without those that `oversize="truncate"` cuts off. With
    `mdsx.Buckets`, the samples."""
    fill: float
    """The share of places in the batches that have a value, before `pad_to_multiple_of`; the rest is padding. With
    `mdsx.Buckets`, the number of samples divided by that of complete batches."""
    busiest: Busiest | None = None
    """With `balance`: the cost of the busiest rank over the mean of all ranks, of each step and of each micro-batch."""
    unbalanced: Busiest | None = None
    """The same without `balance`."""


class Steps(Protocol):
    """How the epochs of a run are cut into steps, each one batch, or several micro-batches, on every rank."""

    @property
    def world_size(self) -> int:
        """Return the number of ranks."""
        ...

    @property
    def node(self) -> int:
        """Return how many successive ranks divide their samples by cost, and so read the same shards; 1 without
        balance."""
        ...

    @property
    def step_samples(self) -> int:
        """Return about how many samples a step has over all ranks."""
        ...

    @property
    def period(self) -> int:
        """Return the number of ticks after which the assignment of lanes to ranks repeats."""
        ...

    @property
    def batch_samples(self) -> int | None:
        """Return how many samples or rows a rank's micro-batch has, if a step has several; else None."""
        ...

    def check(self, epoch: int) -> None:
        """Raise UsageError if no pass can begin: an epoch has no batch, or its ticks are too large."""
        ...

    def count(self, cursor: Cursor) -> int:
        """Return the number of steps from `cursor` to the end of the run's epoch. Raise TypeError if it is unknown."""
        ...

    def last_size(self, cursor: Cursor) -> int:
        """Return how many samples the epoch's last step has over all ranks; 0 if none is left, or if it is unknown."""
        ...

    def plan(self, epoch: int, cursor: Cursor) -> PlannedEpoch:
        """Return what a whole epoch of a run at `cursor` has, from a pass over the lengths. Raise UsageError if it has
        no groups, or if a phase begins in it or before it."""
        ...

    def busiest(self, steps: int, micro_batch: int | None = None) -> tuple[Busiest, Busiest] | None:
        """Return the cost of the busiest rank over the mean, with and without balance, in about the first `steps` steps
        and in their micro-batches of that many rows. None without balance."""
        ...

    def tasks(self, cursor: Cursor) -> Generator[Task, None, None]:
        """Yield the tasks from `cursor` to the end of the run's epoch."""
        ...

    def window_end(self, tick: Tick) -> Tick:
        """Return the tick up to which all samples are read before any later one, if reading begins at `tick`."""
        ...

    def share(self, task: Task, rank: int) -> int:
        """Return how many samples of `task` the rank gets."""
        ...

    def rank_share(self, tasks: Sequence[Task], course: Course, rank: int) -> RankShare:
        """Return what `rank` reads of `tasks` of one epoch."""
        ...


def first_task(steps: Steps, cursor: Cursor) -> Task:
    """Return the task that begins at `cursor`."""
    tasks = steps.tasks(cursor)
    try:
        return next(tasks)
    finally:
        tasks.close()


def step_end(steps: Steps, cursor: Cursor) -> Cursor:
    """Return where the step ends in which `cursor` is; `cursor` itself if it is between two steps."""
    while cursor.part:
        cursor = first_task(steps, cursor).after
    return cursor


def no_batch(count: int, noun: str, *, size: int, ranks: int, hint: str) -> UsageError:
    """Return the error that an epoch of `count` samples or groups has no step of `size` of them over all ranks."""
    of = f"{size // ranks} on each of {ranks} ranks" if ranks > 1 and not size % ranks else f"{size}"
    over = f" over {ranks} ranks" if size % ranks else ""
    return UsageError(f"an epoch of {format_count(count, noun)} has no batch of {of}{over}", hint=hint)


def all_excluded() -> UsageError:
    """Return the error that a run has no sample to read."""
    return UsageError("every sample of an epoch is excluded", hint="exclude fewer samples of the mixture")


def last_epoch(samples: int) -> int:
    """Return the last epoch of `samples` whose ticks are below 2^62."""
    return MAX_SAMPLES // max(samples, 1) - 1


def check_epoch(epoch: int, samples: int) -> None:
    """Raise UsageError if the dataset is empty, or the ticks of `epoch` are too large."""
    if not samples:
        raise UsageError("the dataset has no samples, so its epochs have no batch")
    if epoch > (last := last_epoch(samples)):
        raise UsageError("the epoch is too large", found=epoch, expected=f"at most {last}")
