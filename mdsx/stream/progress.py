"""Where a run stands in its epochs: pure bookkeeping, no I/O.

A position counts samples of the epoch's global order that were handed out, over all ranks. Rules:
- handing out an epoch's last batch, a dropped tail included, makes it (epoch + 1, 0);
- `begin`, which `iter()` calls, starts where the run stands; where an epoch was left in its midst, at the next one;
- nothing is ever padded or repeated: a tail that does not fill a batch is dropped, or handed out as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from mdsx.errors import UsageError, shown


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
        """Batches from `position` to the epoch's end."""
        left = max(self.samples - position, 0)
        return left // self.global_batch if self.drop_last else -(-left // self.global_batch)

    def tasks(self, epoch: int, position: int) -> Iterator[Task]:
        """The batches from `position` to the epoch's end."""
        for number in range(self.count(position)):
            start = position + number * self.global_batch
            yield Task(epoch, start, min(start + self.global_batch, self.samples))

    def last_size(self, position: int) -> int:
        """Samples over all ranks of the last batch from `position` on; 0 where there is none."""
        if self.count(position) == 0:
            return 0
        return self.global_batch if self.drop_last else (self.samples - position - 1) % self.global_batch + 1

    def after(self, task: Task) -> tuple[int, int]:
        """(epoch, position) once `task` was handed out."""
        return (task.epoch, task.stop) if self.count(task.stop) else (task.epoch + 1, 0)


class Progress:
    """(epoch, position) of the next sample to hand out, and whether the epoch was entered."""

    def __init__(self) -> None:
        self.epoch = 0
        self.position = 0
        self._entered = False
        self._start = (0, 0)  # of the iteration

    def begin(self, batching: Batching) -> tuple[int, int]:
        """Start an iteration; returns the (epoch, position) at which it starts."""
        if batching.count() == 0:
            raise UsageError(
                f"an epoch of {batching.samples} samples has no batch of {batching.batch_size} on each of "
                f"{batching.world_size} ranks",
                hint="give a smaller batch_size, or drop_last=False",
            )
        if self._entered:
            self.epoch, self.position = self.epoch + 1, 0
        if (self.epoch + 2) * batching.samples >= 2**62:  # positions of the order count on from epoch to epoch
            raise UsageError(
                "the epoch is too far", found=self.epoch, expected=f"below {2**62 // batching.samples - 2}"
            )
        self._entered = False
        self._start = self.epoch, self.position
        return self._start

    def after(self, batches: int, batching: Batching) -> tuple[int, int]:
        """(epoch, position) once `batches` were handed out since the last `begin`, `load` or `set_epoch`."""
        epoch, start = self._start
        if isinstance(batches, bool) or not isinstance(batches, int) or not 0 <= batches <= batching.count(start):
            raise UsageError(
                "so many batches are not left of the epoch", found=batches, expected=f"0 to {batching.count(start)}"
            )
        if batches == 0:
            return epoch, start
        stop = min(start + batches * batching.global_batch, batching.samples)
        return batching.after(Task(epoch, start, stop))

    def hand_out(self, task: Task, batching: Batching) -> None:
        """`task` is what `next()` returns now."""
        self.epoch, self.position = batching.after(task)
        self._entered = self.position > 0

    def end(self) -> None:
        """The epoch has no batch left (a resume into a dropped tail)."""
        self.epoch, self.position, self._entered = self.epoch + 1, 0, False

    def load(self, epoch: int, position: int) -> None:
        """Stand at (epoch, position)."""
        self.epoch, self.position, self._entered = epoch, position, False
        self._start = epoch, position

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is of `epoch`: from its start, or from the loaded position where that is in `epoch`.

        So the usual `set_epoch(epoch)` before each epoch does not undo a resume.
        """
        if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 0:
            raise UsageError("epoch must be an integer of at least 0", found=shown(epoch))
        self.load(epoch, self.position if epoch == self.epoch and not self._entered else 0)
