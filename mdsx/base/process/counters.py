"""Counters of one loader in one process: bytes from storage and from the cache, retries, evictions.

Code that downloads, retries or evicts calls `count`, which adds to the `Counters` of the loader that the current thread
works for, if any (`work_for`). `counting` takes these counters along to another thread. So each loader of a process is
counted separately, and no layer passes counters on.

Call `count` once for a request, a shard or a chunk of batches, never for each sample: it takes a lock.
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
    """What is counted. The value is its index in the totals."""

    READ_SAMPLES = 0  # for batches
    READ_BYTES = 1  # of these samples, uncompressed
    CACHE_BYTES = 2  # of READ_BYTES: those read from shards in the cache
    DOWNLOADED = 3  # bytes received from storage, as stored
    IN_FLIGHT = 4  # reads of storage in flight: a gauge; the rest are counters
    HITS = 5  # shards that were in the cache when they were opened
    MISSES = 6  # shards downloaded into the cache
    RETRIES = 7
    EVICTIONS = 8


class Counters:
    """Totals, one for each Counter. Only the threads of one process add to them; any may read them."""

    def __init__(self, totals: MutableSequence[int] | memoryview[int] | None = None) -> None:
        """`totals`: where to keep the totals, such as memory shared with another process."""
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
    """Add `number` to a counter of the loader that this thread works for, if any."""
    counters = _working.counters
    if counters is not None:
        counters.add(counter, number)


@contextmanager
def in_flight() -> Iterator[None]:
    """Count a read of storage as in flight."""
    count(Counter.IN_FLIGHT)
    try:
        yield
    finally:
        count(Counter.IN_FLIGHT, -1)


def work_for(counters: Counters | None) -> None:
    """From now on, let `count` in this thread add to `counters`."""
    _working.counters = counters


def counting(call: Callable[[], T]) -> Callable[[], T]:
    """Wrap `call` so that it counts for this thread's current loader, in whichever thread it runs."""
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
