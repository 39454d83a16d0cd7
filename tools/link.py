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
from typing import Self

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
        command = [sys.executable, "-I", __file__, target.removeprefix("http://"), str(rtt), str(rate or 0.0)]
        self._command = command

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._port = json.loads(self._line())["port"]
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # it ends with its standard input

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def counts(self) -> Counts:
        """What went through it since it started."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return Counts(**json.loads(self._line()))

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the proxy ended")
        return line


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
        """Return when the caller may read more."""
        async with self._turns:
            if (wait := self._free - self._clock() - _BACKLOG) > 0:
                await asyncio.sleep(wait)


class _Proxy:
    """All connections, in the process of the proxy."""

    def __init__(self, target: str, rtt: float, rate: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._shaped = rtt > 0 or rate is not None
        self.counts = Counts()
        host, port = target.rsplit(":", 1)
        self._target = host, int(port)
        self._rtt = rtt
        self._trips = RoundTrips(rtt)
        self._up, self._down = (Lane(rate, self._loop.time) for _ in range(2))

    async def accept(self, listening: socket.socket) -> None:
        """Accept connections until cancelled."""
        listening.setblocking(False)
        async with asyncio.TaskGroup() as connections:
            while True:
                client, _ = await self._loop.sock_accept(listening)
                connections.create_task(self._connect(client, self._loop.time()))

    async def _connect(self, client: socket.socket, opened: float) -> None:
        """Carry both directions of a connection until both have ended, or one breaks."""
        answered = True  # what the client sends next is a request

        def client_sent(size: int) -> None:
            nonlocal answered
            self.counts.sent += size
            if answered:
                self.counts.requests += 1
                self._sending(max(self._loop.time(), opened + self._rtt))
            answered = False

        def server_sent(size: int) -> None:
            nonlocal answered
            self.counts.received += size
            answered = True

        self.counts.connections += 1
        self._sending(opened)
        with client, socket.socket() as server:
            for end in (client, server):
                end.setblocking(False)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                await self._loop.sock_connect(server, self._target)
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._carry(client, server, self._up, opened + self._rtt, client_sent))
                    both.create_task(self._carry(server, client, self._down, 0.0, server_sent))
            except* OSError:
                pass  # both ends are closed

    async def _carry(
        self,
        source: socket.socket,
        sink: socket.socket,
        lane: Lane,
        not_before: float,
        heard: Callable[[int], None],
    ) -> None:
        """Carry one direction: bytes that arrive at `source` leave later at `sink`, at the link's rate."""
        due: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_IN_FLIGHT)
        async with asyncio.TaskGroup() as sending:
            if self._shaped:
                sending.create_task(self._send(sink, due))
            while data := await self._loop.sock_recv(source, _PIECE):
                heard(len(data))
                if self._shaped:
                    await due.put((max(lane.leave(len(data)), not_before) + self._rtt / 2, data))
                    await lane.turn()
                else:
                    await self._loop.sock_sendall(sink, data)
            await due.put((self._loop.time() + self._rtt / 2, b""))
        sink.shutdown(socket.SHUT_WR)

    async def _send(self, sink: socket.socket, due: asyncio.Queue[tuple[float, bytes]]) -> None:
        """Send each piece when it is due, until an empty one."""
        data = b"."
        while data:
            at, data = await due.get()
            if (wait := at - self._loop.time()) > _EARLY:
                await asyncio.sleep(wait)
            await self._loop.sock_sendall(sink, data)

    def _sending(self, now: float) -> None:
        self._trips.sending(now)
        self.counts.round_trips = self._trips.count


async def _serve(target: str, rtt: float, rate: float | None) -> None:
    proxy = _Proxy(target, rtt, rate)
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
        accepting = asyncio.create_task(proxy.accept(listening))
        print(json.dumps({"port": listening.getsockname()[1]}), flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(asdict(proxy.counts)), flush=True)
        accepting.cancel()
        await asyncio.wait([accepting])


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]) or None))
