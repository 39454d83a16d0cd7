"""Storage over a network. Each cloud is a module, which is imported when its scheme is first used."""

from __future__ import annotations

from mdsx.storage.remote import limits, parse
from mdsx.storage.remote.answer import bound
from mdsx.storage.remote.http import pool
from mdsx.storage.remote.storage import RemoteStorage, speaks_tls
from mdsx.storage.remote.trust import Address, Proxy, proxy_for
from mdsx.storage.remote.web import WebStorage

__all__ = [
    "Address",
    "Proxy",
    "RemoteStorage",
    "WebStorage",
    "bound",
    "limits",
    "parse",
    "pool",
    "proxy_for",
    "speaks_tls",
]
