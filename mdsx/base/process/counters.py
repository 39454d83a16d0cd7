"""What a process counts for one loader: bytes from storage and from the cache, retries, evictions.

Code that does such a thing calls `count`. It counts for the `Counters` that the current thread works for, if any: those
of the loader whose batches it makes (`work_for`). A call that another thread makes for it counts for the same loader
(`counting`). So two loaders of a process are counted apart, and nothing has to be passed from layer to layer.

Count requests, shards and runs of batches, never samples: each call takes a lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, MutableSequence
from contextlib import contextmanager
from enum import IntEnum
from typing import TypeVar

from mdsx.base.process.children import at_fork

T = TypeVar("T")


class Counter(IntEnum):
    """What is counted; the value is its place among the totals."""

    READ_SAMPLES = 0  # for batches
    READ_BYTES = 1  # uncompressed, of these samples
    CACHE_BYTES = 2  # those of them read from shards in the cache
    DOWNLOADED = 3  # bytes received from storage, as stored
    IN_FLIGHT = 4  # a gauge, the rest are counters: reads of storage in flight
    HITS = 5  # shards opened that were in the cache before
    MISSES = 6  # shards downloaded into the cache
    RETRIES = 7
    EVICTIONS = 8


class Counters:
    """Totals, one for each Counter. Only the threads of one process add to them; any may read them."""

    def __init__(self, totals: MutableSequence[int] | memoryview[int] | None = None) -> None:
        """`totals`: where to keep them, such as memory that is shared with another process."""
        self._totals: MutableSequence[int] | memoryview[int] = [0] * len(Counter) if totals is None else totals

    def add(self, counter: Counter, number: int) -> None:
        with _lock:
            self._totals[counter] += number

    @property
    def totals(self) -> tuple[int, ...]:
        return tuple(self._totals)


class _Working(threading.local):
    counters: Counters | None = None


_working = _Working()
_lock = threading.Lock()


def count(counter: Counter, number: int = 1) -> None:
    """Add `number` to a total of the loader that this thread works for, if it works for one."""
    counters = _working.counters
    if counters is not None:
        counters.add(counter, number)


@contextmanager
def in_flight() -> Iterator[None]:
    """Count a read of storage as under way."""
    count(Counter.IN_FLIGHT)
    try:
        yield
    finally:
        count(Counter.IN_FLIGHT, -1)


def work_for(counters: Counters | None) -> None:
    """From now on, count what this thread does in `counters`."""
    _working.counters = counters


def counting(call: Callable[[], T]) -> Callable[[], T]:
    """Return `call` so that any thread that calls it counts for the loader that this thread works for now."""
    counters = _working.counters
    if counters is None:
        return call

    def counted() -> T:
        before, _working.counters = _working.counters, counters
        try:
            return call()
        finally:
            _working.counters = before

    return counted


def _reset_in_child() -> None:
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held it


at_fork(after_in_child=_reset_in_child)
