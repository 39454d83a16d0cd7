"""Prefetch brings shards in the order of need, within its bounds, and leaves nothing behind.

The cache and the network are not the subject here: shards are brought into a list, which has room or has not.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from mdsx import TransportError
from mdsx.order import NOTHING_NEW
from mdsx.shards import View
from mdsx.storage.cache import Verdict
from mdsx.stream.foresight import Pace
from mdsx.stream.prefetch import Need, Prefetcher

SHARDS, SAMPLES = 10, 100  # shard k of epoch e is needed from position 100 e + 10 k on
PATIENCE = 30.0


class Brought:
    """Stands for the shards: keeps what was brought, in its order, while there is room."""

    def __init__(self, room: int = 1000) -> None:
        self.shards: list[int] = []
        self.needed_in: list[float] = []
        self.room = room
        self.refused = 0
        self.damaged: set[int] = set()
        self.held: threading.Event | None = None  # nothing arrives before it
        self.changed = threading.Condition()

    def cached_size(self, shard: int) -> int:
        return 1000

    def bring(self, shard: int, *, needed_in: float, received: Callable[[int], None]) -> Verdict | None:
        received(1000)
        if self.held is not None:
            assert self.held.wait(PATIENCE)
        with self.changed:
            self.changed.notify_all()
            if shard in self.damaged:
                self.damaged.discard(shard)
                raise TransportError("gone")
            if len(self.shards) >= self.room:
                self.refused += 1
                return Verdict.NO_ROOM
            self.shards.append(shard)
            self.needed_in.append(needed_in)
            return None

    def wait(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.shards) >= count, PATIENCE), self.shards


def needs(position: int) -> Iterator[Need]:
    shard = -(-position // 10)
    while True:
        yield Need(shard * 10, shard % SHARDS)
        shard += 1


def prefetcher(brought: Brought, look_ahead: int = 3000) -> Prefetcher:
    pace = Pace(SAMPLES)
    return Prefetcher(cast(View, brought), needs, pace, samples=SAMPLES, search=SAMPLES, look_ahead=look_ahead)


def read(prefetch: Prefetcher, start: int, stop: int) -> None:
    """What a reader tells when it reads positions [start, stop)."""
    prefetch.reading(start, stop)
    prefetch.consumed(stop)


def idle(prefetch: Prefetcher) -> None:
    """Wait until no thread works for it."""
    plan, reached = prefetch._plan, threading.Event()
    while not reached.wait(0.001):
        with plan.changed:
            if not plan.asked and not plan.under_way:
                return


def test_shards_come_as_needed_and_no_farther_ahead_than_the_bytes_allow() -> None:
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


def test_it_goes_on_into_the_next_epoch_but_no_farther() -> None:
    brought = Brought()
    prefetch = prefetcher(brought, look_ahead=10**9)
    prefetch.reading(0, 5)
    brought.wait(11)
    idle(prefetch)
    assert sorted(brought.shards) == [0, 0, *range(1, 10)]  # as far as one epoch ahead of where the run stood
    read(prefetch, 35, 60)
    brought.wait(17)
    idle(prefetch)
    assert sorted(brought.shards[11:]) == [1, 2, 3, 4, 5, 6]
    prefetch.close()


def test_without_room_it_stops_until_something_was_consumed_and_then_brings_the_soonest_first() -> None:
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


def test_a_jump_begins_anew() -> None:
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


def test_an_error_is_left_to_the_one_who_needs_the_shard() -> None:
    brought = Brought()
    brought.damaged = {1}
    prefetch = prefetcher(brought)
    read(prefetch, 0, 5)
    brought.wait(3)
    idle(prefetch)
    assert sorted(brought.shards) == [0, 2, 3]
    prefetch.close()


def test_the_search_stops_where_nothing_new_is_found() -> None:
    looked: list[int] = []

    def nothing(position: int) -> Iterator[Need]:
        while True:
            looked.append(position)
            yield Need(position, NOTHING_NEW)
            position += 10

    brought = Brought()
    prefetch = Prefetcher(cast(View, brought), nothing, Pace(10**6), samples=10**6, search=50, look_ahead=1000)
    read(prefetch, 0, 5)
    idle(prefetch)
    assert looked == [0, 10, 20, 30, 40, 50, 60]
    read(prefetch, 5, 25)
    idle(prefetch)
    assert looked[-1] == 80
    assert not brought.shards
    prefetch.close()


def test_what_is_being_read_makes_no_room_until_it_is_let_go() -> None:
    brought = Brought()
    prefetch = prefetcher(brought)
    prefetch.reading(0, 5)
    brought.wait(4)
    idle(prefetch)
    prefetch.consumed(15)
    brought.wait(5)
    prefetch.reading(15, 20)
    idle(prefetch)
    assert sorted(brought.shards) == [0, 1, 2, 3, 4]
    assert min(brought.needed_in) > 0  # never "now", which may evict anything
    prefetch.close()


def test_what_is_on_its_way_may_be_waited_for() -> None:
    brought = Brought()
    brought.held = threading.Event()
    prefetch = prefetcher(brought)
    prefetch.reading(0, 35)
    waits = threading.Thread(target=prefetch.wait_for, args=([0, 1, 2, 3],))
    waits.start()
    waits.join(0.05)
    assert waits.is_alive()
    brought.held.set()
    waits.join(PATIENCE)
    assert not waits.is_alive()
    assert set(brought.shards) >= {0, 1, 2, 3}
    prefetch.wait_for([0, 3, 9])  # here, or not needed now: nothing to wait for
    prefetch.close()


def test_nobody_waits_for_what_finds_no_room_or_fails() -> None:
    brought = Brought(room=1)
    brought.damaged = {1}
    prefetch = prefetcher(brought)
    prefetch.reading(0, 35)
    prefetch.wait_for([0, 1, 2, 3])
    assert len(brought.shards) == 1
    assert brought.refused
    prefetch.close()


def test_nobody_waits_for_what_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdsx.stream.prefetch._PATIENCE", 0.0)
    brought = Brought()
    brought.held = threading.Event()
    prefetch = prefetcher(brought)
    prefetch.reading(0, 35)
    prefetch.wait_for([0, 1, 2, 3])
    assert not brought.shards
    brought.held.set()
    prefetch.close()


def test_shards_needed_now_come_however_many_bytes_they_are() -> None:
    brought = Brought()
    prefetch = prefetcher(brought, look_ahead=1000)
    prefetch.reading(0, 75)
    prefetch.wait_for(list(range(8)))
    assert set(brought.shards) >= set(range(8))
    prefetch.close()


@pytest.mark.parametrize("drop", [False, True])
def test_its_threads_end_when_it_is_closed_or_dropped(drop: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdsx.process.threads._LINGER", 0.1)

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
