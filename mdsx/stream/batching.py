"""Batchings: how samples become batches. A run gets one as `batching=`, and applies it to the samples that it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from mdsx.base.process import Counters
from mdsx.errors import UsageError, shown
from mdsx.order import Course, Phases, Size, Tick
from mdsx.shards import View
from mdsx.stream.packing import Packing
from mdsx.stream.run import Run
from mdsx.stream.stages import Stages
from mdsx.stream.state import OrderIdentity
from mdsx.stream.steps import Cursor, Steps


class Cut(NamedTuple):
    """One rank's part of the steps."""

    size: int
    """Samples or groups of a step over all ranks."""
    rank: int
    world_size: int
    drop_last: bool
    micro: int | None = None
    """Samples or rows of a micro-batch; None: a step is one batch."""
    until: int | None = None
    """The progress of the run (see `Batcher.progress`) from which on steps are cut differently."""
    skip: tuple[tuple[int, int], ...] = ()
    """Ranges of the run's steps that are left out, each up to its second number (exclusive)."""
    ranks_per_node: int | None = None
    """How many successive ranks a node has; None if unknown, or if the nodes differ."""

    @property
    def rows(self) -> int:
        """Return the most samples or groups of a batch."""
        return -(-self.size // self.world_size) if self.micro is None else self.micro

    def parts(self, size: int) -> int:
        """Return how many batches each rank gets from a step of `size` samples or groups."""
        return 1 if self.micro is None else -(-size // (self.world_size * self.micro))


@runtime_checkable
class Batching(Protocol):
    """How samples become batches. A value that the user gives; it knows no dataset."""

    @property
    def window(self) -> int | None:
        """Return the window that the user gave; None without windows, or for the default."""
        ...

    @property
    def grouped(self) -> bool:
        """Return whether samples are grouped: into rows, length-bounded batches or buckets."""
        ...

    @property
    def counts_tokens(self) -> bool:
        """Return whether a plan's thresholds count values, such as tokens; otherwise they count samples."""
        ...

    @property
    def step_samples(self) -> int | None:
        """Return the most samples in a step over all ranks, if the batching determines it and not the loader."""
        ...

    @property
    def buckets(self) -> tuple[Size, ...] | None:
        """Return the value of "bucket" for each bucket; None without buckets."""
        ...

    @property
    def groups(self) -> Mapping[str, Any] | None:
        """Return what the groups depend on, as JSON; None without groups."""
        ...

    def with_groups(self, groups: Any) -> Batching:
        """Return this batching with the groups of another one. Raise ValueError, TypeError or UsageError if they do not
        fit."""
        ...

    @property
    def one_group(self) -> bool:
        """Return whether a rank's batch is one group, so that the user gives no batch size."""
        ...

    def rows(
        self, batch_size: int | None, *, epoch_steps: int | None, collate: Callable[..., Any] | None, uneven: str
    ) -> int:
        """Return the samples or rows of a rank's batch. Raise UsageError for arguments that contradict each other."""
        ...

    def packing(self, view: View, info: str | None, *, rows: int, transformed: bool) -> Packing | None:
        """Return the object that packs or pads values; None if batches are columns of samples. `rows`: rows in a rank's
        batch; `transformed`: whether samples go through a transform first."""
        ...

    def run(self, before: Run, epoch_steps: int | None) -> Run:
        """Return a loader's run over a dataset whose run is `before`, at the same position."""
        ...

    def batcher(self, view: View, course: Course, epoch_steps: int | None, *, seed: int, shuffle: bool) -> Batcher:
        """Return the batcher for the samples of `view`. Raise UsageError if `course` cannot be batched like this."""
        ...

    def of_first(self, samples: int) -> Batching:
        """Return this batching for the first `samples` of the dataset."""
        ...


def given_batching(batching: object) -> Batching:
    """Return what the user gave as a batching. Raise UsageError if it is none."""
    if isinstance(batching, type) or not isinstance(batching, Batching):
        message = "batching must be an mdsx.Pack, mdsx.MaxTokens, mdsx.Buckets or mdsx.Pad"
        raise UsageError(message, found=shown(batching))
    return batching


class Batcher(Protocol):
    """A batching over the samples of a view, with the window in force."""

    @property
    def grouped(self) -> bool:
        """Return whether samples are grouped: into rows, length-bounded batches or buckets."""
        ...

    @property
    def counts_tokens(self) -> bool:
        """Return whether a run's progress counts values, such as tokens; otherwise it counts samples."""
        ...

    @property
    def fields(self) -> Mapping[str, Any]:
        """Return what the steps depend on, besides the order and the cut, as JSON. It must be equal on all ranks."""
        ...

    def steps(self, course: Course, cut: Cut, counters: Counters | None = None) -> Steps:
        """Return how the epochs of `course` are cut; an equal object as long as nothing changes. `counters`: for the
        planning thread."""
        ...

    def reached(self, course: Course, cursor: Cursor) -> Tick:
        """Return the first tick whose order may still change in a run at `cursor`."""
        ...

    def progress(self, course: Course, cursor: Cursor) -> int:
        """Return the run's progress in the unit of a plan's thresholds: ticks; in groups, the values planned before the
        window; in buckets, the samples."""
        ...

    def progress_of(self, course: Course, state: Mapping[str, Any]) -> int | None:
        """Return the progress of a state; None if the state lacks it."""
        ...

    def outlook(self, course: Course) -> Outlook | None:
        """Return the outlook on the order's first window; None without groups. It reads lengths."""
        ...

    def in_plan(self, stages: Stages, begun: Cursor | None) -> Batcher:
        """Return this batcher in a run with a plan. `begun`: where its groups begin; None if that is known already."""
        ...

    def going_on(self, before: Batcher) -> Batcher:
        """Return this batcher with the windows of the previous one, whose groups are equal."""
        ...

    def state(self, identity: OrderIdentity, course: Course, cursor: Cursor) -> dict[str, Any]:
        """Return the state of a run at `cursor`."""
        ...

    def resumed(self, identity: OrderIdentity, course: Course, state: Mapping[str, Any]) -> Resumed:
        """Return where a run continues with a state. Raise StateError, which names the field."""
        ...


class Outlook(NamedTuple):
    """What the groups of one window look like."""

    samples: int
    groups: int
    values: int
    fill: float
    """The share of places in the groups that have a value."""


class Resumed(NamedTuple):
    """A resumed state: the cursor, the phases of a mixture, and the batcher with the state's window."""

    cursor: Cursor
    phases: Phases
    batcher: Batcher
