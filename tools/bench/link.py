#!/usr/bin/env python3
"""A link of known latency and bandwidth in front of a local server: a TCP proxy in a process of its own, which counts.

What is modelled: each byte arrives half a round trip after it was sent, a new connection is good for sending after one
whole round trip, and each direction of the link carries so many bytes a second over all connections together, which
take turns. What is not: slow start, loss, TLS. So a real link is slower than this one, never faster.

A *round trip* is counted so: the first request, or new connection, opens one; whatever is sent within `rtt` of that is
of the same one, as it cannot depend on its answer; what comes later opens the next. So it is an upper bound of the
longest chain of requests that wait for each other, and does not depend on how many are in flight together.

By hand: `python3 tools/bench/link.py 127.0.0.1:9000 --rtt 50 --rate 100e6` prints its port, and its counts whenever
a line comes in; it ends with its standard input. Needs nothing but the standard library.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass

_FORGIVEN = 0.05  # seconds without bytes that are made up for: this process may be late
_BACKLOG = 0.010  # seconds of bytes that wait for the link at most; longer than a timer is late
_EARLY = 5e-4  # seconds; less than a timer's grain
_WHOLE = 0.95  # of a round trip counts as one: timers have a grain
_UNSENT = 8 * 2**20  # bytes on their way in one direction of a connection; above it, nothing is read


@dataclass
class Counts:
    """What went through the proxy so far. `requests`: client's bursts that follow an answer or a new connection."""

    connections: int = 0
    requests: int = 0
    round_trips: int = 0
    sent: int = 0  # bytes, by clients
    received: int = 0


class RoundTrips:
    """Counts the round trips of a series of sendings (see above)."""

    def __init__(self, rtt: float) -> None:
        self._rtt = rtt
        self._opened = float("-inf")
        self.count = 0

    def sending(self, now: float) -> None:
        if self._rtt and now - self._opened >= _WHOLE * self._rtt:
            self._opened = now
            self.count += 1


class Lane:
    """One direction of the link, which connections share: who may read next, and when what was read has left."""

    def __init__(self, rate: float | None, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._clock = clock
        self._free = 0.0  # when all that was read has left
        self._waiting: deque[Callable[[], None]] = deque()
        self.turn: asyncio.TimerHandle | None = None

    def leave(self, size: int) -> float:
        """When the last of `size` bytes that were read now has left."""
        now = self._clock()
        begin = self._free if now - self._free < _FORGIVEN else now
        self._free = begin + (size / self._rate if self._rate else 0.0)
        return max(self._free, now)

    @property
    def wait(self) -> float:
        """Seconds until more may be read."""
        return self._free - self._clock() - _BACKLOG

    def queue(self, resume: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        """Call `resume` when it is its turn."""
        self._waiting.append(resume)
        if self.turn is None:
            self.turn = loop.call_later(max(self.wait, 0.0), self._next, loop)

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        self.turn = None
        if self._waiting and self.wait <= 0:
            self._waiting.popleft()()
        if self._waiting:  # what was resumed reads first
            self.turn = loop.call_later(max(self.wait, 1e-4), self._next, loop)


class _Way(asyncio.Protocol):
    """What arrives at one end of a connection leaves at the other: later, at the link's rate."""

    def __init__(self, link: Link, lane: Lane, delay: float, heard: Callable[[int], None]) -> None:
        self._link = link
        self._lane = lane
        self._delay = delay
        self._heard = heard
        self.not_before = 0.0
        self.source: asyncio.Transport | None = None
        self.back: _Way | None = None  # whose source is where this one's bytes go
        self._due: deque[tuple[float, bytes]] = deque()
        self._unsent = 0
        self._timer: asyncio.TimerHandle | None = None
        self._stopped: set[str] = set()  # why nothing is read

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(high=_UNSENT)
        self.source = transport
        if self.back is not None:
            self.back.send()  # what waited for this end

    def data_received(self, data: bytes) -> None:
        self._heard(len(data))
        loop = self._link.loop
        if not self._link.shaped and not self._due and self.back is not None and self.back.source is not None:
            self.back.source.write(data)
            return
        self._due.append((max(self._lane.leave(len(data)), self.not_before) + self._delay, data))
        self._unsent += len(data)
        self._schedule()
        if self._unsent > _UNSENT:
            self.stop("unsent")
        if self._lane.wait > 0:
            self.stop("turn")
            self._lane.queue(lambda: self.go_on("turn"), loop)

    def eof_received(self) -> None:
        self._due.append((self._link.loop.time() + self._delay, b""))
        self._schedule()

    def connection_lost(self, error: Exception | None) -> None:
        self.source = None
        if self.back is not None:
            self.eof_received()

    def pause_writing(self) -> None:
        if self.back is not None:
            self.back.stop("sink")

    def resume_writing(self) -> None:
        if self.back is not None:
            self.back.go_on("sink")

    def stop(self, why: str) -> None:
        if not self._stopped and self.source is not None:
            self.source.pause_reading()
        self._stopped.add(why)

    def go_on(self, why: str) -> None:
        self._stopped.discard(why)
        if not self._stopped and self.source is not None and not self.source.is_closing():
            self.source.resume_reading()

    def send(self) -> None:
        """Pass on what is due."""
        sink = self.back.source if self.back is not None else None
        if sink is None:
            return
        now = self._link.loop.time() + _EARLY
        while self._due and self._due[0][0] <= now:
            data = self._due.popleft()[1]
            self._unsent -= len(data)
            if not data:
                sink.close()
            elif not sink.is_closing():
                sink.write(data)
        if self._unsent <= _UNSENT // 2:
            self.go_on("unsent")
        self._schedule()

    def _schedule(self) -> None:
        if self._timer is None and self._due:
            self._timer = self._link.loop.call_at(self._due[0][0], self._timed)

    def _timed(self) -> None:
        self._timer = None
        self.send()


class Link:
    """All connections through the proxy."""

    def __init__(self, target: str, rtt: float, rate: float | None) -> None:
        self.loop = asyncio.get_running_loop()
        self.shaped = rtt > 0 or rate is not None
        self.counts = Counts()
        host, port = target.rsplit(":", 1)
        self._target = host, int(port)
        self._rtt = rtt
        self._trips = RoundTrips(rtt)
        self._up, self._down = (Lane(rate, self.loop.time) for _ in range(2))
        self._connecting: set[asyncio.Task[None]] = set()

    def accept(self) -> _Way:
        """The client's end of a new connection."""
        opened = self.loop.time()
        answered = True  # what the client sends next is a request

        def client_sent(size: int) -> None:
            nonlocal answered
            self.counts.sent += size
            if answered:
                self.counts.requests += 1
                self._sending(max(self.loop.time(), opened + self._rtt))
            answered = False

        def server_sent(size: int) -> None:
            nonlocal answered
            self.counts.received += size
            answered = True

        self.counts.connections += 1
        self._sending(opened)
        client = _Way(self, self._up, self._rtt / 2, client_sent)
        server = _Way(self, self._down, self._rtt / 2, server_sent)
        client.not_before = opened + self._rtt
        client.back, server.back = server, client
        task = self.loop.create_task(self._connect(client, server))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        return client

    def _sending(self, now: float) -> None:
        self._trips.sending(now)
        self.counts.round_trips = self._trips.count

    async def _connect(self, client: _Way, server: _Way) -> None:
        try:
            await self.loop.create_connection(lambda: server, *self._target)
        except OSError:
            if client.source is not None:
                client.source.abort()


async def _serve(target: str, rtt: float, rate: float | None) -> None:
    link = Link(target, rtt, rate)
    server = await link.loop.create_server(link.accept, "127.0.0.1", 0, backlog=1024)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    lines = asyncio.StreamReader()
    await link.loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while await lines.readline():
        print(json.dumps(asdict(link.counts)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", help="host:port")
    parser.add_argument("--rtt", type=float, default=0.0, help="round trip, in milliseconds")
    parser.add_argument("--rate", type=float, default=None, help="bytes a second in each direction")
    options = parser.parse_args()
    asyncio.run(_serve(options.target, options.rtt / 1e3, options.rate))


if __name__ == "__main__":
    main()
