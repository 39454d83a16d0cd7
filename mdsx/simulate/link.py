"""The link of a node to storage: all its transfers share the rate, and each request takes the latency.

Sharing is exact and takes no small steps: of the rate, each transfer gets its weight's part of all weights under way.
`_served` is how many bytes a transfer of weight 1 has received that was there from the beginning, so each ends at a
value of it that is known when it begins (processor sharing, as in Kleinrock, Queueing Systems II, 4.4).

Weights differ, as TCP's connections get unequal shares. With equal ones, shards that begin together would also end
together, and the link would then be idle until the next ones begin, which real links are not.
"""

from __future__ import annotations

import heapq
import math
from itertools import count, pairwise

from mdsx.simulate.clock import Event, World
from mdsx.simulate.threads import getcurrent, greenlet

_PIECES = 4  # in which a shard's bytes are reported as they come
_KEPT = 64  # connections that a process keeps
_TINY = 1e-6  # bytes
_LIGHTEST = 0.5  # weight; the heaviest has 1.5
_GOLDEN = (math.sqrt(5) - 1) / 2  # its multiples spread evenly over 0 to 1 (mod 1), however many there are


class Link:
    """A link of `rate` bytes a second (None: no limit), on which a request's first byte comes after `latency`
    seconds."""

    def __init__(self, world: World, rate: float | None, latency: float) -> None:
        self._world, self._rate, self._latency = world, rate, latency
        self._transfers: list[tuple[float, int, float, greenlet]] = []  # a heap: end, number, weight
        self._weights = 0.0  # of these
        self._numbers = count()
        self._served = self._since = 0.0
        self._next: Event | None = None
        self.bytes = 0
        self.requests = 0

    def request(self, size: int, connections: Connections) -> None:
        """Return once `size` bytes have come for one request of a process with these `connections`."""
        self.requests += 1
        self._world.sleep(self._latency + connections.take(self._latency))
        self.transfer(size)
        connections.give()

    def ask(self, connections: Connections) -> None:
        """Return once the answer to a request begins; the caller then transfers its bytes."""
        self.requests += 1
        self._world.sleep(self._latency + connections.take(self._latency))

    def transfer(self, size: int) -> None:
        """Return once `size` bytes have come."""
        self.bytes += size
        if self._rate is None or not size:
            return
        self._advance()
        number = next(self._numbers)
        weight = _LIGHTEST + number * _GOLDEN % 1
        heapq.heappush(self._transfers, (self._served + size / weight, number, weight, getcurrent()))
        self._weights += weight
        self._look_ahead()
        self._world.pause()

    def _advance(self) -> None:
        now = self._world.now
        if self._transfers and self._rate is not None:
            self._served += self._rate / self._weights * (now - self._since)
        self._since = now

    def _look_ahead(self) -> None:
        """Ask to be called when the next transfer ends."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if self._transfers and self._rate is not None:
            left = max(self._transfers[0][0] - self._served, 0.0)
            seconds = left * self._weights / self._rate
            self._next = self._world.at(self._world.now + seconds, self._ended)

    def _ended(self) -> None:
        self._advance()
        self._served = max(self._served, self._transfers[0][0])  # despite rounding
        while self._transfers and self._transfers[0][0] <= self._served + _TINY:
            _, _, weight, thread = heapq.heappop(self._transfers)
            self._weights -= weight
            self._world.at(self._world.now, thread.switch)
        if not self._transfers:
            self._served = self._weights = 0.0
        self._next = None
        self._look_ahead()


class Connections:
    """The connections of one process: a request opens one if all are in use, which takes a round trip more."""

    def __init__(self, open_already: int = 0) -> None:
        self._free = open_already

    def take(self, latency: float) -> float:
        """Take a connection; return the seconds that this takes."""
        if self._free:
            self._free -= 1
            return 0.0
        return latency

    def give(self) -> None:
        self._free = min(self._free + 1, _KEPT)


def pieces(size: int) -> list[int]:
    """Return the sizes of the pieces in which a shard comes."""
    edges = [math.floor(size * number / _PIECES) for number in range(_PIECES + 1)]
    return [stop - start for start, stop in pairwise(edges)]
