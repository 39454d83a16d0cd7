"""Decide when to fetch, evict and close shards, from ticks, a clock and completions, without any I/O.

The machine keeps one vector: the tick at which each shard is needed next (`Course.next_needs`). The reader reports the
ticks that it reads; the machine advances none. Times are seconds on the caller's clock.

- Prefetch: shards are fetched in the order of need. Shards being read are fetched whatever their size, later ones up to
  `look_ahead` bytes and an epoch ahead. Each is tried once per use. If there is no room, nothing is tried until the
  reader continues: otherwise two processes could evict each other's shards for ever.
- Closing: a shard is closed after the blocks that draw on it. With a small cache, other shards are closed too, the
  least recently used first, so that this process holds at most `share` bytes besides the shards being read.
- Waiting: a reader waits for shards that will arrive soon. It reads samples of slow shards by range, but only for a
  small part of an epoch's bytes: these are downloaded twice, and slow down the shards.
- Eviction: from the vector, in seconds, the cache finds the shards that are needed last, and evicts these.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Container, Iterable
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.order import Tick

_SOONEST = 1e-3  # seconds; 0 would mean "needed now", which may evict anything
_PATIENCE = 15.0  # seconds within which a shard must come to be waited for
_UNJUDGED = 5.0  # seconds of downloads before the speed is judged: at a cold start, all shards are in flight at once
_EPOCH = 3600.0  # seconds that an epoch is assumed to last before the pace is known
_WINDOWS = 64  # windows of an epoch in which shards are queued

NextNeeds = Callable[[Tick, NDArray[np.int64] | None], NDArray[np.int64]]
"""(tick, shards) -> the tick at which each of these shards (None: all) is needed next."""


class Bring(NamedTuple):
    """Fetch a shard into the cache, which may evict shards for it that are needed later than in `needed_in` seconds."""

    shard: int
    needed_in: float


class Close(NamedTuple):
    """Close a shard; `needed_in`: seconds until it is needed again, None if it is still in use."""

    shard: int
    needed_in: float | None


class Outcome(Enum):
    """How fetching a shard ended."""

    DONE = "it is in the cache, or another process brings it, or it failed"
    NO_ROOM = "the cache may evict nothing for it"


class Pace:
    """A run's speed over the last half or whole epoch. A shorter period would mislead: batches are made in bursts."""

    def __init__(self) -> None:
        self._marks: deque[tuple[int, float]] = deque(maxlen=2)
        self._rate: float | None = None

    def reached(self, tick: int, now: float, samples: int) -> None:
        """Note that the run, whose epochs have `samples` samples, is at `tick` now."""
        marks = self._marks
        if marks and not 0 <= tick - marks[-1][0] <= samples:  # set_epoch, or a state was loaded
            marks.clear()
        if not marks or 2 * (tick - marks[-1][0]) >= samples:
            marks.append((tick, now))
        first, since = marks[0]
        if now > since and tick > first:
            self._rate = (tick - first) / (now - since)

    def rate(self, samples: int) -> float:
        """Return the ticks per second."""
        return max(samples, 1) / _EPOCH if self._rate is None else self._rate


class ShardMachine:
    """Decides about the shards that one process of a run reads."""

    def __init__(
        self,
        next_needs: NextNeeds,
        sizes: NDArray[np.int64],
        mine: NDArray[np.bool_],
        pace: Pace,
        *,
        samples: int,
        look_ahead: int,
        share: int,
        twice: float = math.inf,
    ) -> None:
        """`sizes`: bytes of each shard in the cache, 0 if it is read in place; `mine`: the shards to fetch; `samples`:
        samples in an epoch; `twice`: bytes per epoch that may be read by range while their shards are fetched."""
        self._next_needs = next_needs
        self._sizes, self.mine, self._samples = sizes, mine & (sizes > 0), samples
        self._look_ahead, self._share = look_ahead, share
        self._pace = pace
        self.needs = np.zeros(0, np.int64)  # by shard; empty until the first ticks are read
        self.open: OrderedDict[int, None] = OrderedDict()  # least recently used first
        self.under_way: dict[int, int] = {}  # shard -> the need that it is fetched for
        self._at = self._stop = 0  # the ticks being read; both their end once consumed
        self._first = -1  # the first of the ticks read last
        self._tried = np.zeros(len(sizes), np.bool_)  # for its next or present use
        self._wanted: set[int] = set()  # being read now, but not tried
        self._queue: list[tuple[int, int]] = []  # a heap of (need, shard): all shards to try, needed before
        self._horizon = 0
        self._ahead: dict[int, int] = {}  # shard -> need: tried, and needed later
        self._ahead_bytes = 0
        self.blocked = True  # until the reader continues
        self._twice, self._ranged = twice, 0.0  # bytes of this epoch that were read by range
        self._received = 0  # bytes
        self._busy = self._busy_since = 0.0  # seconds in which shards were in flight

    # --- what the reader does

    def jumps(self, start: int) -> bool:
        """Return whether a run that continues at `start` jumps."""
        return not len(self.needs) or not self._first <= start <= self._at + self._samples

    def reading(self, start: int, stop: int, shards: Iterable[int], now: float) -> None:
        """Note that the reader reads ticks `start` to `stop`, with `shards`."""
        if self.jumps(start):
            self._begin(start)
        samples = max(self._samples, 1)
        if self._first >= 0 and start // samples != self._first // samples:  # the first chunk is noted once it was read
            self._ranged = 0.0
        self._first = self._at = start
        self._stop = stop
        self._wanted = {shard for shard in shards if self._sizes[shard] and not self._tried[shard]}
        for shard in self._wanted:
            self.needs[shard] = min(self.needs[shard], start)
            heapq.heappush(self._queue, (-1, shard))  # before all others
        self._go_on(start, now)

    def first_reads(self, ticks: NDArray[np.int64], shards: NDArray[np.int64], until: int) -> None:
        """Note after a jump that from the end of this read up to `until`, `shards` are first read at `ticks`.

        Blocks draw on many shards at once, so these are first fetched in the order of reading.
        """
        soon = self.mine & ~self._tried & (self.needs <= self._at)
        soon[list(self._wanted)] = False
        self.needs[soon] = until
        chosen = soon[shards]
        self.needs[shards[chosen]] = ticks[chosen]
        self._queue = [(-1, shard) for shard in self._wanted]
        self._horizon = self._at

    def consumed(self, stop: int, used: Iterable[int], now: float) -> list[Close]:
        """Note that the reader returned everything before `stop`, and holds `used` open. Return the shards to close."""
        if not len(self.needs):  # it read single samples before any chunk of batches
            self._begin(stop)
            self._first = stop
        using = dict.fromkeys(shard for shard in used if self._sizes[shard])
        for shard in using:
            self.open[shard] = None
            self.open.move_to_end(shard)
        self._at = self._stop = stop
        due = np.flatnonzero(self.needs <= stop)
        self.needs[due] = self._next_needs(Tick(stop), due)
        for shard in due[self.needs[due] > stop].tolist():  # its use is over
            if shard not in self.under_way:
                self._try_again(shard)
        for shard in [shard for shard, need in self._ahead.items() if need <= stop]:
            self._take_from_ahead(shard)
        self._go_on(stop, now)
        return self._closed(using)

    def is_coming(self, shard: int, *, may_begin: bool) -> bool:
        """Return whether a shard that is needed now is in flight, or is fetched next. `may_begin`: a thread is free."""
        begins = not self.blocked and (bool(self.under_way) or may_begin)
        return shard in self.under_way or (begins and shard in self._wanted)

    def is_worth_waiting(self, shards: Iterable[int], now: float, *, elsewhere: Iterable[int] = ()) -> bool:
        """Return whether these shards will arrive soon, at the speed so far. `elsewhere`: shards that other processes
        are fetching at the same time."""
        size = sum(int(self._sizes[shard]) for shard in shards)
        size += max((int(self._sizes[shard]) for shard in elsewhere), default=0)
        busy = self._busy + (now - self._busy_since if self.under_way else 0.0)
        return busy <= _UNJUDGED or not self._received or size * busy <= _PATIENCE * self._received

    def may_range(self, size: float) -> bool:
        """Return whether `size` bytes may be read by range although their shards are being fetched."""
        return self._ranged + size <= self._twice

    def ranged(self, size: float) -> None:
        """Note that `size` bytes are read by range."""
        self._ranged += size

    def close(self) -> list[int]:
        """Return the open shards, for the reader to close at its end."""
        shards = list(self.open)
        self.open.clear()
        return shards

    # --- what the threads do

    def next(self, now: float) -> Bring | None:
        """Return the next shard to fetch; None while there is nothing to do."""
        while not self.blocked and (self._queue or self._extend()):
            queued, shard = self._queue[0]
            need, wanted = int(self.needs[shard]), shard in self._wanted
            stale = need > max(queued, self._at) or not self.mine[shard]
            if self._tried[shard] or (stale and not wanted):
                heapq.heappop(self._queue)
                continue
            if not wanted and need >= self._stop and need > self._at:
                if self._ahead_bytes >= self._look_ahead or need > self._at + self._samples:
                    return None
                self._ahead[shard] = need
                self._ahead_bytes += int(self._sizes[shard])
            heapq.heappop(self._queue)
            self._tried[shard] = True
            self._wanted.discard(shard)
            if not self.under_way:
                self._busy_since = now
            self.under_way[shard] = need
            return Bring(shard, max(self.seconds_to(need), _SOONEST))
        return None

    def received(self, size: int) -> None:
        """Note that `size` bytes arrived."""
        self._received += size

    def ended(self, shard: int, outcome: Outcome, now: float) -> None:
        """Note how fetching a shard ended."""
        need = self.under_way.pop(shard)
        if not self.under_way:
            self._busy += now - self._busy_since
        if outcome is Outcome.NO_ROOM:
            self.blocked = True
            self._take_from_ahead(shard)
            self._try_again(shard)
        elif self.needs[shard] > max(need, self._at):  # its use was over before it arrived
            self._try_again(shard)

    # --- what the cache gets

    def seconds(self) -> NDArray[np.float64]:
        """Return float64 [shards]: in how many seconds each is needed next, at the present pace; 0 for now."""
        return np.maximum(self.needs - self._at, 0) / self._pace.rate(self._samples)

    def epoch(self) -> float:
        """Return how many seconds an epoch lasts at the present pace."""
        return max(self._samples, 1) / self._pace.rate(self._samples)

    def seconds_to(self, tick: int) -> float:
        """Return in how many seconds the run reaches that tick; 0 if it has."""
        return max(tick - self._at, 0) / self._pace.rate(self._samples)

    # --- inside

    def _begin(self, start: int) -> None:
        self.needs = self._next_needs(Tick(start), None)
        self._tried[:] = False
        self._tried[list(self.under_way)] = True
        self._ahead.clear()
        self._ahead_bytes = 0
        self._queue.clear()
        self._horizon = start

    def _extend(self) -> bool:
        """Queue the shards that are needed next beyond the horizon; return whether there are any within an epoch."""
        later = np.flatnonzero(self.mine & ~self._tried & (self.needs >= self._horizon))
        needs = self.needs[later]
        furthest = self._at + self._samples
        soonest = int(needs.min(initial=furthest + 1))
        self._horizon = max(self._horizon, min(soonest + self._samples // _WINDOWS, furthest) + 1)
        chosen = needs < self._horizon
        self._queue += zip(needs[chosen].tolist(), later[chosen].tolist(), strict=True)
        heapq.heapify(self._queue)
        return bool(self._queue)

    def _try_again(self, shard: int) -> None:
        """Queue it for its present or next use."""
        self._tried[shard] = False
        if self.mine[shard] and self.needs[shard] < self._horizon:
            heapq.heappush(self._queue, (int(self.needs[shard]), shard))

    def _take_from_ahead(self, shard: int) -> None:
        if self._ahead.pop(shard, None) is not None:
            self._ahead_bytes -= int(self._sizes[shard])

    def _go_on(self, tick: int, now: float) -> None:
        self._pace.reached(tick, now, self._samples)
        self.blocked = False

    def _closed(self, using: Container[int]) -> list[Close]:
        held = int(self._sizes[list(self.open)].sum())
        closed = []
        for shard in list(self.open):
            over = bool(self.needs[shard] > self._at)
            if over or (held > self._share and shard not in using):
                held -= int(self._sizes[shard])
                del self.open[shard]
                closed.append(Close(shard, self.seconds_to(int(self.needs[shard])) if over else None))
        return closed
