"""S3 through boto3: the clients of this process, bodies that are read with a deadline, and errors of mdsx.

Storages with the same configuration share one boto3 client, because making one takes 0.3 seconds. The configuration is
what boto3 reads: environment variables, and the current content of its two files. A client whose credentials were
refused is dropped, so that the next request reads them again. A forked child makes its own clients.

Every wait for the network has a limit: `CONNECT` seconds for a connection to an address, `SILENCE` seconds for the
headers of an answer and for each next byte of a body. A body that trickles, with less than `LEAST` bytes in `TRICKLE`
seconds of waiting, counts as broken off. These limits allow 64 concurrent requests over 20 kB/s.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakSet

from mdsx.errors import ChangedError, ForbiddenError, MissingError, TransportError, TruncatedError, UsageError, redacted
from mdsx.process import Owner, at_fork, exhausted
from mdsx.storage.retry import Contact, TransientError, contact

CONNECT = 10  # seconds
SILENCE = 30
TRICKLE = 60
LEAST = 16 * 1024  # bytes
_CHUNK = 2**20

_MISSING = {"404", "NoSuchKey", "NoSuchUpload", "NotFound"}
_FORBIDDEN = {"401", "403", "AccessDenied", "AllAccessDisabled", "ExpiredToken", "InvalidAccessKeyId"}
_FORBIDDEN |= {"InvalidToken", "RequestTimeTooSkewed", "SignatureDoesNotMatch", "Unauthorized", "TokenRefreshRequired"}
_FOR_NOW = {"InternalError", "OperationAborted", "RequestTimeout", "ServiceUnavailable", "SlowDown", "Throttling"}
_FOR_NOW |= {"RequestLimitExceeded", "ThrottlingException", "TooManyRequests", "429", "500", "502", "503", "504"}
_FULL = {"InsufficientStorage", "QuotaExceeded", "XMinioStorageFull"}  # the codes of several servers
_CREDENTIALS_HINT = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or a role, as for any boto3 program"
_CONNECTIONS = 64
_KEPT = 8  # clients, each for one configuration
_PROBE = 1.0  # seconds
_VARIABLES = ("AWS_", "BOTO_")
_OTHERS = {"HOME", "REQUESTS_CA_BUNDLE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"}
_FILES = {"AWS_CONFIG_FILE": "~/.aws/config", "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials"}


# --- clients


class Client:
    """A boto3 client of this process, and whether its endpoint has answered."""

    def __init__(self, boto: Any) -> None:
        self.boto = boto
        self.owner = Owner()
        self.url: str = boto.meta.endpoint_url
        self.endpoint = contact(self.url)
        _alive.add(self)

    def bucket(self, name: str) -> Contact:
        """Return the contact for one of its buckets."""
        return contact(f"{self.url} {name}")

    def speaks_tls(self) -> bool:
        """Whether the endpoint, configured as http://, expects https://."""
        parts = urlsplit(self.url)
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


def shared_client() -> Client:
    """Return this process's client for the current configuration."""
    configuration = _configuration()
    with _lock:
        client = _clients.get(configuration)
        if client is None:
            client = _clients[configuration] = Client(_make_client())
            if len(_clients) > _KEPT:
                _clients.popitem(last=False)
        _clients.move_to_end(configuration)
        return client


def retire(client: Client) -> None:
    """Drop a client whose credentials were refused, so that the next request makes a new one."""
    with _lock:
        for configuration in [known for known, other in _clients.items() if other is client]:
            del _clients[configuration]


_lock = threading.Lock()
_clients: OrderedDict[object, Client] = OrderedDict()
_alive: WeakSet[Client] = WeakSet()
_of_the_parent: list[Client] = []


def _forget_in_child() -> None:
    """Keep the parent's clients forever: closing their connections here could wait for a lock of the parent's."""
    global _lock
    _of_the_parent.extend(_alive)
    _lock = threading.Lock()
    _clients.clear()


at_fork(after_in_child=_forget_in_child)


def _configuration() -> object:
    """Return everything that boto3's configuration depends on."""
    variables = [
        (name, value) for name, value in os.environ.items() if name.startswith(_VARIABLES) or name.upper() in _OTHERS
    ]
    files = []
    for variable, default in _FILES.items():
        with suppress(OSError):
            status = os.stat(os.path.expanduser(os.environ.get(variable) or default))
            files.append((variable, status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(sorted(variables)), tuple(files), SILENCE


def _make_client() -> Any:
    import boto3
    from botocore.config import Config

    config = Config(
        connect_timeout=CONNECT,
        read_timeout=SILENCE,
        retries={"mode": "standard", "total_max_attempts": 1},
        max_pool_connections=_CONNECTIONS,
        # mdsx has checksums of its own, and many servers do not know these newer ones.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        user_agent_extra="mdsx",
    )
    try:
        return boto3.session.Session().client("s3", config=config)
    except Exception as error:  # botocore's, of many kinds: no region, no such profile, a broken configuration file
        if isinstance(error, ValueError) and "endpoint" in str(
            error
        ):  # the message has the URL, which may have secrets
            hint = "AWS_ENDPOINT_URL must be a complete URL, like http://localhost:9000"
            raise TransportError("S3 is not configured: the endpoint is not a URL", hint=hint) from None
        if (too_many := exhausted(error, "S3")) is not None:
            raise too_many from _safe(error)
        raise TransportError(f"S3 is not configured: {error}", hint=_CREDENTIALS_HINT) from _safe(error)


# --- answers


class Response:
    """A body that starts at byte `at` of an object of `total` bytes; only bytes [at + skip, stop) are read."""

    def __init__(
        self, body: Any, file: str, etag: str, total: int, *, at: int = 0, skip: int = 0, stop: int | None
    ) -> None:
        self.etag = etag
        self.total = total
        self._body = body
        self._file = file
        self._skip = skip
        self._left = max((total if stop is None else min(stop, total)) - at - skip, 0)
        self._came = 0  # bytes, in
        self._waited = 0.0  # seconds; both counters restart once enough bytes came

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
                self._body.close()

    def read(self) -> bytes:
        return b"".join(self.chunks())

    def _read(self, most: int) -> bytes:
        """Return what has arrived, at least a byte."""
        started = time.monotonic()
        with errors(self._file):
            raw = self._body._raw_stream  # botocore's own read() waits for all requested bytes
            if hasattr(raw, "read1"):
                chunk: bytes = raw.read1(min(most, _CHUNK))
            else:  # urllib3 1: judged by the time that these bytes take
                chunk = raw.read(min(most, LEAST))
        if not chunk:
            expected = f"{self._skip + self._left} more bytes"
            raise TransientError(TruncatedError, "the body ended early", file=self._file, expected=expected)
        self._came += len(chunk)
        self._waited += time.monotonic() - started
        if self._came >= LEAST:
            self._came, self._waited = 0, 0.0
        elif self._waited > TRICKLE:
            message = f"the body trickles: {self._came} bytes in {self._waited:.0f} s"
            raise TransientError(TruncatedError, message, file=self._file)
        return chunk


def _safe(error: BaseException) -> BaseException | None:
    """Return `error` for use as a cause, which tracebacks print; None if it has a secret from a URL."""
    texts: list[str] = []
    chain: BaseException | None = error
    while chain is not None and len(texts) < 10:
        texts.append(f"{chain} {chain!r}")
        chain = chain.__cause__ or chain.__context__
    text = " ".join(texts)
    return error if redacted(text) == text else None


@contextmanager
def errors(file: str) -> Iterator[None]:
    """Raise an MdsxError or TransientError in place of boto3's errors."""
    from botocore.exceptions import BotoCoreError, ClientError
    from urllib3.exceptions import HTTPError

    try:
        yield
    except (BotoCoreError, ClientError, HTTPError, OSError) as error:
        raise exhausted(error, file) or _translated(error, file) from _safe(error)


def _translated(error: Exception, file: str) -> Exception:
    from botocore import exceptions as boto

    if isinstance(error, boto.ClientError):
        return _client_error(error.response, file)
    if isinstance(error, boto.NoCredentialsError | boto.PartialCredentialsError | boto.TokenRetrievalError):
        return ForbiddenError(f"no credentials: {error}", file=file, hint=_CREDENTIALS_HINT)
    broken = (boto.IncompleteReadError, boto.ResponseStreamingError, boto.ReadTimeoutError)
    if isinstance(error, boto.ConnectionError) and not isinstance(error, broken):  # not what came through it
        hint = "check AWS_ENDPOINT_URL; connect_timeout= (--connect-timeout) retries a first contact for longer"
        return TransientError(TransportError, f"no answer: {error}", "endpoint", file=file, hint=hint)
    if isinstance(error, boto.ParamValidationError):
        return UsageError(f"S3 cannot have such a name: {error}", file=file)
    if isinstance(error, boto.BotoCoreError) and not isinstance(error, (*broken, boto.HTTPClientError)):
        return TransportError(f"{type(error).__name__}: {error}", file=file)
    return TransientError(TruncatedError, f"the answer broke off: {error}", file=file)


def _client_error(response: dict[str, Any], file: str) -> Exception:
    code = str(response.get("Error", {}).get("Code", ""))
    status = str(response.get("ResponseMetadata", {}).get("HTTPStatusCode", ""))
    text = f"{code} {response.get('Error', {}).get('Message', '')}".strip()
    if code == "NoSuchBucket":
        hint = "create it, or check the URL and AWS_ENDPOINT_URL"
        return TransientError(MissingError, f"there is no such bucket: {text}", "bucket", file=file, hint=hint)
    if code in _MISSING or status == "404":
        return MissingError(f"it is not there: {text}", file=file)
    if code in _FULL or status == "507":
        hint = "free some space or raise the quota, and resume"
        return TransportError(f"S3 answered {status} {text}", file=file, hint=hint)
    if code in _FORBIDDEN or status in ("401", "403"):
        return ForbiddenError(f"S3 refused: {text}", file=file, hint="check the credentials and their permissions")
    if status == "412":
        return ChangedError("the object was replaced while it was read", file=file)
    if status == "416":
        return TruncatedError("the object ends before the bytes asked for", file=file)
    if code in _FOR_NOW or status in _FOR_NOW:
        return TransientError(TransportError, f"S3 answered {status} {text}", file=file)
    return TransportError(f"S3 answered {status} {text}", file=file)
