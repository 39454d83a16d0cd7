"""A storage that misbehaves: an HTTP proxy in front of a real S3 server, which breaks chosen requests.

    with Proxy(s3) as proxy:
        os.environ.update(proxy.env())
        rule = proxy.add(cut(0.5), key="*/shard.00001.*", times=2)
        ...  # read
        assert rule.hits == 2

It runs in threads of this process. Requests pass through unchanged, Host header included, so that their signatures
hold. Requests without a fault get the real server's answer. (`tools/link.py` is another proxy: of bytes, for timing.)
"""

from __future__ import annotations

import functools
import os
import random
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit
from weakref import WeakSet

from tools.s3_server import S3Server

_UPSTREAM = 60.0  # seconds that the real server may take
_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "expect", "date", "server"}


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer of the real server."""

    status: int
    headers: Mapping[str, str]
    body: bytes


Fault = Callable[["Exchange"], None]
"""Answers a request wrongly. If it returns without an answer, the connection is closed."""


@dataclass(slots=True)
class Rule:
    """Which requests meet a fault: of those that match, `times` after the first `skip`, each with a probability."""

    fault: Fault
    key: str = "*"  # a pattern of fnmatch for "/bucket/prefix/key"
    method: str = "GET"  # "*" for all
    skip: int = 0
    times: int | None = None  # None: always
    share: float = 1.0  # the probability
    when: Callable[[Exchange], bool] = lambda exchange: True
    hits: int = 0  # requests that met the fault
    _seen: int = field(default=0, repr=False)

    def meets(self, exchange: Exchange, chance: random.Random) -> bool:
        asked = self.method in ("*", exchange.method) and fnmatchcase(exchange.key, self.key)
        if not asked or not self.when(exchange):
            return False
        self._seen += 1
        if self._seen <= self.skip or (self.times is not None and self.hits >= self.times):
            return False
        if self.share < 1.0 and chance.random() >= self.share:
            return False
        self.hits += 1
        return True


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, and whether it met a fault."""

    method: str
    key: str
    range: str
    faulty: bool


class Proxy:
    """The proxy to `server` on a free port, while the context lasts. A request meets the first of `rules` that matches.

    `seed`: for the probabilities. `rules` may be changed at any time.
    """

    def __init__(self, server: S3Server, *, seed: int = 0) -> None:
        self.server = server
        self.rules: list[Rule] = []
        self.asked: list[Asked] = []
        self.client = functools.cache(server.client)
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self._port = 0
        self._listener: _Listener | None = None
        self._thread: threading.Thread | None = None

    def add(self, fault: Fault, **where: Any) -> Rule:
        """Add a rule; `where` are the fields of `Rule`."""
        rule = Rule(fault, **where)
        with self._lock:
            self.rules.append(rule)
        return rule

    def clear(self) -> None:
        """Forget all rules and requests."""
        with self._lock:
            self.rules.clear()
            self.asked.clear()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def env(self) -> dict[str, str]:
        """The environment in which boto3, and so mdsx, uses the server through this proxy."""
        return {**self.server.env(), "AWS_ENDPOINT_URL": self.endpoint}

    @contextmanager
    def down(self) -> Iterator[None]:
        """Refuse connections during the block, and reset those that are open."""
        self._close()
        try:
            yield
        finally:
            self._open()

    def __enter__(self) -> Proxy:
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def fault_for(self, exchange: Exchange) -> Fault | None:
        with self._lock:
            fault = next((rule.fault for rule in self.rules if rule.meets(exchange, self._chance)), None)
            self.asked.append(Asked(exchange.method, exchange.key, exchange.range, fault is not None))
        return fault

    def _open(self) -> None:
        self._listener = _Listener(("127.0.0.1", self._port), self)
        self._port = self._listener.server_address[1]
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(0.01,), name="proxy")
        self._thread.start()

    def _close(self) -> None:
        assert self._listener is not None
        assert self._thread is not None
        self._listener.shutdown()
        self._thread.join()
        self._listener.end()


class Exchange(BaseHTTPRequestHandler):
    """A request, with methods to answer it correctly or wrongly. Faults use the public methods."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Listener
    _unread = 0  # bytes of the request's body
    _answered = False
    _was_reset = False

    @property
    def method(self) -> str:
        return self.command

    @property
    def key(self) -> str:
        """ "/bucket/prefix/key"."""
        return unquote(urlsplit(self.path).path)

    @property
    def range(self) -> str:
        return str(self.headers.get("Range", ""))

    @property
    def proxy(self) -> Proxy:
        return self.server.proxy

    def body(self) -> bytes:
        """The body of the request; can be read once."""
        size, self._unread = self._unread, 0
        return self.rfile.read(size)

    def forward(self) -> Reply:
        """Return the real server's answer."""
        with closing(HTTPConnection(urlsplit(self.proxy.server.endpoint).netloc, timeout=_UPSTREAM)) as upstream:
            upstream.putrequest(self.method, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in ("connection", "expect"):  # neither is signed
                    upstream.putheader(name, value)
            upstream.endheaders(self.body())
            answer = upstream.getresponse()
            return Reply(answer.status, dict(answer.getheaders()), answer.read())

    def whole(self) -> Reply:
        """Return the whole object, whatever range was requested."""
        bucket, _, key = self.key.removeprefix("/").partition("/")
        answer = self.proxy.client().get_object(Bucket=bucket, Key=key)
        return Reply(200, {"ETag": answer["ETag"]}, answer["Body"].read())

    def send(self, reply: Reply, *, stop: int | None = None) -> None:
        """Answer; with `stop`, announce the whole body but send only that many bytes."""
        self.send_response(reply.status)
        given = {name.lower(): value for name, value in reply.headers.items()}
        for name, value in given.items():
            if name not in _HOP:
                self.send_header(name, value)
        length = given.get("content-length") if self.method == "HEAD" else None
        self.send_header("Content-Length", length or str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body[:stop])
        self._answered = stop is None

    def refuse(self, status: int, code: str) -> None:
        """Answer as an S3 that refuses."""
        self.body()
        text = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>injected</Message></Error>'
        body = b"" if self.method == "HEAD" else text.encode()
        self.send(Reply(status, {"Content-Type": "application/xml"}, body))

    def complete(self) -> None:
        """Everything announced was sent: keep the connection."""
        self._answered = True

    def hang(self, seconds: float | None = None) -> bool:
        """Wait `seconds` (None: forever), or until the client or the proxy ends; return whether one of them did."""
        self.body()
        return bool(select.select([self.connection], [], [], seconds)[0])

    def reset(self) -> None:
        """Close the connection with a TCP reset."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._was_reset = True

    # --- inside

    def _exchange(self) -> None:
        self._unread = int(self.headers.get("Content-Length") or 0)
        self._answered = self._was_reset = False
        fault = self.proxy.fault_for(self)
        if fault is None:
            self.send(self.forward())
        else:
            fault(self)
        if not self._answered:
            self.close_connection = True
            if not self._was_reset:
                self.connection.shutdown(socket.SHUT_RDWR)
        elif self._unread:
            self.close_connection = True

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _exchange  # noqa: N815  http.server's names

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], proxy: Proxy) -> None:
        super().__init__(address, Exchange)
        self.proxy = proxy
        self._connections: WeakSet[socket.socket] = WeakSet()
        _listeners.add(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with suppress(OSError):
            linger = request.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)
            if not struct.unpack("ii", linger)[0]:  # closing alone makes a reset
                request.shutdown(socket.SHUT_WR)
        self.close_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore broken connections: they are intended."""

    def end(self) -> None:
        """Close the port and all connections, which also ends threads that hang."""
        _listeners.discard(self)
        self.server_close()
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close_in_child(self) -> None:
        """Close the sockets in a forked child, where they would stay open when they are closed here."""
        for each in (self.socket, *self._connections):
            with suppress(OSError):
                os.close(each.detach())


_listeners: WeakSet[_Listener] = WeakSet()


def _close_in_child() -> None:
    for listener in list(_listeners):
        listener.close_in_child()


os.register_at_fork(after_in_child=_close_in_child)


# --- faults


def status(code: int, name: str) -> Fault:
    """An error of S3: (500, "InternalError"), (503, "SlowDown"), (403, "ExpiredToken"), (404, "NoSuchKey"), ..."""
    return lambda exchange: exchange.refuse(code, name)


def cut(share: float = 0.5) -> Fault:
    """Correct headers, but the body ends after a share of it."""
    return _after(share, lambda exchange: None)


def reset(share: float | None = 0.5) -> Fault:
    """The connection is reset after a share of the body; None: before the request is forwarded."""
    return _after(share, Exchange.reset)


def stall(share: float | None = 0.5) -> Fault:
    """Stall forever after a share of the body; None: before the request is forwarded."""
    return _after(share, Exchange.hang)


def _after(share: float | None, end: Callable[[Exchange], object]) -> Fault:
    def fault(exchange: Exchange) -> None:
        if share is not None:
            reply = exchange.forward()
            exchange.send(reply, stop=int(len(reply.body) * share))
        end(exchange)

    return fault


def lost(exchange: Exchange) -> None:
    """The request succeeds, but its answer never arrives: the connection is reset."""
    exchange.forward()
    exchange.reset()


def trickle(pause: float, share: float = 0.1) -> Fault:
    """After a share of the body, send the rest byte by byte with pauses."""

    def fault(exchange: Exchange) -> None:
        reply = exchange.forward()
        start = int(len(reply.body) * share)
        exchange.send(reply, stop=start)
        for at in range(start, len(reply.body)):
            if exchange.hang(pause):
                return
            exchange.wfile.write(reply.body[at : at + 1])
        exchange.complete()

    return fault


def flip(place: float = 0.5, bit: int = 0) -> Fault:
    """Flip one bit of the body; the headers, ETag included, are correct."""

    def fault(exchange: Exchange) -> None:
        reply = exchange.forward()
        body = bytearray(reply.body)
        if body:
            body[min(int(len(body) * place), len(body) - 1)] ^= 1 << bit
        exchange.send(Reply(reply.status, reply.headers, bytes(body)))

    return fault


def ignored_range(exchange: Exchange) -> None:
    """Answer with the whole object and status 200, whatever Range and If-Match say."""
    exchange.send(exchange.whole())


def other_range(*, admitted: bool) -> Fault:
    """Answer with bytes 64 away from the requested ones; Content-Range says so if `admitted`."""

    def fault(exchange: Exchange) -> None:
        reply = exchange.whole()
        start, stop = asked_range(exchange, len(reply.body))
        begin = start - 64 if start >= 64 else start + 64
        body = reply.body[begin : begin + stop - start]
        claimed = begin if admitted else start
        headers = {**reply.headers, "Content-Range": f"bytes {claimed}-{claimed + len(body) - 1}/{len(reply.body)}"}
        exchange.send(Reply(206, headers, body))

    return fault


def replaced(data: bytes, etag: str = '"another"') -> Fault:
    """Answer as if the object had been replaced by `data`; ignore If-Match."""

    def fault(exchange: Exchange) -> None:
        if not exchange.range:
            exchange.send(Reply(200, {"ETag": etag}, data))
            return
        start, stop = asked_range(exchange, len(data))
        headers = {"ETag": etag, "Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"}
        exchange.send(Reply(206, headers, data[start:stop]))

    return fault


def asked_range(exchange: Exchange, total: int) -> tuple[int, int]:
    """Return the requested half-open range of the object."""
    if not exchange.range:
        return 0, total
    first, _, last = exchange.range.removeprefix("bytes=").partition("-")
    return int(first), min(int(last) + 1 if last else total, total)
