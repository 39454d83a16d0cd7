"""A server in memory, below urllib3: what it sends is any bytes, and it needs no thread and no port.

`Hostile` replaces what opens connections. Everything above, of urllib3, http.client and botocore, is real.
"""

from __future__ import annotations

import io
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest
import urllib3.util.connection

from mdsx.storage import believe, retry, throttle

ENDPOINT = "http://127.0.0.1:9"
KEYS = {
    "access_key_id": "key-of-hostile-server",
    "secret_access_key": "secret-of-hostile-server",
    "region": "us-east-1",
}
CLOUDS: dict[str, tuple[str, dict[str, Any]]] = {
    "s3": ("s3://bucket/ds", {"endpoint": ENDPOINT, **KEYS}),
    "gs": ("gs://bucket/ds", {"endpoint": ENDPOINT, "anonymous": True}),
    "az": ("az://bucket/ds", {"endpoint": f"{ENDPOINT}/acc", "account": "acc", "anonymous": True}),
    "hf": ("hf://datasets/o/n/ds", {"endpoint": ENDPOINT, "anonymous": True}),
    "web": (f"{ENDPOINT}/ds", {}),
}


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: dict[str, str]

    @property
    def query(self) -> str:
        return urlsplit(self.target).query


class Clock:
    """A clock that moves by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Hostile:
    """`answer` returns the bytes of each answer, in pieces. Before each piece, `seconds` pass by the clock."""

    def __init__(self, answer: Callable[[Request], Iterable[bytes]], seconds: float = 0.0) -> None:
        self.answer = answer
        self.seconds = seconds
        self.clock = Clock()
        self.requests: list[Request] = []
        self.sent = 0  # bytes

    def connect(self, *_: object, **__: object) -> Any:
        return _Socket(self)


class _Socket:
    _closed = socket.socketpair()[0]  # a pool takes the connection for dropped, and opens another one

    def __init__(self, server: Hostile) -> None:
        self._server = server
        self._came = bytearray()

    def sendall(self, data: bytes) -> None:
        self._came += data

    def makefile(self, mode: str, buffering: int = -1) -> io.BufferedReader:
        head, _, _ = bytes(self._came).partition(b"\r\n\r\n")
        self._came.clear()
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        request = Request(method, target, headers)
        self._server.requests.append(request)
        return io.BufferedReader(_Sent(self._server, iter(self._server.answer(request))))

    def fileno(self) -> int:
        return self._closed.fileno()

    def settimeout(self, seconds: float | None) -> None:
        pass

    def shutdown(self, how: int) -> None:
        pass

    def close(self) -> None:
        pass


class _Sent(io.RawIOBase):
    def __init__(self, server: Hostile, pieces: Iterator[bytes]) -> None:
        self._server = server
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            if (piece := next(self._pieces, None)) is None:
                return 0
            self._rest = piece
            self._server.clock.now += self._server.seconds
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        self._server.sent += count
        return count


@contextmanager
def serving(server: Hostile) -> Iterator[None]:
    """Let every new connection be one to `server`, which has answered before. Retries do not wait."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(urllib3.util.connection, "create_connection", server.connect)
        patch.setattr("mdsx.storage.remote.answer.time", server.clock)
        patch.setattr(retry, "pause", lambda failures: None)
        patch.setattr(retry, "wait", lambda seconds: None)
        patch.setattr(throttle, "pause", lambda seconds: None)
        believe([ENDPOINT, f"{ENDPOINT}/acc"])
        yield


def head(status: int = 200, *headers: tuple[str, str]) -> bytes:
    """The status and the headers of an answer."""
    lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def whole(body: bytes = b"", status: int = 200, *headers: tuple[str, str]) -> bytes:
    """An answer with its length."""
    return head(status, ("Content-Length", str(len(body))), *headers) + body
