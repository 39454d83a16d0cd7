"""A link of known latency and bandwidth in front of a local server: a TCP proxy in a process of its own, which counts.

The model: each byte arrives half a round trip after it was sent, a new connection can be used after one whole round
trip, and each direction carries `rate` bytes a second over all connections together, which take turns. Not modelled:
slow start, loss, TLS. So a real link is slower than this one, never faster.

*Round trips* are counted as follows. The first request, or new connection, opens one. Whatever is sent within `rtt` of
that belongs to the same one, since it cannot depend on its answer; what comes later opens the next. So the count is an
upper bound of the longest chain of requests that wait for each other, however many are in flight together.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Self

_FORGIVEN = 0.05  # seconds: idle time that is made up for, since this process may be late
_BACKLOG = 0.010  # seconds of bytes that queue for the link at most; more than a timer's delay
_EARLY = 5e-4  # seconds; less than a timer's grain
_WHOLE = 0.95  # of a round trip counts as one: timers have a grain
_PIECE = 2**18  # bytes that are read at once, at most
_IN_FLIGHT = 256  # pieces in one direction of a connection; with more, reading stops


@dataclass
class Counts:
    """What went through the proxy. `requests`: bursts of a client after an answer or a new connection."""

    connections: int = 0
    requests: int = 0
    round_trips: int = 0
    sent: int = 0  # bytes, by clients
    received: int = 0


class Link:
    """The proxy to `target` ("host:port"), on a free port of 127.0.0.1, while the context lasts.

    `rtt` in seconds; `rate` in bytes a second, None for as fast as possible.
    """

    def __init__(self, target: str, *, rtt: float = 0.0, rate: float | None = None) -> None:
        self._command = [sys.executable, "-I", __file__, target.removeprefix("http://"), str(rtt), str(rate or 0.0)]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.endpoint, self.pid = f"http://127.0.0.1:{self._ask()['port']}", self._process.pid
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # it ends with its standard input

    def counts(self) -> Counts:
        return Counts(**self._ask()["counts"])

    def _ask(self) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        if not (line := self._process.stdout.readline()):
            raise RuntimeError("the proxy ended")
        found: dict[str, Any] = json.loads(line)
        return found


class RoundTrips:
    """Counts round trips, as described above."""

    def __init__(self, rtt: float) -> None:
        self._rtt = rtt
        self._opened = float("-inf")
        self.count = 0

    def sending(self, now: float) -> None:
        if self._rtt and now - self._opened >= _WHOLE * self._rtt:
            self._opened = now
            self.count += 1


class Lane:
    """One direction of the link, shared by all connections: which may read next, and when bytes have left."""

    def __init__(self, rate: float | None, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._clock = clock
        self._free = 0.0  # when all bytes read so far have left
        self._turns = asyncio.Lock()  # first come, first served

    def leave(self, size: int) -> float:
        """Return when the last of `size` bytes, read now, has left."""
        now = self._clock()
        begin = self._free if now - self._free < _FORGIVEN else now
        self._free = begin + (size / self._rate if self._rate else 0.0)
        return max(self._free, now)

    async def turn(self) -> None:
        async with self._turns:
            if (wait := self._free - self._clock() - _BACKLOG) > 0:
                await asyncio.sleep(wait)


class _Proxy:
    """What all connections share, in the process of the proxy."""

    def __init__(self, target: str, rtt: float, rate: float | None) -> None:
        host, port = target.rsplit(":", 1)
        self.target = host, int(port)
        self.rtt = rtt
        self.shaped = rtt > 0 or rate is not None
        self.counts = Counts()
        self.trips = RoundTrips(rtt)
        clock = asyncio.get_running_loop().time
        self.up, self.down = Lane(rate, clock), Lane(rate, clock)

    async def accept(self, listening: socket.socket) -> None:
        listening.setblocking(False)
        async with asyncio.TaskGroup() as connections:
            while True:
                client, _ = await asyncio.get_running_loop().sock_accept(listening)
                connections.create_task(_Connection(self, client).carry())


class _Connection:
    """One connection of a client, and the one to the server that belongs to it."""

    def __init__(self, proxy: _Proxy, client: socket.socket) -> None:
        self._proxy, self._client = proxy, client
        self._loop = asyncio.get_running_loop()
        self._answered = True  # what the client sends next is a request
        self._usable = self._loop.time() + proxy.rtt
        proxy.counts.connections += 1
        proxy.trips.sending(self._loop.time())

    async def carry(self) -> None:
        """Carry both directions until both have ended, or one breaks."""
        with self._client as client, socket.socket() as server:
            for end in (client, server):
                end.setblocking(False)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                await self._loop.sock_connect(server, self._proxy.target)
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._receive(client, server, self._proxy.up))
                    both.create_task(self._receive(server, client, self._proxy.down))
            except* OSError:
                pass  # both ends are closed

    async def _receive(self, source: socket.socket, sink: socket.socket, lane: Lane) -> None:
        """Carry one direction: bytes that arrive at `source` leave later at `sink`, at the link's rate."""
        latency = self._proxy.rtt / 2
        due: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_IN_FLIGHT)
        async with asyncio.TaskGroup() as sending:
            if self._proxy.shaped:
                sending.create_task(self._send(sink, due))
            while data := await self._loop.sock_recv(source, _PIECE):
                self._count(len(data), request=source is self._client)
                if self._proxy.shaped:
                    await due.put((max(lane.leave(len(data)), self._usable) + latency, data))
                    await lane.turn()
                else:
                    await self._loop.sock_sendall(sink, data)
            await due.put((self._loop.time() + latency, b""))
        sink.shutdown(socket.SHUT_WR)

    async def _send(self, sink: socket.socket, due: asyncio.Queue[tuple[float, bytes]]) -> None:
        """Send each piece when it is due, until an empty one."""
        data = b"."
        while data:
            at, data = await due.get()
            if (wait := at - self._loop.time()) > _EARLY:
                await asyncio.sleep(wait)
            await self._loop.sock_sendall(sink, data)

    def _count(self, size: int, *, request: bool) -> None:
        counts = self._proxy.counts
        if not request:
            counts.received += size
        else:
            counts.sent += size
            if self._answered:
                counts.requests += 1
                self._proxy.trips.sending(max(self._loop.time(), self._usable))
        self._answered = not request


async def _serve(target: str, rtt: float, rate: float | None) -> None:
    """Answer each line of standard input with the port and the counts, until it ends."""
    proxy = _Proxy(target, rtt, rate)
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
        accepting = asyncio.create_task(proxy.accept(listening))
        while await asyncio.to_thread(sys.stdin.readline):
            counts = {**asdict(proxy.counts), "round_trips": proxy.trips.count}
            print(json.dumps({"port": listening.getsockname()[1], "counts": counts}), flush=True)
        accepting.cancel()
        await asyncio.wait([accepting])


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]) or None))
