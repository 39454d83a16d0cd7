"""Reading from any web server: `https://host/path`. A query, as signed URLs have, is kept and never shown."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from mdsx.errors import TransportError, UsageError, hide
from mdsx.pieces import Pieces
from mdsx.storage.base import Entry, check_key
from mdsx.storage.options import Options, StorageOptions, parsed, secret
from mdsx.storage.remote import limits, parse
from mdsx.storage.remote.http import REDIRECTS, ReadOnlyStorage
from mdsx.storage.remote.storage import split

_HOST = re.compile(r"([^\s:/@\[\]]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?")
_NO_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")  # with one of these, urllib3 would quote all escapes again
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, kw_only=True, repr=False)
class WebOptions(Options):
    """`token` is sent as a bearer token, or `user` and `password` are, which the URL may have too."""

    token: str | None = secret()
    user: str | None = None
    password: str | None = secret()


class WebStorage(ReadOnlyStorage):
    """The files below `http(s)://host/path`, which can be read, and neither listed nor written."""

    way_out = "check the URL"
    instead = "write to a disk, s3://, gs:// or az://"

    def __init__(self, url: str, given: StorageOptions | None = None) -> None:
        parts = split(url)
        host = parts.netloc.rpartition("@")[2]
        if not _HOST.fullmatch(host) or parts.fragment:  # nothing of it is shown: it may have a password with a slash
            hint = "write https://host/path; '/' in a password is %2F, and '#' in a name is %23"
            raise UsageError("this is not the URL of a file on a web server", hint=hint)
        self._server = f"{parts.scheme}://{host}"
        self._root = _NO_ESCAPE.sub("%25", parts.path.rstrip("/"))
        self._query = f"?{parts.query}" if parts.query else ""
        safe = f"{self._server}{unquote(self._root)}"
        self._options = parsed(WebOptions, given, safe)
        super().__init__(safe, host, "", self._options.connect_timeout)
        user, password = self._options.user, self._options.password or ""
        if parts.username is not None:
            user, password = unquote(parts.username), unquote(parts.password or "")
            hide(password)
        self._credentials = f"Bearer {self._options.token}" if self._options.token else ""
        if user is not None:
            self._credentials = "Basic " + b64encode(f"{user}:{password}".encode()).decode()
        self._hide()

    def __setstate__(self, state: dict[str, object]) -> None:
        super().__setstate__(state)
        self._hide()

    def _hide(self) -> None:
        for text in (self._query.removeprefix("?"), self._credentials.partition(" ")[2]):
            hide(text)

    def _sent(self, method: str, url: str, headers: Mapping[str, str], *, file: str, body: Pieces | None) -> Any:
        """Follow redirects, with credentials only to the same server, or from its http:// to its https://."""
        for _ in range(limits.HOPS):
            response = super()._sent(method, url, headers, file=file, body=body)
            location = response.headers.get("Location")
            if response.status not in REDIRECTS or not location:
                return response
            response.close()
            try:
                target = parse.web_url(url, location)
                trusted = _server(target) in (_server(url), _encrypted(_server(url)))
            except ValueError:
                raise TransportError(
                    "the server redirects to what is not a URL", file=file, expected="http(s)://"
                ) from None
            if not trusted:
                headers = {name: value for name, value in headers.items() if name != "Authorization"}
            url = target
        raise TransportError(f"there are more than {limits.HOPS} redirects", file=file)

    def list(self, prefix: str = "") -> Iterator[Entry]:
        hint = "name the dataset's folder itself, or use its s3://, gs:// or az:// URL"
        raise UsageError("a web server cannot list its files", file=self.url, hint=hint)

    def identity(self) -> str:
        if not self._credentials:
            return "the signature in the URL" if self._query else "none: requests are anonymous"
        return "the option token" if self._options.token else "the user and password in the URL"

    def _endpoint(self) -> str:
        return self._server

    def _etag(self, headers: Mapping[str, str]) -> str:
        return headers.get("ETag") or headers.get("Last-Modified") or ""

    def _reading(self, key: str, etag: str | None) -> tuple[str, dict[str, str]]:
        """Use the ETag, or the time of a server that has none; a weak ETag is only compared with the answer's."""
        headers = {}
        if etag and not etag.startswith("W/"):
            headers["If-Match" if etag.startswith('"') else "If-Unmodified-Since"] = etag
        if self._credentials:
            headers["Authorization"] = self._credentials
        return f"{self._server}{self._root}/{quote(check_key(key))}{self._query}", headers


def _server(url: str) -> tuple[str, str | None, int | None]:
    """Return scheme, host and port. Raise ValueError if `url` is none."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)


def _encrypted(server: tuple[str, str | None, int | None]) -> tuple[str, str | None, int | None]:
    """Return the same server with https://, if it is http:// at its usual port."""
    return ("https", server[1], 443) if server[::2] == ("http", 80) else server
