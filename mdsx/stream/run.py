"""A run, the only object that knows the cursor and the next pass over the data, and the iterations that move it.

A run moves when `next()` returns a batch, and at no other moment. It does no I/O and needs no PyTorch.

The cursor records what all ranks have returned. A *pass* is one iteration (`for batch in loader`). It begins when its
first batch is returned.

| before | the next pass |
|---|---|
| nothing, or a pass that returned its epoch's last batch (a dropped tail does not count) | the next epoch |
| a loaded state | the rest of that epoch |
| a pass in which a batch failed | continues with that batch, in the same iteration or in a new one |
| a pass that its user left | the next epoch (unshuffled: the same one again); after `resume`, its rest |
| `set_epoch` | that epoch; nothing changes if that epoch comes next anyway |
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol
from weakref import ref

from mdsx.base.arguments import check_count
from mdsx.base.process import Owner, Turn
from mdsx.base.warn import warn
from mdsx.errors import UsageError
from mdsx.stream.accounts import Ledger
from mdsx.stream.steps import Cursor, Steps, Task

NOTHING = object()
"""A task's result on a rank that has no part of it: the iteration continues with the next task."""


class Left(NamedTuple):
    """A pass that its user left before the next one began."""

    cursor: Cursor
    following: int  # the epoch of the next pass


class Run:
    """The cursor of the next step to return, and the iteration that returned the previous one.

    References to iterations are weak: when the user drops one, its pass has been left. `epoch_steps`: the steps of each
    epoch, if their number is fixed; an epoch then begins where the previous one stopped.
    """

    def __init__(self, *, shuffled: bool = True, epoch_steps: int | None = None) -> None:
        self.cursor = Cursor()
        self.epoch_steps = epoch_steps
        self.shuffled = shuffled
        self._unfinished = False  # a pass returned batches of the epoch, and the remainder was abandoned
        self._iteration: ref[Iteration] | None = None
        self._quit = False  # Ctrl-C ended that iteration; its traceback may keep it alive
        self.start = self.cursor
        """Where the pass began; or where `load` or `set_epoch` began the next one."""
        self.ledger: Ledger | None = None
        """What the run consumed; a loader sets it."""
        self._failed: Cursor | None = None  # of the batch that failed
        self._failures = 0

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy, which has no iteration: its next pass begins with this run's next batch."""
        unfinished = self._unfinished and not self._under_way
        return {**self.__dict__, "_iteration": None, "_quit": False, "_unfinished": unfinished}

    def epoch_of(self, cursor: Cursor) -> int:
        """Return the run's epoch at a cursor."""
        return cursor.epoch if self.epoch_steps is None else cursor.step // self.epoch_steps

    def start_of(self, epoch: int) -> Cursor:
        """Return where an epoch begins if it is the run's next one."""
        if self.epoch_steps is not None:
            return self.cursor._replace(step=epoch * self.epoch_steps, part=0)
        return Cursor(epoch, step=self.cursor.step, planned=self.cursor.planned)

    @property
    def epoch(self) -> int:
        """Return the run's epoch at its cursor."""
        return self.epoch_of(self.cursor)

    @property
    def coming(self) -> Cursor:
        """Return the cursor of the next batch: in the open pass if there is one, otherwise in the next pass."""
        if self._unfinished and not self._under_way:
            return self._following
        return self.cursor

    @property
    def coming_epoch(self) -> int:
        """Return the run's epoch there."""
        return self.epoch_of(self.coming)

    def cursor_of(self, iteration: object) -> Cursor:
        """Return the cursor of the next batch of `iteration`, in its open pass or in the next one."""
        if self._unfinished and not self.has(iteration):
            return self._following
        return self.cursor

    @property
    def iteration(self) -> Iteration | None:
        """Return the iteration that returned the last batch, with no load or set_epoch since; None if it is gone."""
        return self._iteration() if self._iteration is not None else None

    def has(self, iteration: object) -> bool:
        """Return whether `iteration` returned the last batch, with no load or set_epoch since."""
        return self._iteration is not None and self._iteration() is iteration

    def left_before(self, iteration: object) -> Left | None:
        """Return the pass that was left, if `iteration` would skip the rest of its batches by beginning the next."""
        if not self._unfinished or not self.shuffled or self.epoch_steps is not None or self.has(iteration):
            return None
        return Left(self.cursor, self.epoch_of(self._following))

    def hand_out(self, iteration: Iteration, task: Task) -> bool:
        """Note that `iteration` returns `task`; its first task begins a pass. Return whether the epoch has more."""
        if self._iteration is None or self._iteration() is not iteration:
            self.start = self.cursor_of(iteration)
            self._iteration = ref(iteration)
        self.cursor = task.after
        if self.ledger is not None:
            self.ledger = self.ledger.after(task)
        self._unfinished = more = self.epoch == task.epoch
        if not more:
            self._iteration = None
        self._quit, self._failed, self._failures = False, None, 0
        return more

    def end(self, epoch: int) -> None:
        """End `epoch` without a batch, after a resume into a dropped tail."""
        self._move(self.start_of(epoch + 1))

    def failed(self, iteration: object) -> int:
        """Note that the next batch of `iteration` failed; keep the pass open. Return its failures in a row."""
        cursor = self.cursor_of(iteration)
        self._failures = self._failures + 1 if cursor == self._failed else 1
        self._failed = cursor
        if self.has(iteration):
            self._unfinished = False
        return self._failures

    def quit(self, iteration: object) -> None:
        """Note that Ctrl-C interrupted `iteration` while it made a batch. The user may still continue it."""
        self._quit = self.has(iteration)

    def resume(self) -> None:
        """Make the next pass continue the epoch that was left, if any."""
        self._unfinished = False

    def load(self, cursor: Cursor) -> None:
        """Begin the next pass at `cursor`; end the open one."""
        self._move(cursor)
        self.start = cursor

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass `epoch` from its start. Change nothing if that epoch comes next anyway.

        So `set_epoch(epoch)` before each pass undoes neither a resume nor an open pass.
        """
        check_count("epoch", epoch, least=0)
        if epoch != self.coming_epoch:
            self.load(self.start_of(epoch))
        elif not self._under_way:
            self.start = self.coming

    def mark(self) -> dict[str, Any]:
        """Return an undo point."""
        return self.__dict__.copy()

    def back_to(self, mark: dict[str, Any]) -> None:
        """Undo everything since `mark`, because a batch was not returned after all."""
        self.__dict__.update(mark)

    @property
    def _under_way(self) -> bool:
        """Return whether the pass has an iteration that its user still holds."""
        return not self._quit and self.iteration is not None

    @property
    def _following(self) -> Cursor:
        return self.start_of(self.epoch + 1 if self.shuffled else self.epoch)

    def _move(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self._unfinished, self._iteration, self._quit = False, None, False


class Batches(Protocol):
    """The batches that an iteration returns."""

    @property
    def steps(self) -> Steps:
        """Return how epochs are cut into batches."""
        ...

    def begin(self, iteration: Iteration, cursor: Cursor) -> Iterator[tuple[Task, Any]]:
        """Return this process's tasks up to the epoch's end, with their batches or NOTHING."""
        ...

    def failed(self, error: BaseException, times: int, cursor: Cursor) -> None:
        """Add advice to an error that was raised `times` times in a row for the batch at `cursor`."""
        ...

    def close(self) -> None:
        """Drop what was prepared."""
        ...


class Iteration(Iterator[Any]):
    """Returns batches. After an exception, it continues with the batch that failed.

    Threads may take turns in `next()`. A second thread at the same time gets a UsageError.
    `source`: "loader" or "dataset", what the user iterates; `warns`: whether this process warns about skipped batches;
    `owner`: the process that may iterate, if only one may.
    """

    _items: Iterator[tuple[Task, Any]] | None = None  # open only while this iteration has the run's pass

    def __init__(self, run: Run, batches: Batches, source: str, *, warns: bool, owner: Owner | None = None) -> None:
        self._turn, self._owner = Turn(), owner
        self.batches = batches
        self._run, self._source, self._warns = run, source, warns
        self._epoch = -1  # the epoch of `_items`
        self._taken = self._over = False

    def check(self) -> None:
        """Raise UsageError if another thread is in `next()`."""
        self._turn.check()

    def close(self) -> None:
        """Drop prefetched batches: `next()` makes the next one again. Raise UsageError as `check` does."""
        self.check()
        self._items = None
        self.batches.close()

    def __next__(self) -> Any:
        if self._owner is not None and not self._owner.here:
            raise UsageError("this iteration belongs to the process that began it", hint="begin one in this process")
        self._turn.take()
        try:
            return self._advance()
        finally:
            self._turn.end()

    def _advance(self) -> Any:
        run = self._run
        if self._taken and not self._over and not run.has(self):
            raise UsageError(
                f"this iteration has ended: another one was begun, or a state loaded, on its {self._source}"
            )
        while not self._over:
            before, taken = run.mark(), self._taken
            try:
                if self._items is None:
                    self._items = self._open()
                task, made = next(self._items)
                self._taken, self._over = True, not run.hand_out(self, task)
                if self._over:
                    self.close()
                if made is not NOTHING:
                    return made
            except StopIteration:  # other workers have the rest, or a resume began in a dropped tail
                self._over = True
                if run.epoch_of(run.cursor_of(self)) == self._epoch:
                    run.end(self._epoch)
            except BaseException as error:  # Ctrl-C may also come when the batch is made but not returned
                self._taken, self._over = taken, False
                run.back_to(before)
                self.close()
                if isinstance(error, KeyboardInterrupt):
                    run.quit(self)
                else:
                    self.batches.failed(error, run.failed(self), run.cursor_of(self))
                raise
        self.close()
        raise StopIteration

    def _open(self) -> Iterator[tuple[Task, Any]]:
        if self._warns and (left := self._run.left_before(self)) is not None:
            self._warn_of(left)
        cursor = self._run.cursor_of(self)
        self._epoch = self._run.epoch_of(cursor)
        return self.batches.begin(self, cursor)

    def _warn_of(self, left: Left) -> None:
        epoch, steps = self._run.epoch_of(left.cursor), self.batches.steps
        try:
            total = steps.count(self._run.start_of(epoch))
            missed = f"with {steps.count(left.cursor)} of its {total} batches not taken"
        except TypeError:  # the number of steps of groups may be unknown
            missed = "before its last batch"
        message = (
            f"epoch {epoch} was left {missed}, and "
            f"this is epoch {left.following}; to read the other batches, call {self._source}.resume() before the `for`"
        )
        warn(message, seen_by="process")  # each time: it skips other batches
