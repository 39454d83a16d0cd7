"""A pool of threads that a process does not wait for at its end: a request that stalls must not hold up a Ctrl-C."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import Empty, SimpleQueue
from threading import Lock, Semaphore, Thread
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class _Call(NamedTuple):
    future: Future[Any]
    call: Callable[[], Any]


class Threads(Executor):
    """Up to `most` daemon threads, started as they are needed. They end, each with its call, when this is dropped."""

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._idle = Semaphore(0)  # one for each thread that waits for a call
        self._lock = Lock()
        self._threads: list[Thread] = []
        self._end = weakref.finalize(self, _end, self._calls, self._threads)
        self._end.atexit = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            if not self._end.alive:
                raise RuntimeError("the threads were ended")
            self._calls.put(_Call(future, lambda: fn(*args, **kwargs)))
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._most:
                thread = Thread(target=_work, args=(self._calls, self._idle), name=self._name, daemon=True)
                self._threads.append(thread)
                thread.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads, each when what was asked before is done; `wait` for that."""
        with self._lock:
            self._end()
        for thread in self._threads if wait else ():
            thread.join()


def _end(calls: SimpleQueue[_Call | None], threads: list[Thread]) -> None:
    for _ in threads:
        calls.put(None)


def _work(calls: SimpleQueue[_Call | None], idle: Semaphore) -> None:
    while True:
        try:
            asked = calls.get_nowait()
        except Empty:
            idle.release()
            asked = calls.get()
        if asked is None:
            return
        if asked.future.set_running_or_notify_cancel():
            try:
                result = asked.call()
            except BaseException as error:  # whatever it is, who asked shall see it
                asked.future.set_exception(error)
            else:
                asked.future.set_result(result)
                del result
        del asked  # with what it holds
