"""How epochs are cut into batches.

No sample is ever padded or repeated: a tail that does not fill a batch is dropped, or handed out short.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from mdsx.errors import UsageError, shown
from mdsx.order import Course, better_lanes, lane_spread
from mdsx.warn import warn


class Task(NamedTuple):
    """One global batch: positions [start, stop) of an epoch."""

    epoch: int
    start: int
    stop: int


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

    def count(self, position: int = 0) -> int:
        """Count the batches from there to the end."""
        left = max(self.samples - position, 0)
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
        return (rank + 1) * size // ranks - rank * size // ranks

    def last_size(self, position: int) -> int:
        """Samples over all ranks of the last batch from `position` on; 0 if there is none."""
        if self.count(position) == 0:
            return 0
        return self.global_batch if self.drop_last else (self.samples - position - 1) % self.global_batch + 1

    def after(self, task: Task) -> tuple[int, int]:
        """Return (epoch, position) after `task`: after an epoch's last batch, the next epoch's start."""
        epoch, _, stop = task
        enough = self.global_batch if self.drop_last else 1  # else one sample makes a batch
        return (epoch, stop) if self.samples - stop >= enough else (epoch + 1, 0)


def warn_of_spread(course: Course, batching: Batching) -> None:
    """Warn if ranks share lanes because the global batch, the lanes and the world size do not fit."""
    if batching.world_size == 1 or course.lanes == 1:
        return
    spread = lane_spread(batching.global_batch, lanes=course.lanes, world_size=batching.world_size)
    best = max(batching.world_size / course.lanes, 1.0)
    if batching.global_batch % course.lanes and spread > best:
        lanes = better_lanes(batching.global_batch, lanes=course.lanes, world_size=batching.world_size)
        warn(
            f"the global batch of {batching.global_batch} samples is no multiple of the {course.lanes} lanes, so the "
            f"ranks share lanes: shards are downloaded about {spread:.2g} times over all nodes instead of {best:.2g}; "
            f"lanes={lanes} would keep each rank on its own"
        )
