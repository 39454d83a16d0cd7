"""Bodies of HTTP answers, read with a deadline, and the limits of every wait for the network.

There are `CONNECT` seconds for a connection to an address, and `SILENCE` seconds for the headers of an answer and for
each next byte of a body. A body that trickles, with less than `LEAST` bytes in `TRICKLE` seconds of waiting, counts as
broken off. These limits allow 64 concurrent requests over 20 kB/s.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mdsx.errors import TransportError, TruncatedError, redacted
from mdsx.process import exhausted
from mdsx.storage.retry import TransientError

CONNECT = 10  # seconds
SILENCE = 30
TRICKLE = 60
LEAST = 16 * 1024  # bytes
_CHUNK = 2**20


class Body:
    """The body of `raw`, an open response of urllib3. A body that trickles counts as broken off."""

    def __init__(self, raw: Any, file: str) -> None:
        self._raw = raw
        self._file = file
        self._came = 0  # bytes, in
        self._waited = 0.0  # seconds; both counters restart once enough bytes came

    def rest(self, most: int | None = None) -> bytes:
        """Return the body until its end, but hardly more than `most` bytes. Raise TransientError if it breaks off."""
        chunks: list[bytes] = []
        left = sys.maxsize if most is None else most
        while left > 0 and (chunk := self._arrived(left)):
            chunks.append(chunk)
            left -= len(chunk)
        return b"".join(chunks)

    def _arrived(self, most: int) -> bytes:
        """Return what has arrived, at least a byte; nothing at the end."""
        started = time.monotonic()
        with errors(self._file):
            if hasattr(self._raw, "read1"):
                chunk: bytes = self._raw.read1(min(most, _CHUNK))
            else:  # urllib3 1: judged by the time that these bytes take
                chunk = self._raw.read(min(most, LEAST))
        self._came += len(chunk)
        self._waited += time.monotonic() - started
        if self._came >= LEAST:
            self._came, self._waited = 0, 0.0
        elif self._waited > TRICKLE:
            message = f"the body trickles: {self._came} bytes in {self._waited:.0f} s"
            raise TransientError(TruncatedError, message, file=self._file)
        return chunk


class Answer(Body):
    """A body that starts at byte `at` of an object of `total` bytes; only bytes [at + skip, stop) are read."""

    def __init__(
        self, raw: Any, file: str, etag: str, total: int, *, at: int = 0, skip: int = 0, stop: int | None
    ) -> None:
        super().__init__(raw, file)
        self.etag = etag
        self.total = total
        self._skip = skip
        self._left = max((total if stop is None else min(stop, total)) - at - skip, 0)

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes in chunks. Raise TransientError if the body breaks off."""
        try:
            while self._skip:
                self._skip -= len(self._read(self._skip))
            while self._left:
                chunk = self._read(self._left)
                self._left -= len(chunk)
                yield chunk
        finally:
            if self._left or self._skip:
                self._raw.close()

    def read(self) -> bytes:
        return b"".join(self.chunks())

    def _read(self, most: int) -> bytes:
        """Return what has arrived, at least a byte."""
        chunk = self._arrived(most)
        if not chunk:
            expected = f"{self._skip + self._left} more bytes"
            raise TransientError(TruncatedError, "the body ended early", file=self._file, expected=expected)
        return chunk


@contextmanager
def errors(file: str, hint: str = "check the endpoint") -> Iterator[None]:
    """Raise an MdsxError or TransientError in place of urllib3's errors."""
    from urllib3 import exceptions

    try:
        yield
    except (exceptions.HTTPError, OSError) as error:
        raise exhausted(error, file) or _translated(error, file, hint) from safe(error)


def _translated(error: Exception, file: str, hint: str) -> Exception:
    from urllib3 import exceptions

    if isinstance(error, exceptions.LocationParseError | exceptions.LocationValueError):
        return TransportError("the endpoint is not a URL", file=file, hint=hint)
    if isinstance(
        error,
        exceptions.NewConnectionError | exceptions.ConnectTimeoutError | exceptions.SSLError | exceptions.ProxyError,
    ):
        hint += "; the option connect_timeout retries a first contact for longer"
        return TransientError(TransportError, f"no answer: {error}", "endpoint", file=file, hint=hint)
    return TransientError(TruncatedError, f"the answer broke off: {error}", file=file)


class _Redaction(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = redacted(record.getMessage()), None
        return True


_redaction = _Redaction()


def keep_secrets(*names: str) -> None:
    """Let these loggers, of other packages, show no secrets: they log the URL and the headers of each request."""
    for name in names:
        logging.getLogger(name).addFilter(_redaction)


def safe(error: BaseException) -> BaseException | None:
    """Return `error` for use as a cause, which tracebacks print; None if it has a secret."""
    texts: list[str] = []
    chain: BaseException | None = error
    while chain is not None and len(texts) < 10:
        texts.append(f"{chain} {chain!r}")
        chain = chain.__cause__ or chain.__context__
    text = " ".join(texts)
    return error if redacted(text) == text else None
