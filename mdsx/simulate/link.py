"""A node's link to storage: all transfers share its rate, and each request takes its latency.

Sharing is exact, without small time steps: each transfer gets a part of the rate in proportion to its weight.
`_served` counts the bytes that a transfer of weight 1 would have received since the beginning. So a transfer ends at a
value of `_served` that is known when it begins (processor sharing, as in Kleinrock, Queueing Systems II, 4.4).

Weights differ, because TCP connections get unequal shares. With equal weights, shards that begin together would also
end together, and the link would be idle until the next ones begin, unlike real links.
"""

from __future__ import annotations

import heapq
import math
from itertools import count, pairwise

from mdsx.simulate.clock import Event, World
from mdsx.simulate.threads import getcurrent, greenlet

_PIECES = 4  # in which the arrival of a shard's bytes is reported
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
        """Return once `size` bytes have arrived for one request of a process with these `connections`."""
        self.ask(connections)
        self.transfer(size)
        connections.give()

    def ask(self, connections: Connections) -> None:
        """Return once the answer to a request begins. The caller then transfers its bytes."""
        self.requests += 1
        self._world.sleep(self._latency + connections.take(self._latency))

    def transfer(self, size: int) -> None:
        """Return once `size` bytes have arrived."""
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
        """Schedule a call for the end of the next transfer."""
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
    """The connections of one process. If all are in use, a request opens another one, which takes a round trip more."""

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
    """Return the sizes of the pieces in which a shard arrives."""
    edges = [math.floor(size * number / _PIECES) for number in range(_PIECES + 1)]
    return [stop - start for start, stop in pairwise(edges)]
