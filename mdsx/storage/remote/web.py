"""Read from any web server: `https://host/path`. A query, as in signed URLs, is kept and never shown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from mdsx.base.pieces import Pieces
from mdsx.errors import TransportError, UsageError
from mdsx.secret import Secret, revealed
from mdsx.storage.base import Entry, NoListingError, check_key
from mdsx.storage.options import IN_HEADER, BaseOptions, StorageOptions, parsed
from mdsx.storage.remote import limits
from mdsx.storage.remote.http import REDIRECTS, Headers, ReadOnlyStorage
from mdsx.storage.remote.storage import split
from mdsx.storage.remote.trust import Address, endpoint, followed, named_hosts

_HOST = re.compile(r"([^\s:/@\[\]]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?")
_NO_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")  # with such a %, urllib3 would quote all escapes again


@dataclass(frozen=True, kw_only=True, repr=False)
class WebOptions(BaseOptions):
    """`token`: sent as a bearer token; or `user` and `password`, which may also be in the URL.

    `redirects`: other hosts to which the server may redirect, separated by commas.
    """

    token: Secret | None = field(default=None, metadata=IN_HEADER)
    user: str | None = None
    password: Secret | None = None
    redirects: str | None = None


class WebStorage(ReadOnlyStorage):
    """The files below `http(s)://host/path`, which can be read, but not listed or written."""

    way_out = "check the URL"
    instead = "write to a disk, s3://, gs:// or az://"

    def __init__(self, url: str, given: StorageOptions | None = None) -> None:
        parts = split(url)
        host = parts.netloc.rpartition("@")[2]
        if not _HOST.fullmatch(host) or parts.fragment:  # not shown: it may have a password with a slash
            hint = "write https://host/path, with %2F for '/' in a password, and %23 for '#' in a name"
            raise UsageError("not the URL of a file on a web server", hint=hint)
        self._server = f"{parts.scheme}://{host}"
        self._root = _NO_ESCAPE.sub("%25", parts.path.rstrip("/"))
        self._query = Secret.query(parts.query) if parts.query else None
        safe = f"{self._server}{unquote(self._root)}"
        self._options = parsed(WebOptions, given, safe)
        super().__init__(safe, host, "", self._options.connect_timeout)
        endpoint(self._server, file=safe, form="https://host/path")
        self._redirects = named_hosts(self._options.redirects)
        self._credentials: Secret | None = None
        self._uses = "the signature in the URL" if self._query else "none: requests are anonymous"
        if parts.username is not None:
            self._uses = "the user and password in the URL"
            self._credentials = Secret.login(unquote(parts.username), unquote(parts.password or ""))
        elif self._options.user is not None:
            self._uses = "the options user and password"
            self._credentials = Secret.login(self._options.user, revealed(self._options.password or ""))
        elif self._options.token:
            self._uses = "the option token"
            self._credentials = Secret.bearer(self._options.token)

    def _authorised(self, method: str, address: Address, headers: Headers, file: str) -> tuple[Address, Headers]:
        if self._credentials:
            headers = {**headers, "Authorization": self._credentials}
        return address.with_secret(self._query), headers

    def _sent(self, method: str, address: Address, headers: Headers, *, file: str, body: Pieces | None) -> Any:
        """Follow redirects to the same host and to the hosts of the option `redirects`: see `trust`."""
        for _ in range(limits.HOPS):
            response = super()._sent(method, address, headers, file=file, body=body)
            location = response.headers.get("Location")
            if response.status not in REDIRECTS or not location:
                return response
            response.close()
            address = followed(address, location, self._redirects, file=file)
            if not self._trusted().trusts(address.server):
                headers = {name: value for name, value in headers.items() if name != "Authorization"}
        raise TransportError(f"there are more than {limits.HOPS} redirects", file=file)

    def list(self, prefix: str = "") -> Iterator[Entry]:
        hint = "give the URL of the dataset's own folder, or use its s3://, gs:// or az:// URL"
        raise NoListingError("a web server cannot list its files", file=self.url, hint=hint)

    def identity(self) -> str:
        return self._uses

    def _endpoint(self) -> str:
        return self._server

    def _etag(self, headers: Mapping[str, str]) -> str:
        return headers.get("ETag") or headers.get("Last-Modified") or ""

    def _reading(self, key: str, etag: str | None) -> tuple[str, dict[str, str]]:
        """Use the ETag, or the time if the server has none. A weak ETag is only compared with that of the response."""
        headers = {}
        if etag and not etag.startswith("W/"):
            headers["If-Match" if etag.startswith('"') else "If-Unmodified-Since"] = etag
        return f"{self._server}{self._root}/{quote(check_key(key))}", headers
