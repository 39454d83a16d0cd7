"""A run: the one object that knows (epoch, position), and what the next pass over the data is. No I/O, no PyTorch.

The position counts samples of the epoch's global order that were handed out, over all ranks. A *pass* is one iteration
(`for batch in loader`); it begins when its first batch is handed out.

| before | the next pass |
|---|---|
| nothing, or a pass that handed out its epoch's last batch (a dropped tail does not count) | the next epoch |
| a state was loaded | the rest of that epoch |
| a pass in which making a batch failed | goes on with that batch, in the same iteration or in a new one |
| a pass that its user left | the next epoch (unshuffled: the same one again); after `resume`, its rest |
| `set_epoch` | that epoch; nothing changes where it is the epoch that comes next anyway |
"""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import ref

from mdsx.errors import UsageError, shown
from mdsx.stream.batching import Batching, Task
from mdsx.warn import warn


class Left(NamedTuple):
    """A pass that its user left, as the next one begins."""

    epoch: int
    position: int
    following: int  # the epoch that the next pass is of


class Run:
    """(epoch, position) of the first sample that was not handed out, and the iteration that handed out the last one.

    Iterations are known by weak references: one that its user dropped has left its pass.
    """

    def __init__(self, *, shuffled: bool = True) -> None:
        self.epoch = 0
        self.position = 0
        self._shuffled = shuffled
        self._unfinished = False  # a pass handed out batches of the epoch, and nothing says that its rest comes next
        self._iteration: ref[Any] | None = None
        self._quit = False  # by Ctrl-C in that iteration, whose traceback may keep it alive
        self._start = (0, 0)  # of the pass
        self._failed: tuple[int, int] | None = None  # place of the batch that could not be made
        self._failures = 0

    def __getstate__(self) -> dict[str, Any]:
        """A copy has no iteration: what comes next here is what its next pass begins with."""
        unfinished = self._unfinished and not self._under_way
        return {**self.__dict__, "_iteration": None, "_quit": False, "_unfinished": unfinished}

    @property
    def coming(self) -> tuple[int, int]:
        """(epoch, position) of the batch that comes next: in the pass that is under way, else in the next one."""
        if self._unfinished and not self._under_way:
            return self._following
        return self.epoch, self.position

    def place(self, iteration: object) -> tuple[int, int]:
        """(epoch, position) of the next batch of `iteration`, which has this pass or would begin the next one."""
        if self._unfinished and not self.has(iteration):
            return self._following
        return self.epoch, self.position

    def has(self, iteration: object) -> bool:
        """Whether `iteration` handed out the last batch, and nothing was loaded or set since."""
        return self._iteration is not None and self._iteration() is iteration

    def left_before(self, iteration: object) -> Left | None:
        """The pass that was left, where batches are skipped because `iteration` begins the next one."""
        if not self._unfinished or not self._shuffled or self.has(iteration):
            return None
        return Left(self.epoch, self.position, self._following[0])

    def check(self, batching: Batching) -> None:
        """Raise UsageError where no pass can begin: an epoch has no batch, or its positions are too large."""
        if batching.count() == 0:
            raise UsageError(
                f"an epoch of {batching.samples} samples has no batch of {batching.batch_size} on each of "
                f"{batching.world_size} ranks",
                hint="give a smaller batch_size, or drop_last=False",
            )
        epoch = self.coming[0]
        if (epoch + 2) * batching.samples >= 2**62:  # positions of the order count on from epoch to epoch
            raise UsageError("the epoch is too far", found=epoch, expected=f"below {2**62 // batching.samples - 2}")

    def hand_out(self, iteration: object, task: Task, batching: Batching) -> bool:
        """`iteration` hands out `task`: the first one begins its pass. Return whether the epoch has more batches."""
        if self._iteration is None or self._iteration() is not iteration:
            self._start = task.epoch, task.start
            self._iteration = ref(iteration)
        self.epoch, self.position = batching.after(task)
        self._unfinished = more = self.position > 0
        if not more:
            self._iteration = None
        self._quit, self._failed, self._failures = False, None, 0
        return more

    def end(self, epoch: int) -> None:
        """`epoch` has no batch left, as a resume into a dropped tail finds."""
        self._move(epoch + 1, 0)

    def failed(self, iteration: object) -> int:
        """The next batch of `iteration` could not be made: its pass stays open. Return how often in a row it failed."""
        place = self.place(iteration)
        self._failures = self._failures + 1 if place == self._failed else 1
        self._failed = place
        if self.has(iteration):
            self._unfinished = False
        return self._failures

    def quit(self, iteration: object) -> None:
        """The user left `iteration` by Ctrl-C while its next batch was made. It can still go on, if it is asked to."""
        self._quit = self.has(iteration)

    def resume(self) -> None:
        """The next pass takes the rest of the epoch that was left; nothing changes where none was."""
        self._unfinished = False

    def load(self, epoch: int, position: int) -> None:
        """The next pass begins at (epoch, position); one that is under way ends."""
        self._move(epoch, position)
        self._start = epoch, position

    def set_epoch(self, epoch: int) -> None:
        """The next pass is `epoch` from its start; nothing changes where that epoch comes next anyway.

        So `set_epoch(epoch)` before each pass undoes neither a resume nor an open pass.
        """
        if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 0:
            raise UsageError("epoch must be an integer of at least 0", found=shown(epoch))
        if epoch != self.coming[0]:
            self.load(epoch, 0)
        elif not self._under_way:
            self._start = self.coming

    def after(self, batches: int, batching: Batching) -> tuple[int, int]:
        """(epoch, position) once `batches` were handed out since the pass began, or `load` or `set_epoch` came."""
        epoch, start = self._start
        if isinstance(batches, bool) or not isinstance(batches, int) or not 0 <= batches <= batching.count(start):
            raise UsageError(
                "so many batches are not left of the epoch", found=batches, expected=f"0 to {batching.count(start)}"
            )
        if batches == 0:
            return epoch, start
        stop = min(start + batches * batching.global_batch, batching.samples)
        return batching.after(Task(epoch, start, stop))

    def mark(self) -> dict[str, Any]:
        """What `back_to` needs."""
        return self.__dict__.copy()

    def back_to(self, mark: dict[str, Any]) -> None:
        """What happened since `mark` did not happen: a batch was not handed out after all."""
        self.__dict__.update(mark)

    @property
    def _under_way(self) -> bool:
        """Whether an iteration is to go on with the pass: its user has it still."""
        return not self._quit and self._iteration is not None and self._iteration() is not None

    @property
    def _following(self) -> tuple[int, int]:
        return (self.epoch + 1, 0) if self._shuffled else (self.epoch, 0)

    def _move(self, epoch: int, position: int) -> None:
        self.epoch, self.position = epoch, position
        self._unfinished, self._iteration, self._quit = False, None, False


def warn_of_left(left: Left, batching: Batching, rank: int, owner: str) -> None:
    """Warn on rank 0 that the pass that begins skips batches; `owner` is what its user calls `resume()` on."""
    if rank:
        return
    missed = batching.count(left.position)
    message = (
        f"epoch {left.epoch} was left with {missed} of its {batching.count()} batches not taken, and "
        f"this is epoch {left.following}; {owner}.resume() before the `for` takes the batches that are left"
    )
    warn(message, seen_by="process")  # each time: other batches are missed
