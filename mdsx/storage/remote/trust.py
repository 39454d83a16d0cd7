"""Which servers requests may go to, and which of them get credentials.

- Credentials go to one server only: the scheme, host and port of the endpoint that the options, the environment or the
  cloud itself names. A URL may name it only if the cloud is known to own the host.
- Redirects, and other links in a response, are followed to the same host, to hosts that a protocol needs, and to those
  that the option `redirects` names; at most `limits.HOPS` times, never from https:// to http://, and without
  credentials to another server.
- A URL is parsed once, by urllib3, which also connects. An `Address` is the result, and is sent unchanged.
"""

from __future__ import annotations

import urllib.request
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urljoin

from mdsx.errors import TransportError, UsageError
from mdsx.secret import Secret, revealed

_PORTS = {"http": 80, "https": 443}
_AZURE = (
    ".core.windows.net",
    ".core.usgovcloudapi.net",
    ".core.chinacloudapi.cn",
    ".storage.azure.net",
    ".fabric.microsoft.com",  # OneLake
)


class Server(NamedTuple):
    """The server at the other end of a connection."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}" + ("" if self.port == _PORTS[self.scheme] else f":{self.port}")

    def trusts(self, other: Server) -> bool:
        """Whether credentials for this server may go to `other`: the same server, or its default https:// port."""
        return other in (self, Server("https", self.host, 443) if self[::2] == ("http", 80) else self)


@dataclass(frozen=True, slots=True)
class Address:
    """A URL as urllib3 parses it. `secret`: the part of its query that is never shown."""

    server: Server
    path: str
    query: str = ""
    secret: Secret | None = None

    @classmethod
    def of(cls, url: str) -> Address:
        """Raise ValueError if `url` is not an HTTP URL, or has a user."""
        from urllib3.exceptions import LocationParseError
        from urllib3.util import parse_url

        try:
            parts = parse_url(url)
            if parts.scheme not in _PORTS or not parts.host or parts.auth is not None:
                raise ValueError
            server = Server(parts.scheme, parts.host, parts.port or _PORTS[parts.scheme])
            address = cls(server, parts.path or "/", parts.query or "")
            again = parse_url(address.reveal())
        except LocationParseError:
            raise ValueError("not a URL") from None
        if (again.host, again.path, again.query or "") != (server.host, address.path, address.query):
            raise ValueError("an ambiguous URL")
        return address

    def with_secret(self, query: Secret | None) -> Address:
        return replace(self, secret=query) if query else self

    def reveal(self) -> str:
        """Return the URL with its secret. Call it only in the expression that sends it."""
        parts = [part for part in (self.query, revealed(self.secret or "")) if part]
        return f"{self.server}{self.path}" + (f"?{'&'.join(parts)}" if parts else "")

    def redacted(self, text: str) -> str:
        """Return a server's text without the values of this URL's query."""
        for _, value in parse_qsl(revealed(self.secret or "")):
            text = text.replace(value, "***") if len(value) > 5 else text
        return text


def endpoint(url: str, *, file: str, form: str) -> str:
    """Return the URL of an endpoint without a trailing slash. Raise UsageError if it is not a URL or has
    credentials."""
    try:
        if Address.of(url).query:
            raise ValueError
    except ValueError:  # not shown: it may have a password
        raise UsageError("the endpoint is not a URL, or has credentials", file=file, expected=form) from None
    return url.rstrip("/")


@lru_cache(64)
def server_of(url: str) -> Server:
    """Return the server of an endpoint. Raise ValueError if it is not a URL."""
    return Address.of(url).server


def is_azure(host: str) -> bool:
    """Whether Microsoft owns a host: those of the public and the sovereign clouds."""
    return host.lower().endswith(_AZURE)


def followed(source: Address, location: str, hosts: tuple[str, ...], *, file: str, what: str = "redirects") -> Address:
    """Return the address that a response from `source` leads to. `hosts`: allowed hosts besides its own, or `*.` and a
    domain.

    Raise TransportError if it may not lead there. `what`: what the response does, for the message.
    """
    try:
        if not location.isprintable() or " " in location:
            raise ValueError
        target = Address.of(urljoin(source.reveal(), location))
    except ValueError:
        expected = "http(s)://"
        raise TransportError(f"the server {what} to what is not a URL", file=file, expected=expected) from None
    host = target.server.host
    if (source.server.scheme, target.server.scheme) == ("https", "http"):
        raise TransportError(f"the server {what} from https:// to http://", file=file, found=str(target.server))
    if host != source.server.host and not any(_is(host, each) for each in hosts):
        message = f"the server {what} to another host, which is not allowed"
        hint = f"if you trust it, give the option redirects={host!r}, or use it in the URL"
        raise TransportError(message, file=file, found=str(target.server), hint=hint)
    return replace(target, query="", secret=Secret(target.query, ()) if target.query else None)


def _is(host: str, named: str) -> bool:
    return host == named or (named.startswith("*.") and host.endswith(named[1:]))


def named_hosts(option: str | None) -> tuple[str, ...]:
    """Return the hosts of the option `redirects`."""
    return tuple(host.strip().lower() for host in (option or "").split(",") if host.strip())


# --- proxies


class Proxy(NamedTuple):
    """A proxy from the environment, and its login."""

    url: str
    login: Secret | None


def proxy_for(server: Server) -> Proxy | None:
    """Return the proxy for requests to `server`. Raise TransportError if it is not an HTTP proxy."""
    host = server.host.strip("[]")
    if urllib.request.proxy_bypass(host) or urllib.request.proxy_bypass(f"{host}:{server.port}"):
        return None
    proxies = urllib.request.getproxies()
    found = proxies.get(server.scheme) or proxies.get("all")
    return _proxy(Secret(found, ())) if found else None


@lru_cache(16)
def _proxy(given: Secret) -> Proxy:
    from urllib3.exceptions import LocationParseError
    from urllib3.util import parse_url

    try:
        parts = parse_url(given.reveal() if "://" in given.reveal() else f"http://{given.reveal()}")
    except LocationParseError:
        parts = parse_url("")
    if parts.scheme not in _PORTS or not parts.host:  # not shown: it may have a password
        message = "the environment's proxy is not the URL of an HTTP proxy"
        raise TransportError(message, place="HTTP_PROXY or HTTPS_PROXY", expected="http://host:port")
    server = Server(parts.scheme, parts.host, parts.port or _PORTS[parts.scheme])
    user, _, password = (parts.auth or "").partition(":")
    return Proxy(str(server), Secret.login(unquote(user), unquote(password)) if parts.auth else None)


def hide_proxies() -> None:
    """Hide the logins of the environment's proxies in all messages. Other libraries use these proxies too."""
    for url in urllib.request.getproxies().values():
        if "@" in url:
            try:
                _proxy(Secret(url, ()))
            except TransportError:
                Secret(url)
