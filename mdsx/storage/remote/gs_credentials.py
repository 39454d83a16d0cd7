"""Access tokens for Google Cloud Storage, from google-auth. All storages of a process with the same options share one.

google-auth finds the credentials as Google's own libraries do, and gets tokens with them. Its objects are not
thread-safe, so one lock covers every call. A forked child inherits the token, and reads the credentials again when it
expires.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC
from http.client import HTTPException
from math import inf
from typing import Any

from mdsx.base.process import at_fork, exhausted
from mdsx.errors import ForbiddenError, TransportError, UsageError
from mdsx.secret import Secret
from mdsx.storage.options import IN_HEADER, RemoteOptions
from mdsx.storage.remote import limits, parse
from mdsx.storage.remote.answer import Body
from mdsx.storage.remote.http import pool
from mdsx.storage.remote.trust import Address
from mdsx.storage.retry import TransientError

EARLY = 225.0  # seconds before its expiry to renew a token: Google's servers have a new one 300 seconds before
_AGAIN = 30.0  # seconds until a failed renewal is retried
YOUNG = 60.0  # a refused token that is older, in seconds, may only be out of date
_MESSAGE = 500  # characters
_SCOPES = ("https://www.googleapis.com/auth/devstorage.read_write",)
_VARIABLES = ("GOOGLE_", "CLOUDSDK_", "GCE_", "HOME", "APPDATA")
WAY_OUT = (
    "give GOOGLE_APPLICATION_CREDENTIALS or the option credentials (a JSON file), run `gcloud auth application-default "
    "login`, or give the option anonymous for a public bucket"
)


@dataclass(frozen=True, kw_only=True, repr=False)
class GsOptions(RemoteOptions):
    """`credentials`: the path of a JSON file; `requester_pays`: the project to bill."""

    token: Secret | None = field(default=None, metadata=IN_HEADER)
    credentials: str | None = None
    requester_pays: str | None = None


@dataclass(frozen=True, slots=True)
class _Token:
    """A token, with the times when this process got it, when to renew it, and when it expires, by the monotonic clock,
    which nobody sets."""

    text: Secret
    since: float
    renew: float
    expires: float


class Credentials:
    """The credentials that google-auth finds, or those of the JSON file at `path`. Thread-safe."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._google: Any = None
        self._token: _Token | None = None

    def token(self, file: str) -> Secret:
        """Return an access token. Raise ForbiddenError, UsageError or TransientError; each names `file`."""
        token, now = self._token, time.monotonic()
        if token is None or now >= token.expires:
            with self._lock:
                if self._token is not None and self._token is not token:  # another thread has renewed it
                    return self._token.text
                return self._renewed(file)
        if now >= token.renew and self._lock.acquire(blocking=False):  # other threads use the old token meanwhile
            try:
                return self._renewed(file)
            except (TransientError, TransportError):
                self._token = replace(token, renew=now + _AGAIN)
            finally:
                self._lock.release()
        return token.text

    def owner(self, file: str) -> str:
        """Return whose credentials these are. Raise errors as `token` does."""
        self.token(file)
        google = self._google
        if address := getattr(google, "service_account_email", ""):
            return f"service account {address}"
        account = getattr(google, "account", "")
        return f"user account {account}" if account else "the credentials that google-auth finds"

    def refused(self, sent: Secret) -> bool:
        """Drop a token that the server refused, and the credentials. Return whether another one may help.

        `sent`: the header with the token.
        """
        with self._lock:
            token = self._token
            if token is None or Secret.bearer(token.text) != sent:
                return True
            self._google = self._token = None
            return time.monotonic() - token.since > YOUNG

    def forked(self) -> None:
        """Drop objects that a thread of the parent may have been using."""
        self._lock = threading.Lock()
        self._google = None

    def _renewed(self, file: str) -> Secret:
        try:
            from google.auth.exceptions import GoogleAuthError  # noqa: F401
        except ImportError:
            raise UsageError("gs:// needs the package google-auth", file=file, hint="pip install 'mdsx[gs]'") from None
        try:
            if self._google is None:
                self._google = _found(self._path)
            self._google.refresh(_request)
            text, expiry = parse.token(self._google.token), self._google.expiry
            left = inf if expiry is None else expiry.replace(tzinfo=UTC).timestamp() - time.time()
        except Exception as error:  # errors of google-auth, and those of a broken file
            self._google = None
            raise _translated(error, file) from None  # google-auth's errors may contain a server's answer about tokens
        now = time.monotonic()
        self._token = _Token(text, now, now + left - EARLY, now + left)
        return text


def shared_credentials(path: str | None) -> Credentials:
    """Return this process's credentials from the JSON file at `path`, or from the current environment."""
    variables = tuple(
        (name, Secret(os.environ[name], ())) for name in sorted(os.environ) if name.startswith(_VARIABLES)
    )
    with _lock:
        return _credentials.setdefault((path, variables), Credentials(path))


def _found(path: str | None) -> Any:
    """Return google-auth's credentials, which have no token yet."""
    import google.auth
    from google.auth.credentials import with_scopes_if_required

    path = path or os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    if path is None:
        return google.auth.default(_SCOPES, request=_request)[0]
    with warnings.catch_warnings():  # google-auth warns of files from others
        warnings.simplefilter("ignore", DeprecationWarning)
        found, _ = google.auth.load_credentials_from_file(os.path.expanduser(path), request=_request)
    return with_scopes_if_required(found, _SCOPES)  # only now, as it requests the project of scoped credentials


def _request(
    url: str, method: str = "GET", body: Any = None, headers: Any = None, timeout: float | None = None, **_: object
) -> Any:
    """Send a request for google-auth."""
    from google.auth.exceptions import TransportError as GoogleTransportError
    from urllib3 import Timeout
    from urllib3.exceptions import HTTPError

    options: dict[str, Any] = {"timeout": Timeout(connect=timeout or limits.CONNECT, read=timeout or limits.SILENCE)}
    options |= {"retries": False, "redirect": False, "preload_content": False, "decode_content": False}
    try:
        there = Address.of(url)
        answer = pool(there.server).request(method, there.reveal(), body=body, headers=headers, **options)
        return _Response(answer.status, answer.headers, Body(answer, url).whole(limits.TOKEN))
    except (HTTPError, OSError, HTTPException, TransientError, ValueError) as error:
        raise GoogleTransportError(error, retryable=True) from error


@dataclass(frozen=True, slots=True)
class _Response:
    """A response as google-auth expects it."""

    status: int
    headers: Mapping[str, str]
    data: bytes


def _translated(error: Exception, file: str) -> Exception:
    if (too_many := exhausted(error, file)) is not None:
        return too_many
    message = f"no access token: {_text(error)[:_MESSAGE]}"
    cause: BaseException | None = error
    for _ in range(10):
        if getattr(cause, "retryable", False):
            return TransientError(TransportError, message, file=file, hint=WAY_OUT)
        cause = cause and (cause.__cause__ or cause.__context__)
    return ForbiddenError(message, file=file, hint=WAY_OUT)


def _text(error: Exception) -> str:
    """Return the message of a google-auth error, without the full response of a server."""
    if isinstance(error, OSError):
        return str(error)
    parts = [_text(part) if isinstance(part, Exception) else part for part in error.args[:2]]
    return ": ".join(part for part in parts if isinstance(part, str)) or type(error).__name__


_lock = threading.Lock()
_credentials: dict[object, Credentials] = {}


def _forget_in_child() -> None:
    global _lock
    _lock = threading.Lock()
    for credentials in _credentials.values():
        credentials.forked()


at_fork(after_in_child=_forget_in_child)
