"""The S3 clients of this process.

Storages with the same configuration share one boto3 client, because making one takes 0.3 seconds. The configuration is
what boto3 reads: environment variables, and the current content of its two files. A client whose credentials were
refused is dropped, so that the next request reads them again. A forked child makes its own clients.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections import OrderedDict
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakSet

from mdsx.errors import TransportError
from mdsx.process import Owner, at_fork, exhausted
from mdsx.storage.retry import Contact, contact
from mdsx.storage.s3_response import CONNECT, CREDENTIALS_HINT, SILENCE, safe

_CONNECTIONS = 64
_KEPT = 8  # clients, each for one configuration
_PROBE = 1.0  # seconds
_VARIABLES = ("AWS_", "BOTO_")
_OTHERS = {"HOME", "REQUESTS_CA_BUNDLE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"}
_FILES = {"AWS_CONFIG_FILE": "~/.aws/config", "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials"}


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
            raise too_many from safe(error)
        raise TransportError(f"S3 is not configured: {error}", hint=CREDENTIALS_HINT) from safe(error)
