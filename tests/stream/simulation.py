"""A simulated reader, network and cache around the real ShardMachine and the cache's real policy: no threads, no clock.

The simulation advances time, which is a number. The transfers in flight share a given bandwidth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mdsx.order import Course
from mdsx.storage.cache import Cached, ShardNames, ShardNeeds
from mdsx.storage.cache.eviction import candidates, may_evict
from mdsx.stream.machine import Bring, Close, Outcome, Pace, ShardMachine

FINGERPRINT = "f" * 32


class SimulatedCache:
    """Files by shard, within `limit` bytes; leased files stay."""

    def __init__(self, sizes: NDArray[np.int64], limit: int) -> None:
        self.sizes, self.limit = sizes, limit
        self.whole: set[int] = set()
        self.parts: set[int] = set()
        self.leased: set[int] = set()
        self._hashes = np.zeros((len(sizes), 16), np.uint8)
        self._hashes[:, 4:8] = np.arange(len(sizes), dtype=">u4").view(np.uint8).reshape(-1, 4)
        self._names = ShardNames(self._hashes)

    @property
    def used(self) -> int:
        return int(self.sizes[list(self.whole | self.parts)].sum())

    def admit(self, bring: Bring, seconds: NDArray[np.float64]) -> bool:
        """Make room for a shard, as the cache does; return whether there is room."""
        files = [Cached(f"/{FINGERPRINT}/{bytes(self._hashes[shard]).hex()}.mdsx", shard, 0.0) for shard in self.whole]
        leaving = candidates(files, 0.0, {FINGERPRINT: ShardNeeds(self._names, seconds)})
        while self.used + self.sizes[bring.shard] > self.limit and leaving:
            distance, file = leaving.pop()
            if not may_evict(distance, bring.needed_in):
                return False
            if file.size not in self.leased:  # the number of the shard, here
                self.whole.discard(file.size)
        if self.used + self.sizes[bring.shard] > self.limit:
            return False
        self.parts.add(bring.shard)
        return True


@dataclass
class Simulation:
    """One process that reads `course` in runs of `run` positions and uses each run for `seconds`."""

    course: Course
    sizes: NDArray[np.int64]
    limit: int
    bandwidth: float  # bytes a second
    run: int
    seconds: float
    look_ahead: int
    threads: int = 8
    now: float = 0.0
    downloads: int = 0
    late: int = 0  # runs for which a shard was not there
    transfers: dict[int, float] = field(default_factory=dict)  # shard -> bytes that are still to come

    def __post_init__(self) -> None:
        self.cache = SimulatedCache(self.sizes, self.limit)
        mine = np.ones(len(self.sizes), np.bool_)
        self.machine = ShardMachine(
            self.course.next_needs,
            self.sizes,
            mine,
            Pace(),
            samples=self.course.samples,
            look_ahead=self.look_ahead,
            share=self.limit // 2,
        )

    def read(self, start: int, stop: int) -> None:
        """Read positions `start` up to `stop`, in runs. Wait for shards in flight, and continue without the others."""
        for begin in range(start, stop, self.run):
            end = min(begin + self.run, stop)
            wanted = np.unique(self.course.locate(np.arange(begin, end))[0]).tolist()
            self.machine.reading(begin, end, wanted, self.now)
            self.begin()
            missing = [shard for shard in wanted if shard not in self.cache.whole]
            self.late += bool(missing)
            while any(self.machine.is_coming(shard, may_begin=True) for shard in missing) and self.transfers:
                self.pass_time(math.inf)
            used = [shard for shard in wanted if shard in self.cache.whole]
            self.cache.leased.update(used)
            self.pass_time(self.seconds)
            self.close(self.machine.consumed(end, used, self.now))
            self.begin()

    def idle(self) -> None:
        """Let all transfers end."""
        while self.transfers:
            self.pass_time(math.inf)

    def begin(self) -> None:
        while len(self.transfers) < self.threads and (bring := self.machine.next(self.now)) is not None:
            shard = bring.shard
            assert shard not in self.transfers, "fetched twice at once"
            if shard in self.cache.whole:
                self.machine.ended(shard, Outcome.DONE, self.now)
            elif self.cache.admit(bring, self.machine.seconds()):
                self.transfers[shard] = float(self.sizes[shard])
                self.downloads += 1
            else:
                self.machine.ended(shard, Outcome.NO_ROOM, self.now)
            assert self.cache.used <= self.limit, "above the limit"

    def pass_time(self, seconds: float) -> None:
        """Let at most `seconds` pass; with infinity, stop at the end of the next transfer."""
        left = seconds
        while left > 0:
            if not self.transfers:
                self.now += left if math.isfinite(left) else 0.0
                return
            each = self.bandwidth / len(self.transfers)
            step = min(left, min(self.transfers.values()) / each)
            self.now += step
            left -= step
            for shard in list(self.transfers):
                self.transfers[shard] -= step * each
                if self.transfers[shard] <= 1e-6 * self.sizes[shard]:
                    del self.transfers[shard]
                    self.cache.parts.discard(shard)
                    self.cache.whole.add(shard)
                    self.machine.received(int(self.sizes[shard]))
                    self.machine.ended(shard, Outcome.DONE, self.now)
            self.begin()
            if math.isinf(seconds):
                return

    def close(self, closes: list[Close]) -> None:
        for shard, _ in closes:
            self.cache.leased.discard(shard)
