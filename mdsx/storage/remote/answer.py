"""Responses of servers, within the limits of `limits.py`: connections, bodies, and their errors.

`http.client` reads a response until it ends, however long that takes, and skips interim responses and trailers without
limit. Here, everything that it reads goes through a reader below urllib3 that counts seconds and bytes. `bounded` makes
a connection pool of urllib3, botocore or requests use it.
"""

from __future__ import annotations

import functools
import http.client
import io
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from typing import Any

from mdsx.base.process import exhausted
from mdsx.errors import TransportError, TruncatedError
from mdsx.secret import redacted
from mdsx.storage.remote import limits
from mdsx.storage.retry import TransientError

_CHUNK = 2**20


class SlowError(OSError):
    """A server takes too long."""


class ExcessError(OSError):
    """A server sends more than it may."""


class _Wire(io.RawIOBase):
    """The bytes of one response, as they arrive."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._came = 0  # bytes, in
        self._waited = 0.0  # seconds
        self._method: str | None = None

    def body(self, method: str) -> None:
        """Switch to the limits of a body, in a response to `method`: the headers are complete."""
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
            raise SlowError(f"the response takes more than {limits.WRITE_SECONDS} s")

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Reader(io.BufferedReader):
    """Limits the bytes of lines: headers, and the lines between the chunks of a body."""

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
            raise ExcessError("the response has too many bytes of headers, chunk sizes or trailers")
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
    """Return a subclass of `pool`, a urllib3 class of connection pools, whose responses are bounded."""
    kind = pool.ConnectionCls
    if kind.response_class is _Response:
        return pool
    connection = type(kind.__name__, (kind,), {"response_class": _Response})  # errors show the name
    return type(pool.__name__, (pool,), {"ConnectionCls": connection})


def bound(manager: Any) -> Any:
    """Return `manager`, a PoolManager of urllib3, with bounded connections."""
    manager.pool_classes_by_scheme = {scheme: bounded(pool) for scheme, pool in manager.pool_classes_by_scheme.items()}
    return manager


# --- bodies


class Body:
    """The body of `raw`, an open response of urllib3."""

    def __init__(self, raw: Any, file: str) -> None:
        self._raw = raw
        self._file = file

    def start(self, most: int | None = None) -> bytes:
        """Return the first `most` bytes of the body (default: `limits.ERROR`), or all of it.

        Raise TransientError if it breaks off.
        """
        chunks: list[bytes] = []
        left = limits.ERROR if most is None else most
        while left > 0 and (chunk := self._arrived(left)):
            chunks.append(chunk)
            left -= len(chunk)
        return b"".join(chunks)

    def whole(self, most: int | None = None) -> bytes:
        """Return the body. Raise TransportError if it has more than `most` bytes (default: `limits.DOCUMENT`).

        Raise TransientError if it breaks off.
        """
        most = limits.DOCUMENT if most is None else most
        data = self.start(most + 1)
        if len(data) > most:
            self._raw.close()
            raise TransportError("the response is too long", file=self._file, expected=f"at most {most:,} bytes")
        return data

    def _arrived(self, most: int) -> bytes:
        """Return the bytes that have arrived, at least one; none at the end."""
        with errors(self._file):
            if hasattr(self._raw, "read1"):
                return bytes(self._raw.read1(min(most, _CHUNK)))
            return bytes(self._raw.read(min(most, limits.LEAST)))  # urllib3 1 waits for all of these bytes


class Answer(Body):
    """A body that starts at byte `at` of an object of `total` bytes. Only bytes [at + skip, stop) are read.

    `left`: how many of them have not arrived yet.
    """

    def __init__(
        self, raw: Any, file: str, etag: str, total: int, *, at: int = 0, skip: int = 0, stop: int | None
    ) -> None:
        super().__init__(raw, file)
        self.etag = etag
        self.total = total
        self._skip = skip
        self.left = max((total if stop is None else min(stop, total)) - at - skip, 0)

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes in chunks. Raise TransientError if the body breaks off."""
        try:
            while self._skip:
                self._skip -= len(self._read(self._skip))
            while self.left:
                chunk = self._read(self.left)
                self.left -= len(chunk)
                yield chunk
        finally:
            if self.left or self._skip:
                self._raw.close()

    def close(self) -> None:
        self._raw.close()

    def read(self) -> bytes:
        return b"".join(self.chunks())

    def _read(self, most: int) -> bytes:
        """Return the bytes that have arrived, at least one."""
        chunk = self._arrived(most)
        if not chunk:
            expected = f"{self._skip + self.left} more bytes"
            raise TransientError(TruncatedError, "the body ended early", file=self._file, expected=expected)
        return chunk


@contextmanager
def errors(file: str, hint: str = "check the endpoint") -> Iterator[None]:
    """Replace urllib3's errors by an MdsxError or TransientError."""
    from urllib3 import exceptions

    try:
        yield
    except (exceptions.HTTPError, OSError, HTTPException) as error:
        raise exhausted(error, file) or excess(error, file) or _translated(error, file, hint) from safe(error)


def excess(error: BaseException, file: str) -> Exception | None:
    """Return the error to raise if `error` or one of its causes says that a server exceeds a limit; else None."""
    cause: BaseException | None = error
    for _ in range(10):
        if isinstance(cause, SlowError):
            return TransientError(TruncatedError, str(cause), file=file)
        if isinstance(cause, ExcessError):
            return TransportError(str(cause), file=file, hint="check the endpoint: it does not respond like a storage")
        cause = cause and (cause.__cause__ or cause.__context__)
    return None


def _translated(error: Exception, file: str, hint: str) -> Exception:
    from urllib3 import exceptions

    if isinstance(error, exceptions.LocationParseError | exceptions.LocationValueError):
        return TransportError("the endpoint is not a URL", file=file, hint=hint)
    if isinstance(
        error,
        exceptions.NewConnectionError | exceptions.ConnectTimeoutError | exceptions.SSLError | exceptions.ProxyError,
    ):
        hint += "; to retry a first contact for longer, give the option connect_timeout"
        return TransientError(TransportError, f"no answer: {error}", "endpoint", file=file, hint=hint)
    return TransientError(TruncatedError, f"the response broke off: {error}", file=file)


def safe(error: BaseException) -> BaseException | None:
    """Return `error` for use as a cause, which tracebacks print; None if it contains a secret.

    Its frames are dropped, as other libraries' frames have headers in their variables.
    """
    texts: list[str] = []
    chain: BaseException | None = error
    while chain is not None and len(texts) < 10:
        texts.append(f"{chain} {chain!r}")
        chain.__traceback__ = None
        chain = chain.__cause__ or chain.__context__
    text = " ".join(texts)
    return error if redacted(text) == text else None
