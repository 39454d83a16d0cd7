"""The base of all remote storages: ranges, downloads that continue where they broke, and facts about the endpoint.

Each cloud opens an object (`_open`) and sends requests to its server (`_asked`). Some servers answer a range with 200
instead of 206, or ignore a condition or a range. So the headers of a response decide which object and
which bytes it has.
"""

from __future__ import annotations

import re
import signal
import socket
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from threading import Timer, get_ident
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import SplitResult, urlsplit

from mdsx.base.pieces import Pieces
from mdsx.base.process import REQUESTS, Share, at_fork
from mdsx.errors import ChangedError, ForbiddenError, MissingError, TransportError, TruncatedError, UsageError, shown
from mdsx.storage.base import MissingBucketError, Piece, Room, Sink, check_key
from mdsx.storage.remote import limits, parse
from mdsx.storage.remote.answer import Answer
from mdsx.storage.retry import FIRST_CONTACT, TransientError, Tries, believe, contact, tried
from mdsx.storage.throttle import throttle

if TYPE_CHECKING:
    from typing_extensions import Buffer

_PROBE = 5.0  # seconds
_AFTER_FORK = 0.1  # seconds from the hook to the end of the fork, and far more
_PARTIAL = 206

T = TypeVar("T")


class RemoteStorage(ABC):
    """The objects below `url`, in the bucket `bucket`, whose keys begin with `prefix`.

    `connect_timeout`: see `mdsx.storage.options.BaseOptions`.
    """

    way_out = "check the endpoint"

    def __init__(self, url: str, bucket: str, prefix: str, connect_timeout: float | None) -> None:
        self._url = url
        self._bucket = bucket
        self._prefix = check_key(prefix) + "/" if prefix else ""
        self._connect_timeout = connect_timeout

    def __getstate__(self) -> dict[str, object]:
        """Include the facts about the endpoint, so that an outage is not mistaken for a wrong URL."""
        names = self._contacts() if self._has_endpoint() else ()
        return {**self.__dict__, "answered": tuple(name for name in names if contact(name).answered)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        believe(state.pop("answered"))
        self.__dict__.update(state)

    @property
    def url(self) -> str:
        return self._url

    def path(self, key: str) -> Path | None:
        check_key(key)
        return None

    def get(self, key: str, *, start: int = 0, stop: int | None = None, etag: str | None = None) -> Piece:
        def read() -> Piece:
            try:
                answer = self._open(key, start, stop, etag)
            except TruncatedError:
                if start or stop is None:
                    raise
                answer = self._open(key, 0, None, etag)  # an empty object has no range
                if answer.total:
                    answer.close()
                    raise
            if stop is None and (size := answer.left) > limits.OBJECT:
                answer.close()
                message = "the object is too large to be read whole"
                raise TransportError(
                    message, file=self._file(key), found=size, expected=f"at most {limits.OBJECT:,} bytes"
                )
            return Piece(answer.read(), answer.etag, answer.total)

        return tried(read, self._limit)

    def download(self, key: str, sink: Sink, *, size: int, etag: str | None = None, room: Room | None = None) -> None:
        file, tries, reached, mark = self._file(key), Tries(self._limit), 0, 0
        while True:
            try:
                answer = self._open(key, reached, None, etag)
                if answer.total != size:
                    answer.close()
                    kind = TruncatedError if answer.total < size else ChangedError
                    raise kind("the object has another size", file=file, found=answer.total, expected=size)
                etag = answer.etag or etag
                for chunk in answer.chunks():
                    sink(chunk)
                    reached += len(chunk)
                return
            except TransientError as failure:
                if reached - mark >= limits.LEAST:
                    mark = reached
                    tries.progressed()
                tries.failed(failure)

    def put(self, key: str, *pieces: Buffer) -> None:
        self._store(key, Pieces(*pieces), None)

    def create(self, key: str, data: Buffer) -> None:
        file = self._file(key)
        try:
            with suppress(MissingError):
                self.get(key, stop=1)  # some servers ignore the condition of a PUT
                raise ChangedError("the object exists already", file=file)
            self._store(key, Pieces(data), "")
        except ChangedError as error:
            if not self._has(key, data):  # otherwise the response to our own PUT was lost
                raise ChangedError("the object exists already", file=file) from error

    def replace(self, key: str, data: Buffer, *, etag: str) -> None:
        try:
            self.get(key, stop=1, etag=etag)  # some servers ignore the condition of a PUT
            self._store(key, Pieces(data), etag or None)
        except MissingBucketError:
            raise
        except (ChangedError, MissingError) as error:
            if not self._has(key, data):  # otherwise the response to our own PUT was lost
                raise ChangedError("the object was replaced or removed meanwhile", file=self._file(key)) from error

    def connect(self, key: str, count: int) -> None:
        self._contacts()  # makes the client, once

        def ask() -> None:  # a connection is opened only for a request
            with suppress(Exception):
                self._open(key, 0, 1, None).read()

        threads = Share(REQUESTS)
        for _ in range(count):
            future = threads.submit(ask)
            _connecting.add(future)
            future.add_done_callback(_connecting.discard)

    # --- for `mdsx doctor`

    @abstractmethod
    def identity(self) -> str:
        """Return which credentials requests carry, and their source, without secrets.

        Raise MdsxError if there are none, or the configuration is wrong.
        """

    def landmark(self) -> str:
        """Return a URL whose response `recognises` accepts if the server is of the right kind, even without
        credentials."""
        return self._endpoint()

    def recognises(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Whether a response for the landmark is from this kind of server."""
        return True

    def regions(self, headers: Mapping[str, str]) -> tuple[str, str] | None:
        """Return the region that requests name, and the bucket's, if a response for the landmark has it."""
        return None

    @property
    def endpoint(self) -> str:
        """The URL of the server."""
        return self._endpoint()

    @property
    def bucket(self) -> str:
        """The name of the bucket, container or repository."""
        return self._bucket

    # --- inside

    @abstractmethod
    def _open(self, key: str, start: int, stop: int | None, etag: str | None) -> Answer:
        """Request bytes [start, stop), on the condition of `etag` if given, and return the open response."""

    @abstractmethod
    def _store(self, key: str, data: Pieces, etag: str | None) -> None:
        """Store an object. With `etag`, only replace the object that has it; with "", only create the object.

        Raise ChangedError if the condition fails."""

    def _has(self, key: str, data: Buffer) -> bool:
        """Return whether the object has these bytes."""
        try:
            return self.get(key).data == bytes(data)
        except MissingError:
            return False

    @abstractmethod
    def _endpoint(self) -> str:
        """Return the URL of the server."""

    def _has_endpoint(self) -> bool:
        """Whether the server is known already."""
        return True

    def _refused(self, error: ForbiddenError) -> None:  # noqa: B027 - a cloud without credentials has none to drop
        """Drop credentials that the server refused, so that the next request reads them again."""

    def _file(self, key: str) -> str:
        return f"{self.url}/{check_key(key)}"

    def _contacts(self) -> tuple[str, str]:
        """Return the names of the contacts for the endpoint and for the bucket."""
        endpoint = self._endpoint()
        return endpoint, f"{endpoint} {self._bucket}"

    def _asked(self, file: str, ask: Callable[[], T]) -> T:
        """Return the result of `ask`, which sends a request. Note that the endpoint and the bucket answered."""
        names = self._contacts()
        endpoint, bucket = map(contact, names)
        turns = throttle(names[1])
        sent = turns.turn()
        try:
            result = ask()
        except TransientError as failure:
            if failure.limited:
                turns.refused(sent)
                failure.answered_at = turns.answered_at
            if failure.lasting != "endpoint":
                if not endpoint.answered and failure.kind is TruncatedError and speaks_tls(names[0]):
                    message = "the endpoint expects https://, not http://"
                    lasting = TransientError(TransportError, message, "endpoint", file=file, hint=self.way_out)
                    raise lasting from failure
                endpoint.found(names[0])
            raise
        except ForbiddenError as error:
            self._refused(error)
            raise
        except MissingError:
            endpoint.found(names[0])
            bucket.found(self.url)
            raise
        endpoint.found(names[0])
        bucket.found(self.url)
        turns.answered()
        return result

    def _limit(self, failure: TransientError) -> float | None:
        """Return how many seconds to retry; None for the default."""
        if failure.lasting is None:
            return None
        known = contact(self._contacts()[0 if failure.lasting == "endpoint" else 1])
        if known.answered:
            known.lost(str(failure.final()))
            return None
        if self._connect_timeout is not None:
            return self._connect_timeout
        return 0.0 if failure.lasting == "bucket" else FIRST_CONTACT


def covering(
    raw: Any,
    file: str,
    start: int,
    stop: int | None,
    *,
    status: int,
    etag: str,
    wanted: str | None,
    headers: Mapping[str, str],
) -> Answer:
    """Return the response `raw` to a GET of bytes [start, stop) as an Answer, by its `status` and `headers`.

    `etag`: of the response; `wanted`: the requested one. Raise ChangedError if they differ, and TransientError for
    another range, or for a range that the headers do not name.
    """
    try:
        parse.etag(etag)
    except ValueError as error:
        raw.close()
        raise TransportError(f"the server's response is not valid: {error}", file=file) from None
    if wanted and etag and etag != wanted:
        raw.close()
        raise ChangedError("the object was replaced while it was read", file=file)
    named = headers.get("Content-Range") or ""
    covered = parse.content_range(named)
    if covered is None and (named or status == _PARTIAL):  # several ranges in one body, or an unknown size
        raw.close()
        message = "the server sent part of the object, but its headers do not say which part"
        raise TransientError(TransportError, message, file=file, found=shown(named) if named else "no Content-Range")
    if covered is None:  # the whole object, whatever range was requested
        length = parse.number_or_none(headers.get("Content-Length"))
        if length is None:
            raw.close()
            message = "the server does not send the size of the object"
            raise TransportError(message, file=file, hint="use a server that sends Content-Length")
        if start and start >= length:
            raw.close()
            raise TruncatedError("the object ends before the bytes asked for", file=file)
        return Answer(raw, file, etag, length, skip=start, stop=stop)
    first, total = covered
    if first != start:
        raw.close()
        message = "the server sent another range"
        expected = ranged(start, stop) or "the whole object"
        raise TransientError(TransportError, message, file=file, found=shown(named), expected=expected)
    if start >= total:  # some servers answer with no bytes
        raw.close()
        raise TruncatedError("the object ends before the bytes asked for", file=file)
    return Answer(raw, file, etag, total, at=start, stop=stop)


def ranged(start: int, stop: int | None) -> str | None:
    """Return the Range header of bytes [start, stop), which cannot be empty; None for the whole object."""
    if not start and stop is None:
        return None
    return f"bytes={start}-{'' if stop is None else max(stop - 1, start)}"


class Pages:
    """The pages of a listing, which must end."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._marks: set[bytes] = set()
        self._empty = 0

    def following(self, mark: str, found: int) -> str:
        """Return the `mark` of the next page, after one with `found` objects.

        Raise TransportError if it came before, or if there are too many pages.
        """
        digest = blake2b(mark.encode(errors="surrogatepass"), digest_size=16).digest()
        self._empty = 0 if found else self._empty + 1
        if digest in self._marks:
            raise TransportError("the listing does not end: a page came again", file=self._file)
        if len(self._marks) >= limits.PAGES or self._empty >= limits.EMPTY_PAGES:
            expected = f"at most {limits.PAGES:,} pages, and {limits.EMPTY_PAGES:,} empty ones in a row"
            raise TransportError("the listing does not end", file=self._file, expected=expected)
        self._marks.add(digest)
        return mark


def split(url: str) -> SplitResult:
    """Return the parts of `url`. Raise UsageError if it is not a URL."""
    try:
        return urlsplit(url)
    except ValueError as error:  # brackets without an IPv6 address
        raise UsageError(f"not a URL: {error}", found=shown(url)) from None


def bucket_and_prefix(url: str, *, credentials: str, versions: str = "a version") -> tuple[str, str]:
    """Return the bucket and the prefix of `scheme://bucket/prefix`. `credentials`: where they come from, for the hint.

    Raise UsageError, which does not show a wrong URL: a password with a slash in it would be in place of the bucket and
    in the path.
    """
    parts = split(url)
    form = f"a URL is {parts.scheme}://bucket/prefix"
    bucket = parts.netloc.rpartition("@")[2]
    if not _BUCKET.fullmatch(bucket):
        hint = f"a URL must not have credentials: {credentials}"
        raise UsageError(form, expected="a bucket's name of letters, digits, '.', '_', '-'", hint=hint)
    if parts.query or parts.fragment:
        hint = f"remove '?' or '#' and the rest; mdsx reads the current version of each object, never {versions}"
        raise UsageError(f"{form}, without a query or a fragment", hint=hint)
    return bucket, parts.path.strip("/")


def speaks_tls(url: str) -> bool:
    """Whether the endpoint, configured as http://, expects https://."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        return False
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((parts.hostname, parts.port or 80), timeout=_PROBE) as plain,
            context.wrap_socket(plain, server_hostname=parts.hostname),
        ):
            return True
    except (OSError, ValueError):
        return False


_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_connecting: set[Future[None]] = set()


def _settle() -> None:
    """Wait until connections are open: a fork could copy locks that opening holds, which nothing would release.

    Python prints and drops what a hook raises. So Ctrl-C does not end the wait, and arrives after the fork.
    """
    opening, deadline, interrupted = set(_connecting), time.monotonic() + limits.SILENCE, False
    while opening:
        try:
            wait(opening, max(deadline - time.monotonic(), 0))
            break
        except KeyboardInterrupt:
            interrupted = True
    if interrupted:
        Timer(_AFTER_FORK, signal.pthread_kill, (get_ident(), signal.SIGINT)).start()


at_fork(before=_settle, after_in_child=_connecting.clear)
