"""A storage that misbehaves: an HTTP proxy in front of a local server of a cloud, which breaks chosen requests.

    with Proxy(s3) as proxy:
        os.environ.update(proxy.env())
        rule = proxy.add(cut(0.5), key="*/shard.00001.*", times=2)
        ...  # read
        assert rule.hits == 2

It runs in threads of this process. Requests pass through unchanged, Host header included, so that their signatures
hold. Requests without a fault get the real server's answer. (`tools/link.py` is another proxy: of bytes, for timing.)
"""

from __future__ import annotations

import ctypes
import random
import select
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self
from urllib.parse import unquote, urlsplit
from weakref import WeakSet

from tools.servers.process import Server

_UPSTREAM = 60.0  # seconds that the real server may take
_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "expect", "date", "server"}
_REFUSED = 500  # and above
_SHIFT = 64  # bytes between a requested range and the wrong one

Fault = Callable[["Exchange"], object]
"""Answers a request wrongly. If it returns without an answer, the connection is closed."""


@dataclass(slots=True)
class Rule:
    """Which requests meet a fault: of those that match, `times` after the first `skip`, each with a probability."""

    fault: Fault
    key: str = "*"  # a pattern of fnmatch for the path of the URL, which ends with the object's key
    method: str = "GET"  # "*" for all
    skip: int = 0  # counts down
    times: int | None = None  # None: always
    share: float = 1.0  # the probability
    when: Callable[[Exchange], bool] = lambda exchange: True
    hits: int = 0  # requests that met the fault

    def meets(self, exchange: Exchange, chance: random.Random) -> bool:
        asked = self.method in ("*", exchange.command) and fnmatchcase(exchange.key, self.key)
        if not asked or not self.when(exchange):
            return False
        if self.skip:
            self.skip -= 1
            return False
        met = self.hits != self.times and chance.random() < self.share
        self.hits += met
        return met


@dataclass(slots=True)
class Asked:
    """A request, and whether it met a fault. `sent`: bytes of its answer, if that was whole and no error (5xx)."""

    method: str
    key: str
    query: str
    range: str
    faulty: bool
    sent: int | None = None

    @property
    def whole(self) -> bool:
        """Whether the range has no end: it is the whole object, or the rest of it."""
        return not self.range or self.range.endswith("-")


class Sent(NamedTuple):
    """How often objects were sent whole or in ranges, and the bytes of both."""

    whole: int
    whole_bytes: int
    ranges: int
    range_bytes: int


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def part(self, start: int, stop: int, claimed: int) -> Reply:
        """Return the answer to a ranged request with bytes [start, stop), which claims that they begin at `claimed`."""
        body = self.body[start:stop]
        content_range = f"bytes {claimed}-{claimed + len(body) - 1}/{len(self.body)}"
        return Reply(206, {**self.headers, "Content-Range": content_range}, body)


class Proxy(ThreadingHTTPServer):
    """The proxy to `server` on a free port, while the context lasts. A request meets the first of `rules` that matches.

    `seed`: for the probabilities. `rules` may be changed at any time.
    """

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, server: Server, *, seed: int = 0) -> None:
        super().__init__(("127.0.0.1", 0), Exchange)
        self.server = server
        self.rules: list[Rule] = []
        self.asked: list[Asked] = []
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self._connections: WeakSet[socket.socket] = WeakSet()

    def add(self, fault: Fault, **where: Any) -> Rule:
        rule = Rule(fault, **where)
        with self._lock:
            self.rules.append(rule)
        return rule

    def clear(self) -> None:
        with self._lock:
            self.rules.clear()
            self.asked.clear()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def env(self) -> dict[str, str]:
        """The environment in which mdsx uses the server through this proxy."""
        through = self.server.endpoint, self.endpoint
        return {name: value.replace(*through) for name, value in self.server.env().items()}

    @contextmanager
    def down(self) -> Iterator[None]:
        """Refuse connections during the block, and reset those that are open."""
        self._close()
        try:
            yield
        finally:
            self.socket = socket.create_server(("127.0.0.1", self.server_port), backlog=self.request_queue_size)
            self._serve()

    def __enter__(self) -> Self:
        self._serve()
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def fault_of(self, exchange: Exchange) -> Fault:
        """The fault that a request meets, or that it is passed through."""
        with self._lock:
            fault = next((rule.fault for rule in self.rules if rule.meets(exchange, self._chance)), None)
            query = urlsplit(exchange.path).query
            exchange.asked = Asked(exchange.command, exchange.key, query, exchange.range, fault is not None)
            self.asked.append(exchange.asked)
        return fault or (lambda exchange: exchange.send(exchange.forward()))

    def sent(self, key: str) -> Sent:
        """Return what was sent of the objects whose keys match this pattern of fnmatch."""
        found = [each for each in self.asked if each.method == "GET" and fnmatchcase(each.key, key)]
        whole, ranges = (
            [each.sent for each in found if each.sent is not None and each.whole is kind] for kind in (True, False)
        )
        return Sent(len(whole), sum(whole), len(ranges), sum(ranges))

    def _serve(self) -> None:
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,), name="proxy")
        self._thread.start()

    def _close(self) -> None:
        """Close the port and all connections, which also ends threads that hang."""
        self.shutdown()
        self._thread.join()
        for each in (self.socket, *self._connections):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # closing alone would leave it open in forked processes
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore broken connections: they are intended."""


class Exchange(BaseHTTPRequestHandler):
    """A request, with methods to answer it correctly or wrongly. Faults use the public methods."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Proxy
    asked: Asked
    _unread = 0  # bytes of the request's body
    _answered = False

    @property
    def key(self) -> str:
        """ "/bucket/prefix/key", or what else a cloud has for a path."""
        return unquote(urlsplit(self.path).path)

    @property
    def range(self) -> str:
        return str(self.headers.get("Range", ""))

    def interval(self, total: int) -> tuple[int, int]:
        """Return the requested half-open range of the object, which has `total` bytes."""
        first, _, last = self.range.removeprefix("bytes=").partition("-")
        return int(first or 0), min(int(last) + 1 if last else total, total)

    def body(self) -> bytes:
        """The body of the request; can be read once."""
        size, self._unread = self._unread, 0
        return self.rfile.read(size)

    def forward(self) -> Reply:
        del self.headers["Connection"], self.headers["Expect"]  # neither is signed
        with closing(HTTPConnection(urlsplit(self.server.server.endpoint).netloc, timeout=_UPSTREAM)) as upstream:
            upstream.request(self.command, self.path, self.body() or None, dict(self.headers))
            answer = upstream.getresponse()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, headers, answer.read())

    def whole(self) -> Reply:
        """Return the whole object, whatever range was requested."""
        headers, body = self.server.server.whole(self.path)
        return Reply(200, headers, body)

    def send(self, reply: Reply, *, stop: int | None = None) -> None:
        """Answer; with `stop`, announce the whole body but send only that many bytes."""
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            if name not in _HOP:
                self.send_header(name, value)
        length = reply.headers.get("content-length") if self.command == "HEAD" else None
        self.send_header("Content-Length", length or str(len(reply.body)))
        self.end_headers()
        body = reply.body[:stop]
        self.wfile.write(body[:-1])
        if stop is None and reply.status < _REFUSED:
            self.asked.sent = len(reply.body)  # before the last byte: a client that has it is counted
        self.wfile.write(body[-1:])
        self._answered = stop is None

    def send_rest(self, rest: bytes, piece: int, pause: float) -> None:
        """Send the rest of a body `piece` bytes at a time, each after a pause."""
        for start in range(0, len(rest), piece):
            if self.hang(pause):
                return
            self.wfile.write(rest[start : start + piece])
        self._answered = True

    def hang(self, seconds: float | None = None) -> bool:
        """Wait `seconds` (None: forever), or until the client or the proxy ends; return whether one of them did."""
        self.body()
        return bool(select.select([self.connection], [], [], seconds)[0])

    def reset(self) -> None:
        """Close the connection with a TCP reset, even if a forked process has it open."""
        no_address = bytes(16)  # AF_UNSPEC
        ctypes.CDLL(None).connect(self.connection.fileno(), no_address, len(no_address))

    def _exchange(self) -> None:
        self._unread = int(self.headers.get("Content-Length") or 0)
        self._answered = False
        self.server.fault_of(self)(self)
        self.close_connection |= not self._answered or self._unread > 0

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _exchange  # noqa: N815  http.server's names

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


# --- faults


def status(code: int, name: str) -> Fault:
    """An error with the name that the cloud has for it; S3: (500, "InternalError"), (404, "NoSuchKey"), ..."""

    def fault(exchange: Exchange) -> None:
        exchange.body()
        body = b"" if exchange.command == "HEAD" else exchange.server.server.refusal(code, name)
        exchange.send(Reply(code, {}, body))

    return fault


def cut(share: float = 0.5) -> Fault:
    """Correct headers, but the body ends after a share of it."""
    return _after(share, lambda exchange, rest: None)


def reset(share: float | None = 0.5) -> Fault:
    """The connection is reset after a share of the body; None: before the request is forwarded."""
    return _after(share, lambda exchange, rest: exchange.reset())


def stall(share: float | None = 0.5) -> Fault:
    """Stall forever after a share of the body; None: before the request is forwarded."""
    return _after(share, lambda exchange, rest: exchange.hang())


def trickle(pause: float, share: float = 0.1, piece: int = 1) -> Fault:
    """After a share of the body, send the rest `piece` bytes at a time with pauses."""
    return _after(share, lambda exchange, rest: exchange.send_rest(rest, piece, pause))


def _after(share: float | None, end: Callable[[Exchange, bytes], object]) -> Fault:
    def fault(exchange: Exchange) -> None:
        rest = b""
        if share is not None:
            reply = exchange.forward()
            stop = int(len(reply.body) * share)
            exchange.send(reply, stop=stop)
            rest = reply.body[stop:]
        end(exchange, rest)

    return fault


def lost(exchange: Exchange) -> None:
    """The request succeeds, but its answer never arrives: the connection is reset."""
    exchange.forward()
    exchange.reset()


def flip(place: float = 0.5, bit: int = 0) -> Fault:
    """Flip one bit of the body; the headers, ETag included, are correct."""

    def fault(exchange: Exchange) -> None:
        reply = exchange.forward()
        body = bytearray(reply.body)
        if body:
            body[min(int(len(body) * place), len(body) - 1)] ^= 1 << bit
        exchange.send(replace(reply, body=bytes(body)))

    return fault


def ignored_range(exchange: Exchange) -> None:
    """Answer with the whole object and status 200, whatever Range and If-Match say."""
    exchange.send(exchange.whole())


def other_range(*, admitted: bool) -> Fault:
    """Answer with bytes 64 away from the requested ones; Content-Range says so if `admitted`."""

    def fault(exchange: Exchange) -> None:
        whole = exchange.whole()
        start, stop = exchange.interval(len(whole.body))
        shift = -_SHIFT if start >= _SHIFT else _SHIFT
        exchange.send(whole.part(start + shift, stop + shift, start + shift if admitted else start))

    return fault


def replaced(data: bytes, etag: str = '"another"') -> Fault:
    """Answer as if the object had been replaced by `data`; ignore If-Match."""

    def fault(exchange: Exchange) -> None:
        whole = Reply(200, {"ETag": etag, "x-goog-generation": etag}, data)
        start, stop = exchange.interval(len(data))
        exchange.send(whole.part(start, stop, start) if exchange.range else whole)

    return fault
