"""Count the samples of each component in the batches that this rank returned.

The order alone determines the components, so readers count nothing. Finished tasks are collected, and looked up
together once there are many, or when the totals are requested.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

import numpy as np

from mdsx.loader.reading import Reading
from mdsx.stream import Steps, Task

_AT_ONCE = 2**14  # samples


class ComponentCounts:
    """Counts the samples of the components `names`. Thread-safe."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._counts = np.zeros(len(names), np.int64)
        self._lock = Lock()
        self._tasks: list[Task] = []
        self._samples = 0
        self._of: tuple[Reading, Steps, int] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return ComponentCounts, (self.names,)  # a copy counts from 0

    def add(self, reading: Reading, steps: Steps, rank: int, task: Task, samples: int) -> None:
        """Count the `samples` of a rank's batch."""
        of = self._of
        with self._lock:
            if (
                of is None
                or of[0] is not reading
                or of[1] is not steps
                or self._samples >= _AT_ONCE
                or (self._tasks and self._tasks[0].epoch != task.epoch)
            ):
                self._look_up()
                self._of = reading, steps, rank
            self._tasks.append(task)
            self._samples += samples

    @property
    def totals(self) -> dict[str, int]:
        """Return the samples of each component."""
        with self._lock:
            self._look_up()
            return dict(zip(self.names, self._counts.tolist(), strict=True))

    def _look_up(self) -> None:
        if self._of is None or not self._tasks:
            return
        reading, steps, rank = self._of
        tasks, self._tasks, self._samples = self._tasks, [], 0
        if tasks[0].groups is not None:
            begun = [task.groups.shards[task.groups.firsts == 0] for task in tasks if task.groups is not None]
            shards = np.concatenate(begun)
        else:
            shards, _ = reading.course.locate(steps.rank_share(tasks, reading.course, rank).ticks)
        components = np.searchsorted(reading.view.firsts, shards, side="right") - 1
        self._counts += np.bincount(components, minlength=len(self.names))
