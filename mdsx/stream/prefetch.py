"""Brings shards into the cache in the order in which a rank will need them, ahead of it, and into the next epoch.

Bounded in bytes ahead of what was consumed, which counts once its shards are let go. Where the cache has no room that
may be taken, the prefetcher stops until the reader goes on: else two of them could evict each other's shards for ever.
It never holds a lease. A failure of storage is not raised here: whoever needs the shard meets it in its own place, and
`Shards` keeps the error of a shard that failed its check for the next read of it; any other error is the reader's next
one. All prefetchers of a process share their threads (see mdsx/process/threads.py).

Who needs a shard that is on its way may wait for it, as long as it comes soon: fetching samples by range beside it
costs more than it gains.
"""

from __future__ import annotations

import heapq
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from mdsx.errors import MdsxError
from mdsx.order import NOTHING_NEW
from mdsx.process import PREFETCH, Share
from mdsx.shards import View
from mdsx.storage.cache import Verdict
from mdsx.stream.foresight import Pace

_SOONEST = 1e-3  # seconds; 0 would mean "needed now", which may evict anything
_PATIENCE = 15.0  # seconds until which a shard must be here to be waited for
_LONGEST_WAIT = 30.0
_LOOK_AGAIN = 1.0  # seconds after which a wait asks how fast shards come


class Need(NamedTuple):
    """A shard, and the position from which on it is needed; positions count on over all epochs.

    NOTHING_NEW for the shard: no other one is needed for the first time up to there.
    """

    position: int
    shard: int


class _Plan:
    """What the threads that bring shards share. `needs` is the endless list of what comes, in order."""

    def __init__(self, view: View, pace: Pace, samples: int, search: int, look_ahead: int) -> None:
        self.threads = Share(PREFETCH)
        self.asked = False  # for a thread, which has not begun yet
        self.view = view
        self.pace = pace
        self.samples = samples  # a shard needed later than that many positions may wait
        self.search = search  # positions ahead in which new needs are looked for
        self.look_ahead = look_ahead
        self.changed = threading.Condition()
        self.closed = False
        self.error: BaseException | None = None
        self.needs: Iterator[Need] = iter(())
        self.due: deque[Need] = deque()  # taken from `needs` before their turn, to know of them
        self.ahead: deque[Need] = deque()  # taken from `needs`, not consumed yet
        self.ahead_bytes = 0
        self.returned: list[Need] = []  # a heap of those that found no room, or come too early
        self.blocked = False
        self.consumed = 0
        self.stop = 0  # of what is being read
        self.under_way: set[int] = set()
        self.received = 0  # bytes
        self._busy = 0.0  # seconds in which shards were under way, up to
        self._busy_since = 0.0

    def begin_anew(self, position: int, needs: Iterator[Need]) -> None:
        """The run goes on at `position`, which was not foreseen. Called with the lock held."""
        self.needs, self.consumed = needs, position
        self.due.clear()
        self.ahead.clear()
        self.returned.clear()
        self.ahead_bytes = 0

    def foresee(self, stop: int) -> None:
        """What is needed before `stop` is needed now: know of all of it. Called with the lock held."""
        self.stop = stop
        while not self.due or self.due[-1].position < stop:
            need = next(self.needs, None)
            if need is None:
                return
            self.due.append(need)

    def is_coming(self, shard: int) -> bool:
        """Whether a shard that is needed now is under way, or will be next. Called with the lock held."""
        if self.closed:
            return False
        begins = not self.blocked and (bool(self.under_way) or self.threads.may_begin)
        waiting = (*self.due, *self.returned) if begins else ()
        return shard in self.under_way or any(need.shard == shard and need.position < self.stop for need in waiting)

    def _following(self) -> Need | None:
        if self.due and self.due[0].position < self.stop:
            return self.due.popleft()
        if self.ahead_bytes >= self.look_ahead:
            return None
        return self.due.popleft() if self.due else next(self.needs, None)

    def seconds_for(self, size: int) -> float:
        """How long so many bytes take, as fast as they came up to now. Called with the lock held."""
        busy = self._busy + (time.monotonic() - self._busy_since if self.under_way else 0.0)
        return size / (self.received / busy) if self.received else 0.0

    def begin(self, shard: int) -> None:
        """A shard is under way. Called with the lock held."""
        if not self.under_way:
            self._busy_since = time.monotonic()
        self.under_way.add(shard)

    def end(self, shard: int) -> None:
        """It is here, or failed. Called with the lock held."""
        self.under_way.discard(shard)
        if not self.under_way:
            self._busy += time.monotonic() - self._busy_since
        self.changed.notify_all()

    def count(self, size: int) -> None:
        with self.changed:
            self.received += size

    def go_on(self, position: int) -> None:
        """The run stands at `position`, and there may be something to do. Called with the lock held."""
        self.pace.reached(position, time.monotonic())
        self.blocked = False
        self.changed.notify_all()
        self.ask()

    def ask(self) -> None:
        """Have a thread look whether there is something to do; it asks for the next one. Called with the lock held."""
        if not self.asked and not self.closed:
            self.asked = True
            self.threads.submit(_work, self)

    def take(self) -> Need | None:
        """The next shard to bring, or None while there is nothing to do. NOTHING_NEW: look again, but let others have
        the lock before. Called with the lock held."""
        if not self.blocked:
            if self.returned:
                need = heapq.heappop(self.returned)
            else:
                following = self._following()
                if following is None:
                    return None
                need = following
                if need.shard != NOTHING_NEW and need.position >= self.stop:
                    self.ahead.append(need)
                    self.ahead_bytes += self.view.cached_size(need.shard)
            if need.position > self.consumed + (self.samples if need.shard != NOTHING_NEW else self.search):
                heapq.heappush(self.returned, need)
                return None
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
        self._end = weakref.finalize(self, _close, self._plan)

    def reading(self, start: int, stop: int) -> None:
        """The positions from `start` up to `stop` are being read now."""
        plan = self._plan
        if plan.error is not None:
            raise plan.error
        with plan.changed:
            if self._expected is None or not self._expected <= start <= plan.consumed + plan.samples:
                plan.begin_anew(start, self._needs(start))
            self._expected = start
            plan.foresee(stop)
            plan.go_on(start)

    def consumed(self, stop: int) -> None:
        """What is used up at position `stop` was let go: there may be room."""
        plan = self._plan
        with plan.changed:
            plan.consumed = stop
            while plan.ahead and plan.ahead[0].position <= stop:
                plan.ahead_bytes -= plan.view.cached_size(plan.ahead.popleft().shard)
            plan.go_on(stop)

    def wait_for(self, shards: Sequence[int]) -> None:
        """Return when none of `shards`, which are needed now, is on its way any more, or when that takes too long."""
        plan, deadline = self._plan, time.monotonic() + _LONGEST_WAIT
        with plan.changed:
            while coming := [shard for shard in shards if plan.is_coming(shard)]:
                size = sum(map(plan.view.cached_size, coming))
                if plan.seconds_for(size) > _PATIENCE or time.monotonic() > deadline:
                    return
                plan.changed.wait(_LOOK_AGAIN)

    def close(self) -> None:
        """Bring no more shards; downloads that were begun are finished."""
        self._end()
        self._plan.threads.shutdown()


def _close(plan: _Plan) -> None:
    """Without a lock: the garbage collector may call this wherever a thread is. Whoever waits looks again in time."""
    plan.closed = True


def _work(plan: _Plan) -> None:
    """Bring one shard."""
    with plan.changed:
        plan.asked = False
        need = None if plan.closed else plan.take()
        if need is None:
            return
        plan.ask()
        if need.shard == NOTHING_NEW:
            return
        plan.begin(need.shard)
        needed_in = max(plan.pace.seconds_to(need.position), _SOONEST)
    verdict = None
    try:
        verdict = plan.view.bring(need.shard, needed_in=needed_in, received=plan.count)
    except (MdsxError, OSError):
        pass  # whoever needs it will see
    except BaseException as error:  # no failure of storage: the reader shall see it
        plan.error = error
        plan.closed = True
    with plan.changed:
        if verdict is Verdict.NO_ROOM:
            heapq.heappush(plan.returned, need)
            plan.blocked = True
        plan.end(need.shard)
        plan.ask()
