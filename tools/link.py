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
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Self

_FORGIVEN = 0.05  # seconds: idle time that is made up for, since this process may be late
_BACKLOG = 0.010  # seconds of bytes that queue for the link at most; more than a timer's delay
_EARLY = 5e-4  # seconds; less than a timer's grain
_WHOLE = 0.95  # of a round trip counts as one: timers have a grain
_UNSENT = 8 * 2**20  # bytes in flight in one direction of a connection; above it, reading stops


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
        self._waiting: deque[Callable[[], None]] = deque()
        self.turn: asyncio.TimerHandle | None = None

    def leave(self, size: int) -> float:
        """Return when the last of `size` bytes, read now, has left."""
        now = self._clock()
        begin = self._free if now - self._free < _FORGIVEN else now
        self._free = begin + (size / self._rate if self._rate else 0.0)
        return max(self._free, now)

    @property
    def wait(self) -> float:
        """Seconds until more may be read."""
        return self._free - self._clock() - _BACKLOG

    def queue(self, resume: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        """Call `resume` in its turn."""
        self._waiting.append(resume)
        if self.turn is None:
            self.turn = loop.call_later(max(self.wait, 0.0), self._next, loop)

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        self.turn = None
        if self._waiting and self.wait <= 0:
            self._waiting.popleft()()
        if self._waiting:  # the resumed connection reads first
            self.turn = loop.call_later(max(self.wait, 1e-4), self._next, loop)


class _Way(asyncio.Protocol):
    """One direction of a connection: bytes that arrive at one end leave later at the other, at the link's rate."""

    def __init__(self, link: _Proxy, lane: Lane, delay: float, heard: Callable[[int], None]) -> None:
        self._link = link
        self._lane = lane
        self._delay = delay
        self._heard = heard
        self.not_before = 0.0
        self.source: asyncio.Transport | None = None
        self.back: _Way | None = None  # its source is the sink of this direction
        self._due: deque[tuple[float, bytes]] = deque()
        self._unsent = 0
        self._timer: asyncio.TimerHandle | None = None
        self._stopped: set[str] = set()  # why reading is paused

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(high=_UNSENT)
        self.source = transport
        if self.back is not None:
            self.back.send()  # what was waiting for this end

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
        """Send what is due."""
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


class _Proxy:
    """All connections, in the process of the proxy."""

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
    link = _Proxy(target, rtt, rate)
    server = await link.loop.create_server(link.accept, "127.0.0.1", 0, backlog=1024)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    lines = asyncio.StreamReader()
    await link.loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while await lines.readline():
        print(json.dumps(asdict(link.counts)), flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]) or None))
