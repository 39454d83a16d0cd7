"""An Azure storage account: its endpoint, and the authorisation of requests.

Options come first, then AZURE_STORAGE_CONNECTION_STRING, an account key, a SAS token, and azure-identity. Variables of
the environment for another account are ignored.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from dataclasses import dataclass, field
from email.utils import formatdate
from urllib.parse import parse_qs, parse_qsl

from mdsx.errors import UsageError
from mdsx.secret import Secret, revealed
from mdsx.storage.options import IN_HEADER, RemoteOptions
from mdsx.storage.remote.az_identity import Identity, shared_identity
from mdsx.storage.remote.http import Headers
from mdsx.storage.remote.storage import split
from mdsx.storage.remote.trust import Address, endpoint, is_azure, server_of

_ACCOUNTS = ("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_ACCOUNT_NAME")
_KEYS = ("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_ACCOUNT_ACCESS_KEY")  # the last is MosaicML's
_CONNECTION = "AZURE_STORAGE_CONNECTION_STRING"
_SAS = "AZURE_STORAGE_SAS_TOKEN"
_PUBLIC = {"accountname", "blobendpoint", "defaultendpointsprotocol", "endpointsuffix"}  # in a connection string
_VERSION = "2021-12-02"  # of the protocol
_SIGNED = (
    "content-encoding", "content-language", "content-length", "content-md5", "content-type", "date",
    "if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, repr=False)
class AzOptions(RemoteOptions):
    """`token`: a bearer token of Entra ID. `client_id`: the client ID of a user-assigned managed identity."""

    account: str | None = None
    account_key: Secret | None = None
    sas_token: Secret | None = field(default=None, metadata=IN_HEADER)
    token: Secret | None = field(default=None, metadata=IN_HEADER)
    connection_string: Secret | None = None
    client_id: str | None = None


@dataclass(frozen=True, repr=False)
class Account:
    """An account's name, its endpoint, and at most one of the credentials. `uses` names the credential, for
    messages."""

    name: str
    endpoint: str
    uses: str = "no credentials"
    key: Secret | None = None
    sas: Secret | None = None
    token: Secret | None = None
    identity: Identity | None = None

    def authorised(self, method: str, address: Address, headers: Headers, file: str) -> tuple[Address, Headers]:
        """Return the address and the headers of a request, with credentials."""
        headers = {**headers, "x-ms-version": _VERSION}
        if self.key:
            headers["x-ms-date"] = formatdate(usegmt=True)
            headers["Authorization"] = Secret(f"SharedKey {self.name}:{self._signature(method, address, headers)}", ())
        elif token := self.identity.token(file) if self.identity else self.token:
            headers["Authorization"] = Secret.bearer(token)
        return address.with_secret(self.sas), headers

    def _signature(self, method: str, address: Address, headers: Headers) -> str:
        """Return the signature of a request: "Authorize with Shared Key" in the documentation of Azure Storage."""
        lower = {name.lower(): revealed(value) for name, value in headers.items()}
        lines = [
            method,
            *("" if (name, lower.get(name)) == ("content-length", "0") else lower.get(name, "") for name in _SIGNED),
        ]
        lines += sorted(f"{name}:{value}" for name, value in lower.items() if name.startswith("x-ms-"))
        lines += [f"/{self.name}{address.path}"]
        lines += sorted(f"{name.lower()}:{value}" for name, value in parse_qsl(address.query, keep_blank_values=True))
        signed = "\n".join(lines).encode()
        return base64.b64encode(
            hmac.digest(base64.b64decode(revealed(self.key or "")), signed, hashlib.sha256)
        ).decode()


def find_account(options: AzOptions, name: str, there: str, url: str) -> Account:
    """Return the account of `url`. `name` and `there`: the account's name and endpoint in the URL, or "". Raise
    UsageError if it is unknown."""
    given = _Connection.of(options.connection_string, "the option connection_string")
    found = _Connection.of(_first((_CONNECTION,)), _CONNECTION)
    named = revealed(_first(_ACCOUNTS) or "")
    known = [each for each in (options.account, name, given.name) if each]
    if len(set(known)) > 1:
        raise UsageError("the URL and the options name different accounts", file=url, found=", ".join(known))
    account = known[0] if known else _account_in(options.endpoint) or named or found.name or _host(options.endpoint)
    if not account:
        hint = "set AZURE_STORAGE_ACCOUNT or the option account, or write az://container@ACCOUNT.blob.core.windows.net"
        raise UsageError("the storage account is unknown", file=url, hint=hint)
    if found.name != account:
        found = _Connection()
    ours = named in ("", account)
    configured = options.endpoint or given.endpoint or found.endpoint
    place = options.endpoint or there or configured or f"https://{account}.blob.core.windows.net"
    place = endpoint(place, file=url, form="https://ACCOUNT.blob.core.windows.net")
    if place == there and not options.anonymous:
        _check_host(there, configured, url)
    if options.anonymous:
        return Account(account, place)
    if key := options.account_key or given.key:
        return Account(account, place, "the account key of the options", key=_checked(key, url))
    if sas := options.sas_token or given.sas:
        return Account(account, place, "the SAS token of the options", sas=_sas_query(sas))
    if options.token:
        return Account(account, place, "the option token", token=options.token)
    if not options.client_id:
        if key := found.key or (_first(_KEYS) if ours else None):
            return Account(account, place, "the account key of the environment", key=_checked(key, url))
        if sas := found.sas or (_first((_SAS,)) if ours else None):
            return Account(account, place, "the SAS token of the environment", sas=_sas_query(sas))
    return Account(
        account, place, "the credentials that azure-identity found", identity=shared_identity(options.client_id)
    )


@dataclass(frozen=True, repr=False)
class _Connection:
    """The values of a connection string."""

    name: str = ""
    endpoint: str = ""
    key: Secret | None = None
    sas: Secret | None = None

    @classmethod
    def of(cls, text: Secret | None, place: str) -> _Connection:
        values = _values(text or Secret(""))
        found = {name: values[name].reveal() for name in _PUBLIC & values.keys()}
        endpoint, name = found.get("blobendpoint", ""), found.get("accountname", "")
        if text and not (name or endpoint):
            form = "AccountName=...;AccountKey=..., or BlobEndpoint=...;SharedAccessSignature=..."
            raise UsageError("not a connection string", place=place, expected=form)
        if not endpoint and (suffix := found.get("endpointsuffix")):
            endpoint = f"{found.get('defaultendpointsprotocol', 'https')}://{name}.blob.{suffix}"
        key, sas = values.get("accountkey"), values.get("sharedaccesssignature")
        return cls(name or _account_in(endpoint) or _host(endpoint), endpoint, key or None, sas or None)


def _values(text: Secret) -> dict[str, Secret]:
    """Return the values of a connection string, by name in lower case."""
    pairs = (pair.partition("=") for pair in text.reveal().split(";"))
    return {name.strip().lower(): Secret(value.strip(), ()) for name, _, value in pairs}


def _account_in(endpoint: str | None) -> str:
    """Return the account in an endpoint: from the path of a local server, or from the host name; "" if there is
    none."""
    parts = split(endpoint or "")
    first, _, rest = (parts.hostname or "").partition(".")
    return parts.path.strip("/") or (first if ".blob." in f".{rest}" else "")


def _host(endpoint: str | None) -> str:
    """Return the host of an endpoint, which may be the user's own domain."""
    return split(endpoint or "").hostname or ""


def _check_host(there: str, configured: str, url: str) -> None:
    """Raise UsageError if a host that the URL names is not known as Azure's: it would get the user's credentials."""
    server = server_of(there)
    if is_azure(server.host) or (configured and server == server_of(configured)):
        return
    message = "the URL names a host that is not known to belong to Azure, and that would get the credentials"
    hint = f"if you trust it, give the option endpoint={there!r}; or the option anonymous"
    raise UsageError(message, file=url, found=server.host, hint=hint)


def _first(names: tuple[str, ...]) -> Secret | None:
    """Return the first of these environment variables that is set."""
    names = tuple(name for name in names if os.environ.get(name))
    return Secret(os.environ[names[0]], ()) if names else None


def _checked(key: Secret, url: str) -> Secret:
    try:
        base64.b64decode(key.reveal(), validate=True)
    except binascii.Error:
        raise UsageError("the account key is not base64, so it is not one of Azure", file=url) from None
    return Secret(key.reveal())


def _sas_query(sas: Secret) -> Secret:
    """Return a SAS token as a query."""
    query = Secret(sas.reveal().removeprefix("?"))
    return Secret(query.reveal(), (query.reveal(), *parse_qs(query.reveal()).get("sig", ())))
