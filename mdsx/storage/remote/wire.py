"""Connections that bound what a server sends, below urllib3: seconds and bytes of each answer.

`http.client` reads an answer until it ends, however long that takes, and skips interim answers and trailers without
counting them. Here, everything that it reads passes one reader with the limits of `limits.py`. `bounded` makes a
connection pool of urllib3, or one of botocore or requests, use it.
"""

from __future__ import annotations

import functools
import http.client
import io
import time
from typing import Any

from mdsx.storage.remote import limits


class SlowError(OSError):
    """A server takes too long."""


class ExcessError(OSError):
    """A server sends more than it may."""


class _Wire(io.RawIOBase):
    """The bytes of one answer, as they come."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._came = 0  # bytes, in
        self._waited = 0.0  # seconds
        self._method: str | None = None

    def body(self, method: str) -> None:
        """The headers are complete: from now on, the limits are those of the body of an answer to `method`."""
        self._method, self._came, self._waited = method, 0, 0.0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        started = time.monotonic()
        count: int | None = self._raw.readinto(buffer)
        self._waited += time.monotonic() - started
        self._came += count or 0
        self._check()
        return count

    def _check(self) -> None:
        if self._method is None:
            if self._came > limits.HEAD + io.DEFAULT_BUFFER_SIZE:
                raise ExcessError(f"the headers have more than {limits.HEAD:,} bytes")
            if self._waited > limits.HEAD_SECONDS:
                raise SlowError(f"the headers take more than {limits.HEAD_SECONDS} s")
        elif self._method in ("GET", "HEAD"):
            if self._came >= limits.LEAST:
                self._came, self._waited = 0, 0.0
            elif self._waited > limits.TRICKLE:
                raise SlowError(f"the body trickles: {self._came} bytes in {self._waited:.0f} s")
        elif self._waited > limits.WRITE_SECONDS:
            raise SlowError(f"the answer takes more than {limits.WRITE_SECONDS} s")

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Reader(io.BufferedReader):
    """Bounds lines: headers, and those between the bytes of a body in chunks."""

    def __init__(self, wire: _Wire) -> None:
        super().__init__(wire)
        self._framing = float(limits.HEAD)  # bytes of lines that may still come

    def body(self, method: str) -> None:
        wire: Any = self.raw
        wire.body(method)
        self._framing = limits.FRAMING

    def readline(self, size: int | None = -1) -> bytes:
        most = int(self._framing) + 1
        line = super().readline(most if size is None or size < 0 else min(size, most))
        self._framing -= len(line)
        if self._framing < 0:
            raise ExcessError("the answer has more headers, chunk sizes or trailers than it may")
        return line

    def read(self, size: int | None = -1) -> bytes:
        return self._payload(super().read(size))

    def read1(self, size: int = -1) -> bytes:
        return self._payload(super().read1(size))

    def _payload(self, data: bytes) -> bytes:
        self._framing = min(self._framing + len(data) / limits.FRAMING_SHARE, limits.FRAMING)
        return data


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: Any, debuglevel: int = 0, method: str | None = None, url: str | None = None) -> None:
        super().__init__(sock, debuglevel, method, url)
        self._asked = method or "GET"
        self.fp: Any = _Reader(_Wire(self.fp.detach()))

    def begin(self) -> None:
        super().begin()
        if self.fp is not None:
            self.fp.body(self._asked)


@functools.cache
def bounded(pool: Any) -> Any:
    """Return a subclass of `pool`, a class of connection pools of urllib3, whose answers are bounded."""
    kind = pool.ConnectionCls
    if kind.response_class is _Response:
        return pool
    connection = type(kind.__name__, (kind,), {"response_class": _Response})  # errors show the name
    return type(pool.__name__, (pool,), {"ConnectionCls": connection})


def bound(manager: Any) -> Any:
    """Return `manager`, a PoolManager of urllib3, with bounded connections."""
    manager.pool_classes_by_scheme = {scheme: bounded(pool) for scheme, pool in manager.pool_classes_by_scheme.items()}
    return manager
