"""The stages of a run with a plan: what its phases change, and from where on.

A *progress* is what the thresholds of a plan count: ticks in batches of samples, planned values in groups. A stage is
the phase with the largest threshold that the progress has reached. It follows from the progress alone, so all ranks are
in the same one.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from mdsx.order import Course, MixtureCourse, Tick, Weight, add_phase


@dataclass(frozen=True, slots=True)
class Stages:
    """The thresholds of a plan, ascending, the first 0; and what each phase has."""

    starts: tuple[int, ...]
    grids: tuple[int, ...]
    """The number of each phase's grid: successive phases with equal groups share one."""
    weights: tuple[tuple[Weight, ...] | None, ...]
    """The proportions of each phase; None: those before it."""

    def at(self, progress: int) -> int:
        """Return the number of the stage."""
        return bisect_right(self.starts, progress) - 1

    def end(self, stage: int) -> int | None:
        """Return the progress at which a stage ends; None for the last one."""
        return self.starts[stage + 1] if stage + 1 < len(self.starts) else None

    def course(self, course: Course, stage: int, tick: Tick) -> Course:
        """Return the course in which `stage` begins at `tick`."""
        weights = self.weights[stage]
        if weights is None or not isinstance(course, MixtureCourse):
            return course
        phases = add_phase(course.order.phases, tick, weights)
        return course if phases == course.order.phases else course.with_phases(phases)


ONE = Stages((0,), (0,), (None,))
"""A run without a plan."""
