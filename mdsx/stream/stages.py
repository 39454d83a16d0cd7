"""The stages of a run with a plan: what its phases change, and from where on.

A run's *progress* is counted in the unit of the plan's thresholds: ticks for batches of samples, planned values for
groups. The stage is the phase with the largest threshold that the progress has reached. It depends on the progress
alone, so all ranks are in the same stage.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from mdsx.order import Course, MixtureCourse, Tick, Weight, add_phase


@dataclass(frozen=True, slots=True)
class Stages:
    """The thresholds of a plan, ascending from 0, and the settings of each phase."""

    starts: tuple[int, ...]
    grids: tuple[int, ...]
    """The same number for phases with equal groups."""
    weights: tuple[tuple[Weight, ...] | None, ...]
    """The proportions of each phase; None if they do not change."""
    begun: dict[int, Tick] = field(default_factory=dict, compare=False)
    """Where phases begin, by their thresholds, up to where the run was planned. Planning the run again gives the
    same."""

    def at(self, progress: int) -> int:
        """Return the number of the stage."""
        return bisect_right(self.starts, progress) - 1

    def course(self, course: Course, stages: range, tick: Tick) -> Course:
        """Return the course in which `stages` begin, where planned or at `tick`. Stages that never begin are left
        out."""
        if not isinstance(course, MixtureCourse):
            return course
        phases = course.order.phases
        for stage in stages:
            weights = self.weights[stage]
            begin = self.begun.get(self.starts[stage], tick if stage == stages[-1] else None)
            if weights is None or begin is None:
                continue
            if weights != next(had for start, had in reversed(phases) if start <= begin):
                phases = add_phase(phases, begin, weights)
        return course if phases == course.order.phases else course.with_phases(phases)


ONE = Stages((0,), (0,), (None,))
"""A run without a plan."""
