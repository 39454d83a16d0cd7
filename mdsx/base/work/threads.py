"""Threads that work ahead.

A handover between threads costs more than making a small result. So a thread publishes its results in groups, at the
end of a chunk and before it waits, and the consumer takes all published results at once.
"""

from __future__ import annotations

import atexit
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from threading import Condition, Lock, RLock, Thread, current_thread
from typing import Any, Generic

from mdsx.base.process import Counter, Counters, Owner, work_for
from mdsx.base.work.contract import (
    UNMEASURED,
    Begin,
    Chunks,
    Maker,
    Result,
    Stop,
    Task,
    Waiting,
    chunk_lengths,
    results_of,
)

_LOOK = 5.0  # seconds between checks of a wait whether the threads are alive
_FAREWELL = 2.0  # seconds that threads have to finish their work when the interpreter exits
_NOTHING: Any = object()


class Threads:
    """Runs makers in `count` threads. They end with their run.

    `ahead`: the most prepared results that wait for the consumer; `longest`: the most tasks of a chunk; `together`: how
    many results are published at once; `counters`: count the threads' work; `interrupt`: called when a run is closed,
    ends a wait for the next task; `farewell`: seconds that closing a run waits for the threads. The last thread closes
    the tasks.
    """

    def __init__(
        self,
        begin: Begin,
        count: int = 1,
        *,
        ahead: int,
        longest: int = 1,
        together: int = 1,
        counters: Counters | None = None,
        interrupt: Callable[[], object] = int,
        farewell: float = 0.0,
    ) -> None:
        self._begin, self._count, self._counters = begin, count, counters
        self._interrupt, self._farewell = interrupt, farewell
        self._ahead, self._together = max(ahead, 1), together
        self._longest = longest if count == 1 else min(longest, max(ahead // (2 * count), 1))

    def run(
        self, tasks: Iterable[Task], waiting: Waiting = UNMEASURED, stop: Stop | None = None
    ) -> Generator[tuple[Task, Any], None, None]:
        owner, chunks = Owner(), Chunks(tasks, chunk_lengths(self._count, self._longest))
        line = _Line[Task, Any](chunks, self._ahead, self._together, self._count, self._interrupt)
        if stop is not None:
            stop.calls(line.stop)
        threads = [
            Thread(target=_work, args=(line, self._begin, number, self._counters), name="mdsx-batches", daemon=True)
            for number in range(self._count)
        ]
        try:
            for thread in threads:
                thread.start()
                _alive[thread] = line
            while True:
                with waiting:
                    found = line.take(threads)
                if found is None:
                    return
                while found:
                    yield found.popleft()
                    if not owner.here:
                        raise RuntimeError("the threads belong to the parent: begin another iteration after a fork")
        finally:
            if owner.here:  # a forked child lacks the threads, but may inherit their locked lock
                line.stop()
                self._see_off(threads)

    def start(self) -> None:
        """Do nothing: no thread outlives its run."""

    @property
    def totals(self) -> tuple[int, ...]:
        return (0,) * len(Counter)

    def close(self) -> None:
        """Do nothing: no thread outlives its run."""

    def _see_off(self, threads: list[Thread]) -> None:
        """Wait until the threads have ended. Do not wait in a working thread, where the garbage collector may close a
        run: the others may be waiting for that thread."""
        if self._farewell and current_thread() not in _alive:
            for thread in threads:
                if thread.is_alive():
                    thread.join(self._farewell)


class _Chunk(Generic[Task, Result]):
    """A chunk in progress. `ready`: published (task, result) pairs that the consumer has not taken."""

    __slots__ = ("done", "error", "number", "ready", "tasks")

    def __init__(self, tasks: list[Task], number: int) -> None:
        self.tasks, self.number = tasks, number  # of the first task
        self.ready = deque[tuple[Task, Result]]()
        self.error: BaseException | None = None
        self.done = False


class _Line(Generic[Task, Result]):
    """The chunks of a run in order, shared by its threads and its consumer. The threads hold nothing else of the run.

    The lock is reentrant: the garbage collector may close a run anywhere, even in a thread that holds the lock.
    """

    def __init__(
        self, chunks: Chunks[Task], ahead: int, together: int, threads: int, interrupt: Callable[[], object]
    ) -> None:
        self._chunks, self._ahead, self._together = chunks, ahead, together
        self._working = self._dealing = threads  # threads that have not left; of these, those that keep the tasks open
        self._interrupt = interrupt
        self._planning = Lock()
        lock = RLock()
        self._made, self._room = Condition(lock), Condition(lock)
        self._line = deque[_Chunk[Task, Result]]()
        self._planned = 0  # tasks in chunks so far
        self._handed = self._in_hand = 0  # results handed out; results taken by the consumer, but not handed out
        self._planned_all = self._stopped = False

    # --- in a thread

    def deal(self) -> _Chunk[Task, Result] | None:
        """Return the next chunk, or None at the end."""
        with self._planning:
            if self._planned_all or not self._has_room(self._planned):
                return None
            chunk = _Chunk[Task, Result]([], self._planned)
            try:
                chunk.tasks = next(self._chunks)
            except StopIteration:
                pass
            except BaseException as error:
                chunk.error = error
            with self._made:
                if chunk.tasks or chunk.error:
                    self._line.append(chunk)
                    self._planned += len(chunk.tasks)
                if not chunk.tasks:
                    self._planned_all = chunk.done = True
                    self._made.notify()
            return chunk if chunk.tasks else None

    def make(self, chunk: _Chunk[Task, Result], maker: Maker[Task, Result]) -> BaseException | None:
        """Publish the results of a chunk. Return the error that ends it."""
        found, made, number = deque[tuple[Task, Result]](), None, chunk.number
        try:
            made = maker(chunk.tasks)
            results = results_of(made)
            for task in chunk.tasks:
                if number >= self._handed + self._ahead or len(found) >= self._together:
                    self.publish(chunk, found)
                    found = deque()
                    if not self._has_room(number):
                        return None
                result = next(results, _NOTHING)
                if result is _NOTHING:
                    raise RuntimeError("a maker yielded fewer results than it had tasks")
                found.append((task, result))
                del result
                number += 1
            self.publish(chunk, found, done=True)
        except BaseException as error:  # any exception: the consumer raises it
            self.publish(chunk, found)
            return error
        finally:
            with suppress(BaseException):
                getattr(made, "close", int)()
        return None

    def publish(
        self,
        chunk: _Chunk[Task, Result],
        found: Iterable[tuple[Task, Result]] = (),
        *,
        done: bool = False,
        error: BaseException | None = None,
    ) -> None:
        with self._made:
            if not self._stopped:
                chunk.ready.extend(found)
                chunk.done, chunk.error = done, error
                if self._line[0] is chunk:
                    self._made.notify()

    def leave(self) -> None:
        """Note that a thread has closed its maker. The last one closes the tasks."""
        with self._made:
            self._dealing -= 1
            last = not self._dealing
        if last:
            with suppress(BaseException):
                self._chunks.close()
        with self._made:
            self._working -= 1
            self._made.notify()

    def _has_room(self, number: int) -> bool:
        """Wait until the result of task `number` may be made; return False if the run has ended."""
        if self._stopped or number < self._handed + self._ahead:
            return not self._stopped
        with self._room:
            self._room.wait_for(lambda: self._stopped or number < self._handed + self._ahead)
        return not self._stopped

    # --- in the consumer

    def take(self, threads: list[Thread]) -> deque[tuple[Task, Result]] | None:
        """Wait for the next results and return them; None at the end or when stopped. Raise the error of the next
        task."""
        with self._made:
            self._handed += self._in_hand
            self._in_hand = 0
            self._room.notify_all()
            while True:
                if self._stopped:
                    return None
                alive = any(thread.is_alive() for thread in threads)  # check first: then all they published is visible
                while self._line and self._line[0].done and not self._line[0].ready and not self._line[0].error:
                    self._line.popleft()
                if not self._line and self._planned_all and not self._working:
                    return None
                if self._line and (chunk := self._line[0]).ready:
                    found, chunk.ready = chunk.ready, deque()
                    self._in_hand = len(found)
                    return found
                if self._line and (error := self._line[0].error):
                    self._line[0].error = None
                    try:
                        raise error
                    finally:
                        del error  # it would keep itself alive, and all frames in its traceback
                if not alive:
                    raise RuntimeError("the threads that make the batches ended before their work was done")
                self._made.wait(_LOOK)

    def stop(self) -> None:
        """Have the threads end after their current call. Drop the prepared results."""
        with self._made:
            self._stopped = True
            self._line.clear()
            self._room.notify_all()
            self._made.notify_all()
        self._interrupt()


def _work(line: _Line[Any, Any], begin: Begin, number: int, counters: Counters | None) -> None:
    """Process chunks of a run until it ends. Holds no reference to the run, whose end stops this thread."""
    work_for(counters)
    maker: Maker[Any, Any] | None = None
    failed: BaseException | None = None
    chunk: _Chunk[Any, Any] | None = None
    try:
        maker = begin(number)
    except BaseException as error:
        failed = error
    while maker is not None and failed is None and (chunk := line.deal()) is not None:
        failed = line.make(chunk, maker)
    try:
        if maker is not None:
            maker.close()  # before the consumer gets an error
    except BaseException as error:
        failed = failed or error
    if failed is not None and (chunk := chunk or line.deal()) is not None:
        line.publish(chunk, error=failed)
    line.leave()


_alive: weakref.WeakKeyDictionary[Thread, _Line[Any, Any]] = weakref.WeakKeyDictionary()


@atexit.register
def _finish() -> None:
    """Give the threads a moment to finish: PyTorch aborts a process that exits while a thread runs PyTorch code."""
    deadline = time.monotonic() + _FAREWELL
    for thread, line in list(_alive.items()):
        if thread.is_alive():  # false in a forked child
            line.stop()
            thread.join(max(deadline - time.monotonic(), 0))
