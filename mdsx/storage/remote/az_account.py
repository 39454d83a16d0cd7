"""A storage account of Azure: where it is, and how requests to it are authorised.

Options come first, then AZURE_STORAGE_CONNECTION_STRING, an account key, a SAS token, and azure-identity. What the
environment has for another account is not used.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import formatdate
from urllib.parse import parse_qs, parse_qsl, urlsplit

from mdsx.errors import UsageError, hide
from mdsx.storage.options import RemoteOptions, secret
from mdsx.storage.remote.az_identity import Identity, shared_identity
from mdsx.storage.remote.storage import split

_ACCOUNTS = ("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_ACCOUNT_NAME")
_KEYS = ("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_ACCOUNT_ACCESS_KEY")  # the last is MosaicML's
_CONNECTION = "AZURE_STORAGE_CONNECTION_STRING"
_SAS = "AZURE_STORAGE_SAS_TOKEN"
_VERSION = "2021-12-02"  # of the protocol
_SIGNED = (
    "content-encoding", "content-language", "content-length", "content-md5", "content-type", "date",
    "if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, repr=False)
class AzOptions(RemoteOptions):
    """`token` is a bearer token of Entra ID. `client_id` is that of a user-assigned managed identity."""

    account: str | None = None
    account_key: str | None = secret()
    sas_token: str | None = secret()
    token: str | None = secret()
    connection_string: str | None = secret()
    client_id: str | None = None


@dataclass(frozen=True, repr=False)
class Account:
    """An account's name, its endpoint, and at most one of the credentials. `uses` names it, for messages."""

    name: str
    endpoint: str
    uses: str = "no credentials"
    key: bytes = b""
    sas: str = ""
    token: str = ""
    identity: Identity | None = None

    def authorised(self, method: str, url: str, headers: Mapping[str, str], file: str) -> tuple[str, dict[str, str]]:
        """Return the URL and the headers of a request, with credentials."""
        headers = {**headers, "x-ms-version": _VERSION}
        if self.key:
            headers["x-ms-date"] = formatdate(usegmt=True)
            headers["Authorization"] = f"SharedKey {self.name}:{self._signature(method, url, headers)}"
        elif self.sas:
            url = f"{url}{'&' if '?' in url else '?'}{self.sas}"
        elif token := self.identity.token(file) if self.identity else self.token:
            headers["Authorization"] = f"Bearer {token}"
        return url, headers

    def _signature(self, method: str, url: str, headers: Mapping[str, str]) -> str:
        """Return the signature of a request: "Authorize with Shared Key" in the documentation of Azure Storage."""
        parts = urlsplit(url)
        lower = {name.lower(): value for name, value in headers.items()}
        lines = [
            method,
            *("" if (name, lower.get(name)) == ("content-length", "0") else lower.get(name, "") for name in _SIGNED),
        ]
        lines += sorted(f"{name}:{value}" for name, value in lower.items() if name.startswith("x-ms-"))
        lines += [f"/{self.name}{parts.path}"]
        lines += sorted(f"{name.lower()}:{value}" for name, value in parse_qsl(parts.query, keep_blank_values=True))
        return base64.b64encode(hmac.digest(self.key, "\n".join(lines).encode(), hashlib.sha256)).decode()


def find_account(options: AzOptions, name: str, endpoint: str, url: str) -> Account:
    """Return the account of `url`, which may have its `name` and `endpoint`. Raise UsageError if it is unknown."""
    given = _Connection.of(options.connection_string or "", "the option connection_string")
    found = _Connection.of(os.environ.get(_CONNECTION, ""), _CONNECTION)
    named = _first(_ACCOUNTS)
    known = [each for each in (options.account, name, given.name) if each]
    if len(set(known)) > 1:
        raise UsageError("the URL and the options name different accounts", file=url, found=", ".join(known))
    account = known[0] if known else _account_in(options.endpoint) or named or found.name or _host(options.endpoint)
    if not account:
        hint = "set AZURE_STORAGE_ACCOUNT or the option account, or write az://container@ACCOUNT.blob.core.windows.net"
        raise UsageError("the storage account is not known", file=url, hint=hint)
    if found.name != account:
        found = _Connection()
    ours = named in ("", account)
    place = (
        options.endpoint or endpoint or given.endpoint or found.endpoint or f"https://{account}.blob.core.windows.net"
    )
    parts = split(place)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None or parts.query:
        form = "https://ACCOUNT.blob.core.windows.net"
        raise UsageError("the endpoint is not a URL, or has credentials", file=url, expected=form)
    place = place.rstrip("/")
    if options.anonymous:
        return Account(account, place)
    if key := options.account_key or given.key:
        return Account(account, place, "the account key of the options", key=_decoded(key, url))
    if sas := options.sas_token or given.sas:
        return Account(account, place, "the SAS token of the options", sas=_hidden(sas))
    if options.token:
        return Account(account, place, "the option token", token=options.token)
    if not options.client_id:
        if key := found.key or (_first(_KEYS) if ours else ""):
            return Account(account, place, "the account key of the environment", key=_decoded(key, url))
        if sas := found.sas or (os.environ.get(_SAS, "") if ours else ""):
            return Account(account, place, "the SAS token of the environment", sas=_hidden(sas))
    return Account(
        account, place, "the credentials that azure-identity found", identity=shared_identity(options.client_id)
    )


@dataclass(frozen=True, repr=False)
class _Connection:
    """What a connection string has."""

    name: str = ""
    endpoint: str = ""
    key: str = ""
    sas: str = ""

    @classmethod
    def of(cls, text: str, place: str) -> _Connection:
        pairs = [pair.partition("=") for pair in text.split(";") if pair.strip()]
        values = {name.strip().lower(): value.strip() for name, _, value in pairs}
        key, sas = values.get("accountkey", ""), values.get("sharedaccesssignature", "")
        hide(key)
        endpoint, name = values.get("blobendpoint", ""), values.get("accountname", "")
        if text and not (name or endpoint):
            form = "AccountName=...;AccountKey=..., or BlobEndpoint=...;SharedAccessSignature=..."
            raise UsageError("this is not a connection string", place=place, expected=form)
        if not endpoint and (suffix := values.get("endpointsuffix")):
            endpoint = f"{values.get('defaultendpointsprotocol', 'https')}://{name}.blob.{suffix}"
        return cls(name or _account_in(endpoint) or _host(endpoint), endpoint, key, sas)


def _account_in(endpoint: str | None) -> str:
    """Return the account in an endpoint: in the path of a local server, or in the host's name; "" if there is none."""
    parts = split(endpoint or "")
    first, _, rest = (parts.hostname or "").partition(".")
    return parts.path.strip("/") or (first if ".blob." in f".{rest}" else "")


def _host(endpoint: str | None) -> str:
    """Return the host of an endpoint, which may be a domain of the user's."""
    return split(endpoint or "").hostname or ""


def _first(names: tuple[str, ...]) -> str:
    return next(filter(None, map(os.environ.get, names)), "")


def _decoded(key: str, url: str) -> bytes:
    hide(key)
    try:
        return base64.b64decode(key, validate=True)
    except binascii.Error:
        raise UsageError("the account key is not base64, as Azure's are", file=url) from None


def _hidden(sas: str) -> str:
    """Return a SAS token as a query, after hiding its signature."""
    sas = sas.removeprefix("?")
    for text in (sas, *parse_qs(sas).get("sig", ())):
        hide(text)
    return sas
