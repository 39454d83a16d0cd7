"""Brings shards into the cache in the order in which a rank will need them, ahead of it, and into the next epoch.

Bounded in bytes ahead of what was consumed, which counts once its shards are let go. Where the cache has no room that
may be taken, the prefetcher stops until the reader goes on: else two of them could evict each other's shards for ever.
It never holds a lease. An error here is not raised: whoever needs the shard meets it in its own place.
"""

from __future__ import annotations

import heapq
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from mdsx.errors import MdsxError
from mdsx.order import NOTHING_NEW
from mdsx.shards import View
from mdsx.storage.cache import Verdict
from mdsx.stream.foresight import Pace

_THREADS = 8
_SOONEST = 1e-3  # seconds; 0 would mean "needed now", which may evict anything


class Need(NamedTuple):
    """A shard, and the position from which on it is needed; positions count on over all epochs.

    NOTHING_NEW for the shard: no other one is needed for the first time up to there.
    """

    position: int
    shard: int


class _Plan:
    """What the threads share. `needs` is the endless list of what comes, in order."""

    def __init__(self, view: View, pace: Pace, samples: int, search: int, look_ahead: int) -> None:
        self.view = view
        self.pace = pace
        self.samples = samples  # a shard needed later than that many positions may wait
        self.search = search  # positions ahead in which new needs are looked for
        self.look_ahead = look_ahead
        self.changed = threading.Condition()
        self.closed = False
        self.needs: Iterator[Need] = iter(())
        self.ahead: deque[Need] = deque()  # taken from `needs`, not consumed yet
        self.ahead_bytes = 0
        self.returned: list[Need] = []  # a heap of those that found no room, or come too early
        self.blocked = False
        self.consumed = 0

    def go_on(self, position: int) -> None:
        """The run stands at `position`, and there may be something to do. Called with the lock held."""
        self.pace.reached(position, time.monotonic())
        self.blocked = False
        self.changed.notify_all()

    def take(self) -> Need | None:
        """The next shard to bring, or None while there is nothing to do. Called with the lock held."""
        while not self.blocked:
            if self.returned:
                need = heapq.heappop(self.returned)
            elif self.ahead_bytes >= self.look_ahead or (following := next(self.needs, None)) is None:
                return None
            else:
                need = following
                if need.shard != NOTHING_NEW and need.position > self.consumed:
                    self.ahead.append(need)
                    self.ahead_bytes += self.view.cached_size(need.shard)
            if need.position > self.consumed + (self.samples if need.shard != NOTHING_NEW else self.search):
                heapq.heappush(self.returned, need)
                return None
            if need.shard != NOTHING_NEW:
                return need
        return None


class Prefetcher:
    """`needs(position)` lists what a rank needs from there on; shards are brought `samples` positions ahead and
    `look_ahead` bytes; needs are looked for `search` positions ahead, where nothing was found sooner."""

    def __init__(
        self,
        view: View,
        needs: Callable[[int], Iterator[Need]],
        pace: Pace,
        *,
        samples: int,
        search: int,
        look_ahead: int,
    ) -> None:
        self._needs = needs
        self._plan = _Plan(view, pace, samples, search, look_ahead)
        self._expected: int | None = None
        self._threads: list[threading.Thread] = []
        self._end = weakref.finalize(self, _close, self._plan)

    def reading(self, start: int) -> None:
        """The positions from `start` on are being read now."""
        plan = self._plan
        with plan.changed:
            if self._expected is None or not self._expected <= start <= plan.consumed + plan.samples:
                plan.needs = self._needs(start)
                plan.ahead.clear()
                plan.returned.clear()
                plan.ahead_bytes = 0
                plan.consumed = start
            self._expected = start
            plan.go_on(start)
        if not self._threads:
            self._threads = [
                threading.Thread(target=_work, args=(plan,), name="mdsx-prefetch", daemon=True) for _ in range(_THREADS)
            ]
            for thread in self._threads:
                thread.start()

    def consumed(self, stop: int) -> None:
        """What is used up at position `stop` was let go: there may be room."""
        plan = self._plan
        with plan.changed:
            plan.consumed = stop
            while plan.ahead and plan.ahead[0].position <= stop:
                plan.ahead_bytes -= plan.view.cached_size(plan.ahead.popleft().shard)
            plan.go_on(stop)

    def close(self) -> None:
        """End the threads, each once its download is done."""
        self._end()


def _close(plan: _Plan) -> None:
    with plan.changed:
        plan.closed = True
        plan.changed.notify_all()


def _work(plan: _Plan) -> None:
    while True:
        with plan.changed:
            need = None
            while not plan.closed and (need := plan.take()) is None:
                plan.changed.wait()
            if need is None:
                return
            needed_in = max(plan.pace.seconds_to(need.position), _SOONEST)
        try:
            verdict = plan.view.bring(need.shard, needed_in=needed_in)
        except (MdsxError, OSError):
            continue
        if verdict is Verdict.NO_ROOM:
            with plan.changed:
                heapq.heappush(plan.returned, need)
                plan.blocked = True
