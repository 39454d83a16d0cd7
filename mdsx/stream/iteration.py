"""One iteration over the rest of an epoch. The run moves when `next()` returns a batch, and at no other moment."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

from mdsx.errors import UsageError
from mdsx.stream.batching import Batching, Task
from mdsx.stream.run import Left, Run
from mdsx.warn import warn

NOTHING = object()
"""What a task leaves on a rank that has no part of it: the iteration hands out the next one."""


class Iteration(Iterator[Any]):
    """Hands out what `_begin` yields. After an exception it continues in the same place.

    `source`: "loader" or "dataset", what the user iterates; `warns`: whether this process warns of batches left out.
    """

    def __init__(self, run: Run, batching: Batching, source: str, *, warns: bool) -> None:
        self.batching = batching
        self._run, self._source, self._warns = run, source, warns
        self._items: Iterator[tuple[Task, Any]] | None = None  # open only while this iteration has the run's pass
        self._epoch = -1  # of the items
        self._taken = self._over = False

    @abstractmethod
    def _begin(self, epoch: int, position: int) -> Iterator[tuple[Task, Any]]:
        """Return the tasks from there to the epoch's end that this process hands out, and their results or NOTHING."""

    def close(self) -> None:
        """Drop what was prepared: `next()` makes the next batch again."""
        self._items = None

    def __next__(self) -> Any:
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
        missed = self.batching.count(left.position)
        message = (
            f"epoch {left.epoch} was left with {missed} of its {self.batching.count()} batches not taken, and "
            f"this is epoch {left.following}; {self._source}.resume() before the `for` takes the batches that are left"
        )
        warn(message, seen_by="process")  # each time: it skips other batches
