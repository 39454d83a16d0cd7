"""Tokens of Microsoft Entra ID, through azure-identity.

azure-identity finds a service principal in the environment, a workload identity, a managed identity, or the login of
the Azure CLI, and retries its own requests. All storages with the same client ID and environment share one token, which
is renewed some minutes before it expires. A forked child keeps the token, but gets the next one with its own
credential.
"""

from __future__ import annotations

import io
import os
import threading
import time
from operator import itemgetter
from typing import Any
from weakref import WeakSet

from mdsx.base.process import at_fork, exhausted
from mdsx.errors import ForbiddenError, MdsxError, UsageError
from mdsx.secret import Secret
from mdsx.storage.remote import limits, parse
from mdsx.storage.remote.answer import Body, bound, safe
from mdsx.storage.remote.logs import keep_secrets
from mdsx.storage.retry import TransientError

_SCOPE = "https://storage.azure.com/.default"  # of every Azure cloud
_EARLY = 300.0  # seconds before its expiry from which a token is renewed
_AGAIN = 30.0  # seconds until the next attempt, if a renewal did not return a later token
_MOST = 800  # characters of a message, which lists every credential that was tried
_VARIABLES = ("AZURE_", "IDENTITY_", "IMDS_", "MSI_")
_HINT = (
    "log in with 'az login', give the machine a managed identity or set AZURE_CLIENT_ID, AZURE_TENANT_ID and "
    "AZURE_CLIENT_SECRET; or set AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN; or use the option anonymous"
)


class Identity:
    """An identity of this process. `client_id`: of a user-assigned managed identity, or None."""

    def __init__(self, client_id: str | None) -> None:
        self._client_id = client_id
        self._credential: Any = None
        self._token = Secret("")
        self._renewal = 0.0  # when to renew the token, by the monotonic clock, which nobody sets
        self._expiry = 0.0
        self._made = 0.0
        self._lock = threading.Lock()
        _alive.add(self)

    def token(self, file: str) -> Secret:
        """Return a valid token. One thread renews it; others wait only if it has expired."""
        now = time.monotonic()
        if now >= self._renewal and self._lock.acquire(blocking=now >= self._expiry):
            try:
                if time.monotonic() >= self._renewal:
                    self._renew(file)
            finally:
                self._lock.release()
        return self._token

    def forget(self) -> None:
        """Drop a token that the server refused, and its credential, unless the token is quite new."""
        if time.monotonic() >= self._made + _AGAIN:
            self._credential = None
            self._renewal = self._expiry = 0.0

    def _renew(self, file: str) -> None:
        now = time.monotonic()
        try:
            self._credential = self._credential or _credential(self._client_id, file)
            found = self._credential.get_token(_SCOPE)
            token, expiry = parse.token(found.token), now + float(found.expires_on) - time.time()
        except UsageError:
            raise
        except Exception as error:  # errors of azure-core, msal, and their libraries
            if now < self._expiry:
                self._renewal = now + _AGAIN
                return
            text = " ".join(str(error).split())[:_MOST]
            raise exhausted(error, file) or ForbiddenError(f"no credentials: {text}", file=file, hint=_HINT) from safe(
                error
            )
        self._token, self._expiry, self._made = token, expiry, now
        self._renewal = max(self._expiry - _EARLY, min(now + _AGAIN, self._expiry))

    def leave_parent(self) -> None:
        """Keep the parent's credential alive but unused: its connections belong to the parent."""
        _of_the_parent.append(self._credential)
        self._credential = None
        self._lock = threading.Lock()


_lock = threading.Lock()
_identities: dict[object, Identity] = {}
_alive: WeakSet[Identity] = WeakSet()
_of_the_parent: list[Any] = []


def shared_identity(client_id: str | None) -> Identity:
    """Return this process's identity for `client_id` and the current environment."""
    environment = ((name, Secret(value, ())) for name, value in os.environ.items() if name.startswith(_VARIABLES))
    configuration = (client_id, *sorted(environment, key=itemgetter(0)))
    with _lock:
        return _identities.setdefault(configuration, Identity(client_id))


def _credential(client_id: str | None, file: str) -> Any:
    try:
        from azure.identity import DefaultAzureCredential
    except ImportError:
        raise UsageError(
            "no account key or SAS token is set, and azure-identity, which finds other credentials, is not installed",
            file=file,
            hint="pip install 'mdsx[az]'; or set AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN; "
            "or use the option anonymous",
        ) from None
    options: dict[str, Any] = {"transport": _transport()}
    if client_id:
        options["managed_identity_client_id"] = client_id
    credential = DefaultAzureCredential(**options)
    keep_secrets()
    return credential


def _transport() -> Any:
    """Return a transport for azure-identity's requests with bounded connections."""
    import requests
    from azure.core.pipeline.transport import RequestsTransport
    from requests.adapters import HTTPAdapter
    from urllib3 import HTTPResponse

    class Bounded(HTTPAdapter):
        def init_poolmanager(self, *args: Any, **options: Any) -> None:
            super().init_poolmanager(*args, **options)
            bound(self.poolmanager)

        def proxy_manager_for(self, proxy: Any, **options: Any) -> Any:
            return bound(super().proxy_manager_for(proxy, **options))

        def send(self, request: Any, stream: bool = False, *args: Any, **options: Any) -> Any:
            response = super().send(request, True, *args, **options)
            try:
                data = Body(response.raw, "").whole(limits.TOKEN)
            except (MdsxError, TransientError) as error:
                raise requests.ConnectionError(str(error)) from None
            response.raw = HTTPResponse(io.BytesIO(data), status=response.status_code, preload_content=False)
            return response

    session = requests.Session()
    session.headers["Accept-Encoding"] = "identity"
    for scheme in ("http://", "https://"):
        session.mount(scheme, Bounded())
    timeouts = {"connection_timeout": limits.CONNECT, "read_timeout": limits.SILENCE}
    return RequestsTransport(session=session, session_owner=False, **timeouts)


def _leave_parent() -> None:
    global _lock
    _lock = threading.Lock()
    for identity in list(_alive):
        identity.leave_parent()


at_fork(after_in_child=_leave_parent)
