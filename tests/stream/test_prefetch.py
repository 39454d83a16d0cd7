"""Prefetch downloads shards in the order of need, within its bounds, and leaks nothing.

The cache and the network are not tested here: shards go into a list with limited room.
"""

from __future__ import annotations

import gc
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from mdsx import TransportError
from mdsx.shards import Announcer, View
from mdsx.shards.needs import CacheAnnouncer
from mdsx.storage.cache import Needs, Verdict
from mdsx.stream.machine import Pace, ShardMachine
from mdsx.stream.prefetch import Prefetcher

SHARDS, SAMPLES = 10, 100  # shard k of epoch e is needed from position 100 e + 10 k on
PATIENCE = 30.0


class Brought:
    """A substitute for the shards: it keeps downloaded shards in order while there is room."""

    def __init__(self, room: int = 1000) -> None:
        self.shards: list[int] = []
        self.needed_in: list[float] = []
        self.room = room
        self.refused = 0
        self.closed: list[int] = []
        self.touched: list[tuple[int, float]] = []
        self.damaged: set[int] = set()
        self.held: threading.Event | None = None  # nothing arrives before it
        self.elsewhere: set[int] = set()  # another process brings these
        self.changed = threading.Condition()

    cache_folders: ClassVar[dict[str, object]] = {}  # it belongs to no dataset

    def announcer(self, mine: NDArray[np.bool_]) -> Announcer:
        return CacheAnnouncer({})

    def close(self, shard: int) -> None:
        self.closed.append(shard)

    def touch(self, shard: int, needed_in: float) -> None:
        self.touched.append((shard, needed_in))

    def is_being_made(self, shard: int) -> bool:
        return shard in self.elsewhere

    def bring(self, shard: int, *, needed_in: float, needs: Needs, received: Callable[[int], None]) -> Verdict | None:
        assert not needs  # these shards belong to no dataset
        received(1000)
        if self.held is not None:
            assert self.held.wait(PATIENCE)
        with self.changed:
            self.changed.notify_all()
            if shard in self.damaged:
                self.damaged.discard(shard)
                raise TransportError("lost")
            if len(self.shards) >= self.room:
                self.refused += 1
                return Verdict.NO_ROOM
            self.shards.append(shard)
            self.needed_in.append(needed_in)
            return None

    def wait(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.shards) >= count, PATIENCE), self.shards


def next_needs(position: int, shards: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Shard k is drawn on in positions 10 k up to 10 k + 10 of each epoch."""
    starts = 10 * (np.arange(SHARDS) if shards is None else shards)
    place = position % SAMPLES
    later = np.where(starts + 10 > place, np.maximum(starts, place), starts + SAMPLES)
    return later + position - place


def prefetcher(brought: Brought, look_ahead: int = 3000, twice: float = math.inf) -> Prefetcher:
    sizes, mine = np.full(SHARDS, 1000), np.ones(SHARDS, np.bool_)
    machine = ShardMachine(
        next_needs, sizes, mine, Pace(), samples=SAMPLES, look_ahead=look_ahead, share=10**9, twice=twice
    )
    return Prefetcher(cast(View, brought), machine)


def reading(prefetch: Prefetcher, start: int, stop: int) -> None:
    prefetch.reading(start, stop, [position % SAMPLES // 10 for position in range(start, stop)])


def read(prefetch: Prefetcher, start: int, stop: int) -> None:
    """Act as a reader that reads positions [start, stop)."""
    reading(prefetch, start, stop)
    prefetch.consumed(stop, [])


@contextmanager
def waits(prefetch: Prefetcher, shards: list[int], size: float = 0.0) -> Iterator[None]:
    """Check that a reader waits for `shards` until the body has run, and then no longer."""
    waiting = threading.Thread(target=prefetch.wait_for, args=(shards, size))
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    yield
    waiting.join(PATIENCE)
    assert not waiting.is_alive()


def idle(prefetch: Prefetcher) -> None:
    """Wait until no thread works for it."""
    shared, reached = prefetch._shared, threading.Event()
    while not reached.wait(0.001):
        with shared.changed:
            if not shared.asked and not shared.machine.under_way:
                return


def test_shards_come_in_order_within_the_byte_limit() -> None:
    brought = Brought()
    prefetch = prefetcher(brought)
    read(prefetch, 0, 5)
    brought.wait(4)  # the one needed now, and three thousand bytes ahead
    idle(prefetch)
    assert sorted(brought.shards) == [0, 1, 2, 3]
    read(prefetch, 5, 20)
    brought.wait(6)
    idle(prefetch)
    assert sorted(brought.shards) == [0, 1, 2, 3, 4, 5]
    prefetch.close()


def test_prefetch_reaches_the_next_epoch_but_no_farther() -> None:
    brought = Brought()
    prefetch = prefetcher(brought, look_ahead=10**9)
    reading(prefetch, 0, 5)
    brought.wait(10)
    idle(prefetch)
    assert sorted(brought.shards) == [*range(10)]
    read(prefetch, 35, 60)
    brought.wait(16)
    idle(prefetch)
    assert sorted(brought.shards[10:]) == [0, 1, 2, 3, 4, 5]  # up to one epoch ahead of the run
    prefetch.close()


def test_prefetch_stops_without_room_until_samples_are_read() -> None:
    brought = Brought(room=2)
    prefetch = prefetcher(brought, look_ahead=10**9)
    read(prefetch, 0, 1)
    brought.wait(2)
    idle(prefetch)
    refused = brought.refused
    assert 1 <= refused <= 8  # at most once for each thread that was at it
    with brought.changed:
        brought.room = 3
    idle(prefetch)
    assert len(brought.shards) == 2  # room alone does not wake it: it does not poll
    read(prefetch, 1, 2)
    brought.wait(3)
    idle(prefetch)
    assert sorted(brought.shards) == [0, 1, 2]
    prefetch.close()


def test_a_jump_restarts_prefetch() -> None:
    brought = Brought()
    prefetch = prefetcher(brought)
    read(prefetch, 50, 55)
    brought.wait(4)
    idle(prefetch)
    assert sorted(brought.shards) == [5, 6, 7, 8]
    read(prefetch, 0, 5)  # set_epoch, or a state was loaded
    brought.wait(8)
    idle(prefetch)
    assert sorted(brought.shards[4:]) == [0, 1, 2, 3]
    prefetch.close()


def test_prefetch_leaves_errors_to_the_reader() -> None:
    brought = Brought()
    brought.damaged = {1}
    prefetch = prefetcher(brought)
    read(prefetch, 0, 5)
    brought.wait(3)
    idle(prefetch)
    assert sorted(brought.shards) == [0, 2, 3]
    prefetch.close()


def test_shards_being_read_make_no_room() -> None:
    brought = Brought()
    prefetch = prefetcher(brought)
    reading(prefetch, 0, 5)
    brought.wait(4)
    idle(prefetch)
    prefetch.consumed(15, [])
    brought.wait(5)
    reading(prefetch, 15, 20)
    idle(prefetch)
    assert sorted(brought.shards) == [0, 1, 2, 3, 4]
    assert min(brought.needed_in) > 0  # never "now", which may evict anything
    prefetch.close()


def test_a_reader_can_wait_for_a_download() -> None:
    brought = Brought()
    brought.held = threading.Event()
    prefetch = prefetcher(brought)
    reading(prefetch, 0, 35)
    with waits(prefetch, [0, 1, 2, 3]):
        brought.held.set()
    assert set(brought.shards) >= {0, 1, 2, 3}
    prefetch.wait_for([0, 3, 9])  # here, or not needed now: nothing to wait for
    prefetch.close()


def test_a_reader_waits_for_a_download_of_another_process() -> None:
    brought = Brought()
    prefetch = prefetcher(brought)
    reading(prefetch, 0, 35)
    prefetch.wait_for([0, 1, 2, 3])
    brought.elsewhere = {9}
    with waits(prefetch, [9]):
        brought.elsewhere = set()
    prefetch.close()


def test_nobody_waits_for_a_refused_or_failed_download() -> None:
    brought = Brought(room=1)
    brought.damaged = {1}
    prefetch = prefetcher(brought)
    reading(prefetch, 0, 35)
    prefetch.wait_for([0, 1, 2, 3])
    assert len(brought.shards) == 1
    assert brought.refused
    prefetch.close()


def test_nobody_waits_for_a_slow_download(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdsx.stream.machine._PATIENCE", 0.0)
    monkeypatch.setattr("mdsx.stream.machine._UNJUDGED", 0.0)
    brought = Brought()
    brought.held = threading.Event()
    prefetch = prefetcher(brought)
    reading(prefetch, 0, 35)
    prefetch.wait_for([0, 1, 2, 3])
    assert not brought.shards
    brought.held.set()
    prefetch.close()


def test_a_reader_waits_for_a_slow_download_after_it_read_much_by_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdsx.stream.machine._PATIENCE", 0.0)
    monkeypatch.setattr("mdsx.stream.machine._UNJUDGED", 0.0)
    brought = Brought()
    brought.held = threading.Event()
    prefetch = prefetcher(brought, twice=100.0)
    prefetch.ranged(50.0)  # the first batch
    reading(prefetch, 0, 35)
    prefetch._shared.machine.received(1)  # so that it knows how slow they come
    prefetch.wait_for([0, 1, 2, 3], 50.0)
    assert not brought.shards
    with waits(prefetch, [0, 1, 2, 3], 1.0):
        brought.held.set()
    prefetch.close()


def test_shards_needed_now_ignore_the_byte_limit() -> None:
    brought = Brought()
    prefetch = prefetcher(brought, look_ahead=1000)
    reading(prefetch, 0, 75)
    prefetch.wait_for(list(range(8)))
    assert set(brought.shards) >= set(range(8))
    prefetch.close()


@pytest.mark.parametrize("drop", [False, True])
def test_threads_end_when_prefetch_is_closed_or_dropped(drop: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdsx.base.process.threads._LINGER", 0.1)

    def threads() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name == "mdsx-prefetch"}

    brought = Brought()
    prefetch = prefetcher(brought)
    read(prefetch, 0, 5)
    brought.wait(4)
    started = threads()
    assert started
    if drop:
        del prefetch
        gc.collect()
    else:
        prefetch.close()
    for thread in started:
        thread.join(PATIENCE)
        assert not thread.is_alive()
