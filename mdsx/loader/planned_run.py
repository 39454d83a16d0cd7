"""What a run with a plan will read, computed before it starts: steps, and tokens, samples and epochs per phase and
component.

Only lengths are read. The figures are estimates: they assume that components are drawn by their shares and that samples
have their component's mean length. A run of many tokens comes close to them. A phase begins at the end of a window, so
a short phase may be one window longer. The fill of rows is taken from the first window of each phase.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from mdsx.base.sizes import format_count
from mdsx.datasets import sum_of_lengths
from mdsx.errors import UsageError
from mdsx.loader.reading import Reading
from mdsx.loader.run_plan import RunPhase, RunPlan
from mdsx.order import Busiest, MixtureCourse
from mdsx.stream import Outlook

_STEPS = 100  # examined for the busiest rank


class PlannedSource(NamedTuple):
    """What a phase reads of one component."""

    samples: float
    tokens: float | None
    """None in batches of samples."""
    share: float
    """Its share of the phase's tokens, or samples."""
    epochs: float
    """How often the run has read the component, up to the end of the phase."""


class PlannedPhase(NamedTuple):
    """What one phase of a plan reads, over all ranks."""

    start: int
    """Where it begins, in tokens; for batches of samples, in samples."""
    stop: int
    steps: int
    rows: int
    global_batch_size: int
    fill: float
    """The share of places in packed rows that have a value."""
    sources: dict[str, PlannedSource]
    busiest: Busiest | None = None
    """With `balance`: the cost of the busiest rank over the mean of all ranks, of each step and of each micro-batch."""
    unbalanced: Busiest | None = None
    """The same without `balance`."""


class PlannedRun(NamedTuple):
    """What a run with a plan reads, over all ranks. `print` shows it as a table."""

    phases: tuple[PlannedPhase, ...]
    exceeded: tuple[str, ...]
    """A line for each component that exceeds `max_epochs`, with the phase in which it does."""

    @property
    def steps(self) -> int:
        """Return the steps of the whole run."""
        return sum(phase.steps for phase in self.phases)

    @property
    def groups(self) -> int:
        """Return its packed rows, length-bounded batches or samples."""
        return sum(phase.rows for phase in self.phases)

    @property
    def samples(self) -> int:
        """Return the samples that it reads."""
        return round(sum(source.samples for phase in self.phases for source in phase.sources.values()))

    @property
    def values(self) -> int:
        """Return their values, such as tokens; 0 in batches of samples."""
        return round(sum(source.tokens or 0 for phase in self.phases for source in phase.sources.values()))

    @property
    def fill(self) -> float:
        """Return the share of places in the batches that have a value."""
        places = sum(phase.stop - phase.start for phase in self.phases)
        return places / sum((phase.stop - phase.start) / phase.fill for phase in self.phases)

    @property
    def busiest(self) -> Busiest | None:
        """Return the cost of the busiest rank over the mean, in the phase where it is largest; None without balance."""
        return max((phase.busiest for phase in self.phases if phase.busiest is not None), default=None)

    @property
    def unbalanced(self) -> Busiest | None:
        """Return the same without balance."""
        return max((phase.unbalanced for phase in self.phases if phase.unbalanced is not None), default=None)

    def __str__(self) -> str:
        lines = []
        for number, phase in enumerate(self.phases):
            grouped = any(source.tokens is not None for source in phase.sources.values())
            what, fill = ("tokens", f", {phase.fill:.2%} full") if grouped else ("samples", "")
            lines.append(
                f"phase {number}: {phase.start:,} to {phase.stop:,} {what}, {phase.steps:,} steps of "
                f"{phase.global_batch_size:,} {'rows' if grouped else 'samples'}{fill}"
            )
            if phase.busiest is not None and phase.unbalanced is not None:
                lines.append(
                    f"  busiest rank over the mean: {_ratio(phase.busiest)}, {_ratio(phase.unbalanced)} without balance"
                )
            lines.append(f"  {'':24}{'share':>9}{'tokens':>22}{'samples':>20}{'epochs':>10}")
            for name, source in phase.sources.items():
                tokens = "" if source.tokens is None else f"{source.tokens:,.0f}"
                lines.append(
                    f"  {name or 'dataset':24}{source.share:>9.3%}{tokens:>22}{source.samples:>20,.0f}"
                    f"{source.epochs:>10.3f}"
                )
        return "\n".join([*lines, f"{format_count(self.steps, 'step')} in all", *self.exceeded])


def planned_run(reading: Reading, *, world_size: int, until: int | None = None) -> PlannedRun:
    """Return what a run with the plan of `reading` reads. `until`: where the run ends, in the unit of its thresholds;
    by default after one epoch's samples, or with its last phase. Raise UsageError."""
    plan, found = reading.plan, list[PlannedPhase]()
    read = np.zeros(len(reading.names))  # epochs of each component so far
    samples_left = float(reading.course.epoch_samples)
    if until is not None and until <= plan.phases[-1].at:
        raise UsageError(
            "the run ends before its last phase begins", found=until, expected=f"more than {plan.phases[-1].at:,}"
        )
    for number, phase in enumerate(plan.phases):
        source = _Source(reading, phase)
        per_sample = source.tokens_of_sample  # 1 in batches of samples
        following = plan.phases[number + 1].at if number + 1 < len(plan.phases) else until
        if following is None:
            following = phase.at + max(math.ceil(samples_left * per_sample), 1)
        amount = following - phase.at
        samples = amount / per_sample
        samples_left -= samples
        sources, fill = dict[str, PlannedSource](), 1.0 if source.outlook is None else source.outlook.fill
        for component, (name, share) in enumerate(zip(reading.names, source.shares, strict=True)):
            drawn = share * samples
            if source.sizes[component]:
                read[component] += drawn / source.sizes[component]
            if share or not number:
                mean = source.means[component]
                tokens = drawn * mean if source.counts_tokens else None
                part = drawn * mean / amount if source.counts_tokens else share
                sources[name] = PlannedSource(drawn, tokens, part, float(read[component]))
        rows = math.ceil(amount / source.values_of_row)
        size = source.step_rows or phase.spec(reading.spec).cut(0, world_size).size
        steps = math.ceil(rows / size)
        ratios = source.busiest(world_size)
        found.append(PlannedPhase(phase.at, following, steps, rows, size, fill, sources, *ratios))
    return PlannedRun(tuple(found), tuple(_exceeded(found, plan.max_epochs)))


class _Source:
    """What a phase draws from: the components' shares of samples, sizes and mean lengths."""

    def __init__(self, reading: Reading, phase: RunPhase) -> None:
        self._reading, self._groups = reading, phase.batching.groups
        self.counts_tokens = phase.batching.counts_tokens
        view = reading.view
        self.sizes: list[int] = np.diff(np.append(0, np.cumsum(view.counts))[view.firsts]).tolist()
        weights = phase.weights or self.sizes
        total = sum(map(Fraction, weights))
        self.shares = [float(Fraction(weight) / total) if total else 0.0 for weight in weights]
        self.outlook = self._outlook(phase)
        self.means = [self._mean(component) if share else 0.0 for component, share in enumerate(self.shares)]
        self.tokens_of_sample = sum(share * mean for share, mean in zip(self.shares, self.means, strict=True))
        if not self.tokens_of_sample:
            raise UsageError("the phase has no tokens", place=f"the phase from {phase.at:,} on")

    @property
    def values_of_row(self) -> float:
        """Return the values of a row."""
        found = self.outlook
        return found.values / max(found.groups, 1) if found is not None and self.counts_tokens else 1.0

    @property
    def step_rows(self) -> int | None:
        """Return the average samples of a step with buckets; else None."""
        found = self.outlook
        return None if found is None or self.counts_tokens else max(round(found.values / max(found.groups, 1)), 1)

    def busiest(self, world_size: int) -> tuple[Busiest | None, Busiest | None]:
        """Return the cost of the busiest rank over the mean, with and without balance, in some steps of an epoch in
        this phase."""
        reading, course = self._alone
        cut = reading.spec.cut(0, world_size)
        return reading.batcher.steps(course, cut).busiest(_STEPS, cut.micro) or (None, None)

    def _outlook(self, phase: RunPhase) -> Outlook | None:
        """Return an outlook on the first window of an epoch in this phase, if it can be computed."""
        reading, course = self._reading, self._reading.course
        if phase.weights is not None and isinstance(course, MixtureCourse):
            course = course.with_phases(((0, phase.weights),))
        alone = RunPlan((replace(phase, at=0),))
        self._alone = Reading._of(reading.spec, reading.view, course, alone, alone.phases[0]), course
        return self._alone[0].batcher.outlook(course)

    def _mean(self, component: int) -> float:
        """Return the mean length of a component's samples, including added tokens."""
        if self._groups is None or self.outlook is None or not self.counts_tokens:
            return 1.0
        length, excerpt = self._groups["length"], self._reading.view.components[component]
        if isinstance(length, Mapping):  # the user gave the lengths of all components
            return self.outlook.values / max(self.outlook.samples, 1)
        if excerpt is None:
            raise UsageError(f"component {self._reading.names[component]} was removed, and a phase reads it")
        columns = [length] if isinstance(length, str) else length
        found = max(sum_of_lengths(excerpt, column) for column in columns) / self.sizes[component]
        return found + float(self._groups["added"])


def _ratio(found: Busiest) -> str:
    return f"{found.step:.3f}" + ("" if found.micro_batch is None else f" ({found.micro_batch:.3f} a micro-batch)")


def _exceeded(phases: list[PlannedPhase], most: Mapping[str, float]) -> list[str]:
    """Return a line for each component that is read more often than `max_epochs` allows."""
    lines = []
    for name, limit in most.items():
        for number, phase in enumerate(phases):
            source = phase.sources.get(name)
            if source is not None and source.epochs > limit:
                lines.append(
                    f"{name} is read {source.epochs:.3f} times up to phase {number}, at most {limit:g} allowed"
                )
                break
    return lines
