"""Thread pools that all datasets and iterations of a process share.

Rules:
- There are two crews of threads: one for requests that a caller waits for, one for prefetching whole shards. So long
  downloads never delay short requests. A forked child makes its own crews.
- Threads start when there is work. A thread ends after some idle seconds, or as soon as the last user has ended. All
  are daemon threads: neither Ctrl-C nor the interpreter's exit waits for a stalled request.
- Crews are fair: users take turns, and one user may occupy only a multiple of the free threads. So a user whose server
  stalls leaves threads for the others. `Share.map` also works in the caller's thread: it progresses even if no thread
  is free, and may be nested.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from itertools import count
from threading import Condition, Thread
from threading import enumerate as enumerate_threads
from typing import Any, NamedTuple, TypeVar

from mdsx.base.process.children import Owner, at_fork
from mdsx.base.process.counters import counting
from mdsx.base.process.limits import share_arenas

T = TypeVar("T")

_LINGER = 5.0  # seconds after which an idle thread ends


class Bounds(NamedTuple):
    """The most threads of a crew, and how many a user may occupy for each free thread."""

    threads: int
    greed: int


class Kind(NamedTuple):
    """A kind of crew: its bounds for a single iteration, and their minimum for many iterations."""

    name: str
    alone: Bounds
    together: Bounds


REQUESTS = Kind("mdsx-request", alone=Bounds(72, 8), together=Bounds(18, 2))  # alone: a first batch is a wave of 64
PREFETCH = Kind("mdsx-prefetch", alone=Bounds(16, 1), together=Bounds(16, 1))  # alone: 8 downloads at a time


class _Call:
    """A call that is made once: by a thread of the crew or by the thread that waits for it, whichever is first."""

    __slots__ = ("_unmade", "future")

    def __init__(self, call: Callable[[], Any]) -> None:
        self.future: Future[Any] = Future()
        self._unmade = [call]

    def make(self) -> None:
        try:
            call = self._unmade.pop()  # atomic: one thread gets it
        except IndexError:
            return
        if self.future.set_running_or_notify_cancel():
            try:
                self.future.set_result(call())
            except BaseException as error:
                self.future.set_exception(error)
                if not isinstance(error, Exception):  # Ctrl-C in the waiting thread
                    raise


class _Queue:
    """One user's queued calls, and its number of calls in flight."""

    __slots__ = ("busy", "calls")

    def __init__(self) -> None:
        self.calls: deque[_Call] = deque()
        self.busy = 0


class _Crew:
    """The threads of one kind in this process. Private methods are called with the lock held."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.users: set[int] = set()  # numbers of the shares in use; changed without the lock
        self.iterations: set[int] = set()  # users that read a dataset in order
        self._changed = Condition()
        self._waiting: deque[_Queue] = deque()  # queues that are not empty; they take turns
        self._threads = self._busy = self._idle = 0
        share_arenas()

    def submit(self, queue: _Queue, call: _Call) -> None:
        with self._changed:
            queue.calls.append(call)
            if len(queue.calls) == 1:
                self._waiting.append(queue)
            self._rouse()

    def may_begin(self, queue: _Queue) -> bool:
        threads, greed = self._bounds
        return queue.busy < greed * (threads - self._busy)

    def look(self) -> None:
        """Let surplus idle threads end after the users have changed."""
        with self._changed:
            self._changed.notify_all()

    def work(self) -> None:
        while True:
            with self._changed:
                found = self._next()
                if found is None:
                    self._threads -= 1
                    return
                queue, call = found
                queue.busy += 1
                self._busy += 1
                self._rouse()
            with suppress(BaseException):  # the future has the exception
                call.make()
            del call, found  # releases what they refer to
            with self._changed:
                queue.busy -= 1
                self._busy -= 1
            del queue

    @property
    def _bounds(self) -> Bounds:
        alone, together, many = self.kind.alone, self.kind.together, len(self.iterations)
        return Bounds(max(alone.threads // many, together.threads), together.greed) if many > 1 else alone

    def _next(self) -> tuple[_Queue, _Call] | None:
        """Wait for the next call and return it; None if this thread must end."""
        while (queue := self._turn()) is None:
            if self._threads > self._bounds.threads or not self.users:
                return None
            self._idle += 1
            woken = self._changed.wait(_LINGER)
            self._idle -= 1
            if not woken and self._turn() is None:
                return None
        call = queue.calls.popleft()
        self._waiting.remove(queue)
        if queue.calls:
            self._waiting.append(queue)
        return queue, call

    def _turn(self) -> _Queue | None:
        """Return the queue whose turn it is; None if no queue may have another thread."""
        return next(filter(self.may_begin, self._waiting), None)

    def _rouse(self) -> None:
        """Wake or start a thread for the next call, if it may have one. That thread then does the same."""
        if self._turn() is None:
            return
        if self._idle:
            self._changed.notify()
        elif self._threads < self._bounds.threads:
            self._threads += 1
            thread = Thread(target=self.work, name=self.kind.name, daemon=True)
            try:
                thread.start()
            except BaseException as error:
                if thread not in enumerate_threads():
                    self._threads -= 1
                if not isinstance(error, RuntimeError | MemoryError) or not self._threads:  # a signal's, or no thread
                    raise


_crews: dict[Kind, _Crew] = {}
_numbers = count()


class Share(Executor):
    """One user's share of the threads of a kind. It ends when it is shut down or dropped; calls in flight continue.

    `iteration`: the user reads a dataset in order. The more such users there are, the fewer threads each gets.
    """

    def __init__(self, kind: Kind, *, iteration: bool = False) -> None:
        self._crew = _crews.get(kind) or _crews.setdefault(kind, _Crew(kind))
        self._owner = Owner()
        self._queue = _Queue()
        number = next(_numbers)
        self._crew.users.add(number)
        if iteration:
            self._crew.iterations.add(number)
        self._end = weakref.finalize(self, _leave, self._crew, number)
        self._end.atexit = False
        if iteration:
            self._crew.look()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        self._check()
        return self._submit(lambda: fn(*args, **kwargs)).future

    def _submit(self, call: Callable[[], Any]) -> _Call:
        asked = _Call(counting(call))
        self._crew.submit(self._queue, asked)
        return asked

    def map(
        self, fn: Callable[..., T], /, *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[T]:
        """Yield the results in order. Threads start on all calls now; the caller's thread makes the calls that none has
        started."""
        self._check()
        return _results(deque(self._submit(partial(fn, *arguments)) for arguments in zip(*iterables, strict=False)))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End this share. Submitted calls are still made, but nothing waits for them."""
        if self._owner.here:
            self._end()
            self._crew.look()

    @property
    def may_begin(self) -> bool:
        """Whether a thread would start on a call of this user now."""
        return self._crew.may_begin(self._queue)

    def _check(self) -> None:
        if not self._end.alive:
            raise RuntimeError("this share of the threads has ended")
        if not self._owner.here:
            raise RuntimeError("threads of the parent do not exist in a forked process")


def _results(calls: deque[_Call]) -> Iterator[Any]:
    try:
        while calls:
            call = calls.popleft()
            call.make()
            for later in calls:  # instead of waiting for the thread that is making this call
                if call.future.done():
                    break
                later.make()
            yield call.future.result()
    finally:
        for call in calls:
            call.future.cancel()


def _leave(crew: _Crew, number: int) -> None:
    """Must not take a lock: the garbage collector may call this anywhere, even in a thread that holds the lock."""
    crew.users.discard(number)
    crew.iterations.discard(number)


at_fork(after_in_child=_crews.clear)
