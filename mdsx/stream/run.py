"""A run: the only object that knows (epoch, position) and the next pass over the data; and the iterations that move it.

A run moves when `next()` returns a batch, and at no other moment. It does no I/O and needs no PyTorch.

The position counts the samples of the epoch's global order handed out over all ranks. A *pass* is one iteration
(`for batch in loader`); it begins when its first batch is handed out.

| before | the next pass |
|---|---|
| nothing, or a pass that handed out its epoch's last batch (a dropped tail does not count) | the next epoch |
| a loaded state | the rest of that epoch |
| a pass in which a batch failed | continues with that batch, in the same iteration or in a new one |
| a pass that its user left | the next epoch (unshuffled: the same one again); after `resume`, its rest |
| `set_epoch` | that epoch; nothing changes if that epoch comes next anyway |
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from weakref import ref

from mdsx.errors import UsageError, shown
from mdsx.process import Turn
from mdsx.stream.batching import Batching, Place, Steps, Task
from mdsx.warn import warn

NOTHING = object()
"""What a task leaves on a rank that has no part of it: the iteration hands out the next one."""


class Left(NamedTuple):
    """A pass that its user left, once the next one begins."""

    epoch: int
    position: Place
    following: int  # the epoch of the next pass


def _first_position(epoch: int, before: Place) -> Place:
    return 0


class Run:
    """(epoch, position) of the next sample to hand out, and the iteration that handed out the one before.

    References to iterations are weak: one that its user dropped has left its pass. `start(epoch, place)` is where
    `epoch` begins in a run that is at `place`: at position 0 by default. `continuous`: each epoch begins where the one
    before it was left.
    """

    def __init__(
        self,
        *,
        shuffled: bool = True,
        start: Callable[[int, Place], Place] = _first_position,
        continuous: bool = False,
    ) -> None:
        self.epoch = 0
        self.position: Place = start(0, None)
        self._shuffled = shuffled
        self._start_of, self._continuous = start, continuous
        self._unfinished = False  # a pass handed out batches of the epoch, and its rest does not come next
        self._iteration: ref[Any] | None = None
        self._quit = False  # Ctrl-C ended that iteration; its traceback may keep it alive
        self._start: tuple[int, Place] = (0, self.position)  # of the pass
        self._failed: tuple[int, Place] | None = None  # place of the batch that failed
        self._failures = 0

    def __getstate__(self) -> dict[str, Any]:
        """A copy has no iteration: its next pass begins with the next batch of this run."""
        unfinished = self._unfinished and not self._under_way
        return {**self.__dict__, "_iteration": None, "_quit": False, "_unfinished": unfinished}

    @property
    def coming(self) -> tuple[int, Place]:
        """Return (epoch, position) of the next batch: in the open pass if there is one, else in the next."""
        if self._unfinished and not self._under_way:
            return self._following
        return self.epoch, self.position

    def place(self, iteration: object) -> tuple[int, Place]:
        """Return (epoch, position) of the next batch of `iteration`, in its open pass or in the next one."""
        if self._unfinished and not self.has(iteration):
            return self._following
        return self.epoch, self.position

    def has(self, iteration: object) -> bool:
        """Whether `iteration` handed out the last batch, with no load or set_epoch since."""
        return self._iteration is not None and self._iteration() is iteration

    def left_before(self, iteration: object) -> Left | None:
        """Return the pass that was left if batches are skipped when `iteration` begins the next one."""
        if not self._unfinished or not self._shuffled or self._continuous or self.has(iteration):
            return None
        return Left(self.epoch, self.position, self._following[0])

    def hand_out(self, iteration: object, task: Task, batching: Steps) -> bool:
        """Note that `iteration` hands out `task`; its first one begins a pass. Return whether the epoch has more."""
        if self._iteration is None or self._iteration() is not iteration:
            self._start = self.place(iteration)
            self._iteration = ref(iteration)
        self.epoch, self.position = batching.after(task)
        self._unfinished = more = self.epoch == task.epoch
        if not more:
            self._iteration = None
        self._quit, self._failed, self._failures = False, None, 0
        return more

    def end(self, epoch: int) -> None:
        """End `epoch` without a batch, after a resume into a dropped tail."""
        self._move(epoch + 1, self._start_of(epoch + 1, self.position))

    def failed(self, iteration: object) -> int:
        """Note that the next batch of `iteration` failed; keep the pass open. Return its failures in a row."""
        place = self.place(iteration)
        self._failures = self._failures + 1 if place == self._failed else 1
        self._failed = place
        if self.has(iteration):
            self._unfinished = False
        return self._failures

    def quit(self, iteration: object) -> None:
        """Note that Ctrl-C left `iteration` while it made a batch. It can still continue if its user wants."""
        self._quit = self.has(iteration)

    def resume(self) -> None:
        """Make the next pass take the rest of the epoch that was left, if any."""
        self._unfinished = False

    def load(self, epoch: int, position: Place) -> None:
        """Begin the next pass at (epoch, position); end the open one."""
        self._move(epoch, position)
        self._start = epoch, position

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass `epoch` from its start. Change nothing if that epoch comes next anyway.

        So `set_epoch(epoch)` before each pass undoes neither a resume nor an open pass.
        """
        if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 0:
            raise UsageError("epoch must be an integer of at least 0", found=shown(epoch))
        if epoch != self.coming[0]:
            self.load(epoch, self._start_of(epoch, self.position))
        elif not self._under_way:
            self._start = self.coming

    def after(self, batches: int, batching: Batching) -> tuple[int, int]:
        """Return (epoch, position) after `batches` batches since the pass began, or since `load` or `set_epoch`."""
        epoch, start = self._start
        if isinstance(batches, bool) or not isinstance(batches, int) or not 0 <= batches <= batching.count(start):
            raise UsageError(
                "the epoch has fewer batches left", found=batches, expected=f"0 to {batching.count(start)}"
            )
        if batches == 0:
            return epoch, start
        stop = min(start + batches * batching.global_batch, batching.samples)
        return batching.after(Task(epoch, start, stop))

    def mark(self) -> dict[str, Any]:
        """Return an undo point."""
        return self.__dict__.copy()

    def back_to(self, mark: dict[str, Any]) -> None:
        """Undo everything since `mark`, because a batch was not handed out after all."""
        self.__dict__.update(mark)

    @property
    def _under_way(self) -> bool:
        """Whether the pass has an iteration that its user still holds."""
        return not self._quit and self._iteration is not None and self._iteration() is not None

    @property
    def _following(self) -> tuple[int, Place]:
        epoch = self.epoch + 1 if self._shuffled else self.epoch
        return epoch, self._start_of(epoch, self.position)

    def _move(self, epoch: int, position: Place) -> None:
        self.epoch, self.position = epoch, position
        self._unfinished, self._iteration, self._quit = False, None, False


class Iteration(Iterator[Any]):
    """Hands out what `_begin` yields. After an exception it continues in the same place.

    Threads may take turns in `next()`. A second one at the same time gets a UsageError.
    `source`: "loader" or "dataset", what the user iterates; `warns`: whether this process warns of batches left out.
    """

    _items: Iterator[tuple[Task, Any]] | None = None  # open only while this iteration has the run's pass

    def __init__(self, run: Run, batching: Steps, source: str, *, warns: bool) -> None:
        self._turn = Turn()
        self.batching = batching
        self._run, self._source, self._warns = run, source, warns
        self._epoch = -1  # of the items
        self._taken = self._over = False

    @abstractmethod
    def _begin(self, epoch: int, position: Place) -> Iterator[tuple[Task, Any]]:
        """Return the tasks from there to the epoch's end that this process hands out, and their results or NOTHING."""

    def close(self) -> None:
        """Drop what was prepared: `next()` makes the next batch again. Raise UsageError if a thread is in `next()`."""
        self._turn.check()
        self._items = None

    def __next__(self) -> Any:
        self._turn.take()
        try:
            return self._advance()
        finally:
            self._turn.end()

    def _advance(self) -> Any:
        run, taken = self._run, self._taken
        if taken and not self._over and not run.has(self):
            raise UsageError(
                f"this iteration was left: another one was begun, or a state loaded, on its {self._source}"
            )
        while not self._over:
            before = run.mark()
            try:
                if self._items is None:
                    self._items = self._open()
                task, made = next(self._items)
                self._taken, self._over = True, not run.hand_out(self, task, self.batching)
                if self._over:
                    self.close()
                if made is not NOTHING:
                    return made
            except StopIteration:  # other workers have the rest, or there is none after a resume into a dropped tail
                self._over = True
                if run.place(self)[0] == self._epoch:
                    run.end(self._epoch)
            except BaseException as error:  # Ctrl-C may also come when the batch is made but not handed out
                self._taken, self._over = taken, False
                run.back_to(before)
                self.close()
                if isinstance(error, KeyboardInterrupt):
                    run.quit(self)
                else:
                    self._failed(error, run.failed(self))
                raise
        self.close()
        raise StopIteration

    def _failed(self, error: BaseException, times: int) -> None:
        """Add to an error that was raised `times` times in a row for the same batch."""

    def _open(self) -> Iterator[tuple[Task, Any]]:
        if self._warns and (left := self._run.left_before(self)) is not None:
            self._warn_of(left)
        self._epoch, position = self._run.place(self)
        return self._begin(self._epoch, position)

    def _warn_of(self, left: Left) -> None:
        try:
            total = self.batching.count(self.batching.start(left.epoch, left.position))
            missed = f"with {self.batching.count(left.position)} of its {total} batches not taken"
        except TypeError:  # the number of steps of groups may not be known
            missed = "before its last batch"
        message = (
            f"epoch {left.epoch} was left {missed}, and "
            f"this is epoch {left.following}; {self._source}.resume() before the `for` takes the batches that are left"
        )
        warn(message, seen_by="process")  # each time: it skips other batches
