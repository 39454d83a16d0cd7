"""Clouds over plain HTTP: the connections of this process, and single requests with their errors.

All storages of a process share pools of connections (urllib3). A forked child makes its own. Proxies and certificates
come from the environment: HTTPS_PROXY, NO_PROXY, SSL_CERT_FILE, REQUESTS_CA_BUNDLE.
"""

from __future__ import annotations

import os
import ssl
import threading
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from mdsx.base.pieces import Pieces
from mdsx.base.process import at_fork
from mdsx.errors import ChangedError, ForbiddenError, MissingError, TransportError, TruncatedError, UsageError
from mdsx.secret import Secret, revealed
from mdsx.storage.base import Choose
from mdsx.storage.remote import limits, parse
from mdsx.storage.remote.answer import Answer, Body, bound, errors
from mdsx.storage.remote.logs import keep_secrets
from mdsx.storage.remote.storage import RemoteStorage, covering, ranged
from mdsx.storage.remote.trust import Address, Proxy, Server, proxy_for, server_of
from mdsx.storage.retry import TransientError, tried

if TYPE_CHECKING:
    from typing_extensions import Buffer

Headers = Mapping[str, str | Secret]
REDIRECTS = (301, 302, 303, 307, 308)
_CONNECTIONS = 72  # to one host: as many as there are threads for requests
_HOSTS = 16
_SHOWN = 500  # characters of a server's text in an error
_PIECE = 256 * 1024  # bytes of a request's body to send at once, within the socket's time limit
_LIMITED = {429, 503}
_FOR_NOW = {408, 425, 429, 500, 502, 503, 504}
_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")


class HttpStorage(RemoteStorage):
    """A cloud whose objects have URLs. Subclasses define the URLs, the authorisation of requests, and errors."""

    def _send(
        self,
        file: str,
        method: str,
        url: str | Address,
        *,
        headers: Headers | None = None,
        body: Pieces | None = None,
        accepted: Collection[int] = (200, 201, 202, 204, 206),
    ) -> Any:
        """Return urllib3's open response, without retries. Raise an MdsxError or a TransientError."""
        address = self._address(url, file)
        sent: Headers = {"Accept-Encoding": "identity", **(headers or {})}
        if self._trusted().trusts(address.server):
            address, sent = self._authorised(method, address, sent, file)

        def ask() -> Any:
            response = self._sent(method, address, sent, file=file, body=body)
            if response.status not in accepted:
                raise self._error(response.status, address.redacted(error_text(response)), response.headers, file)
            return response

        return self._asked(file, ask)

    def _ask(self, file: str, method: str, url: str | Address, **options: Any) -> tuple[bytes, Mapping[str, str]]:
        """Return the whole body of a response and its headers, with retries."""

        def ask() -> tuple[bytes, Mapping[str, str]]:
            response = self._send(file, method, url, **options)
            return Body(response, file).whole(), response.headers

        return tried(ask, self._limit)

    def _open(self, key: str, start: int, stop: int | None, etag: str | None) -> Answer:
        url, conditions = self._reading(key, etag)
        headers = dict(conditions)
        if wanted := ranged(start, stop):
            headers["Range"] = wanted
        file = self._file(key)
        response = self._send(file, "GET", url, headers=headers)
        status, sent = response.status, response.headers
        return covering(response, file, start, stop, status=status, etag=self._etag(sent), wanted=etag, headers=sent)

    @abstractmethod
    def _reading(self, key: str, etag: str | None) -> tuple[str, dict[str, str]]:
        """Return the URL and the headers to read an object, on the condition that it has `etag`."""

    def _trusted(self) -> Server:
        """Return the only server that gets credentials."""
        return server_of(self._endpoint())

    def _address(self, url: str | Address, file: str) -> Address:
        try:
            return url if isinstance(url, Address) else Address.of(url)
        except ValueError:
            raise TransportError("the endpoint is not a URL", file=file, hint=self.way_out) from None

    def _authorised(self, method: str, address: Address, headers: Headers, file: str) -> tuple[Address, Headers]:
        """Add credentials to the address or the headers, and return both. Raise ForbiddenError without credentials."""
        return address, headers

    def _sent(self, method: str, address: Address, headers: Headers, *, file: str, body: Pieces | None) -> Any:
        """Return urllib3's open response to one request, without retries and redirects. Raise TransientError."""
        from urllib3 import Timeout

        pieces: Iterator[memoryview] | None = None
        if body is not None:
            headers = {**headers, "Content-Length": str(len(body))}
            pieces = (part.joined() for part in body.cut(_PIECE))
        with errors(file, self.way_out):
            return pool(address.server).request(
                method,
                address.reveal(),
                headers={name: revealed(value) for name, value in headers.items()},
                body=pieces,
                redirect=False,
                retries=False,
                preload_content=False,
                decode_content=False,
                timeout=Timeout(connect=limits.CONNECT, read=limits.SILENCE),
            )

    def _etag(self, headers: Mapping[str, str]) -> str:
        return headers.get("ETag", "")

    def _error(self, status: int, text: str, headers: Mapping[str, str], file: str) -> Exception:
        """Return the error for a response with an unexpected status."""
        what = f"the server answered {status} {shortened(text).removeprefix(str(status)).strip()}".strip()
        if status in (404, 410):
            return MissingError(f"not found: {what}", file=file)
        if status in (401, 403):
            return ForbiddenError(f"refused: {what}", file=file, hint="check the credentials and their permissions")
        if status == 412:
            return ChangedError("the object was replaced while it was read", file=file)
        if status == 416:
            return TruncatedError("the object ends before the bytes asked for", file=file)
        if status == 507:
            return TransportError(what, file=file, hint="free some space or raise the quota, and resume")
        if status in _FOR_NOW:
            limited = status in _LIMITED
            return TransientError(TransportError, what, file=file, after=asked_pause(headers), limited=limited)
        return TransportError(what, file=file)


class ReadOnlyStorage(HttpStorage):
    """A read-only cloud. `instead`: how to write instead, for the error."""

    instead: str

    def _store(self, key: str, data: Pieces, etag: str | None) -> None:
        self._refuse(key)

    def create(self, key: str, data: Buffer) -> None:
        self._refuse(key)

    def replace(self, key: str, data: Buffer, *, etag: str) -> None:
        self._refuse(key)

    def delete(self, key: str) -> None:
        self._refuse(key)

    def discard_unfinished(self, prefix: str = "", *, choose: Choose | None = None) -> None:
        self._refuse(prefix or "*")

    def _refuse(self, key: str) -> NoReturn:
        raise UsageError("this storage is read-only", file=f"{self.url}/{key}", hint=self.instead)


def error_text(response: Any) -> str:
    """Return the text of an error response, and return its connection to the pool."""
    text = b""
    with suppress(Exception):
        text = Body(response, "").start()
    response.close()
    return text.decode(errors="replace").strip()


def shortened(text: str) -> str:
    """Return the beginning of a server's text, which may be a whole page, in one line."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else line[:_SHOWN] + "..."


def asked_pause(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that the server asks to wait; None if it does not say."""
    return parse.number_or_none(headers.get("Retry-After"))


_lock = threading.Lock()
_pools: dict[object, Any] = {}
_of_the_parent: list[Any] = []


def pool(server: Server) -> Any:
    """Return this process's pool of connections for `server`: urllib3's PoolManager, or its ProxyManager."""
    proxy = proxy_for(server)
    configuration = (proxy, *(os.environ.get(name) for name in _VARIABLES))
    with _lock:
        if configuration not in _pools:
            _pools[configuration] = _make_pool(proxy)
        return _pools[configuration]


def _make_pool(proxy: Proxy | None) -> Any:
    import urllib3

    keep_secrets()
    options: dict[str, Any] = {"num_pools": _HOSTS, "maxsize": _CONNECTIONS, "block": False, "ssl_context": _context()}
    if proxy is None:
        return bound(urllib3.PoolManager(**options))
    headers = {"Proxy-Authorization": proxy.login.reveal()} if proxy.login else None
    return bound(urllib3.ProxyManager(proxy.url, proxy_headers=headers, **options))


def _context() -> ssl.SSLContext:
    bundle = os.environ.get("REQUESTS_CA_BUNDLE")
    if bundle and os.path.isdir(bundle):
        return ssl.create_default_context(capath=bundle)
    try:
        return ssl.create_default_context(cafile=bundle or None)
    except OSError as error:  # also ssl.SSLError
        hint = "correct or unset the environment variable REQUESTS_CA_BUNDLE"
        raise UsageError(f"the certificates cannot be read: {error}", file=bundle, hint=hint) from None


def _forget_in_child() -> None:
    """Keep the parent's pools alive but unused: closing their connections could wait for a lock of the parent."""
    global _lock
    _of_the_parent.extend(_pools.values())
    _lock = threading.Lock()
    _pools.clear()


at_fork(after_in_child=_forget_in_child)
