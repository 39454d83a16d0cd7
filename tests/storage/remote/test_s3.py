"""S3: servers that lack a part of it."""

from __future__ import annotations

import pytest

import mdsx
from mdsx.storage import open_storage
from tools.fault_proxy import Exchange, Proxy, status


def is_conditional(exchange: Exchange) -> bool:
    return "If-Match" in exchange.headers or "If-None-Match" in exchange.headers


def test_a_server_without_conditional_puts_is_written_to(proxy: Proxy, s3_url: str) -> None:
    """Whether an object exists, or is still the same, is looked at before."""
    storage = open_storage(s3_url)
    refusing = proxy.add(status(501, "NotImplemented"), method="PUT", when=is_conditional)
    storage.create("key", b"1")
    storage.replace("key", b"2", etag=storage.get("key").etag)
    assert refusing.hits == 2
    assert storage.get("key").data == b"2"
    with pytest.raises(mdsx.ChangedError):
        storage.create("key", b"3")
    with pytest.raises(mdsx.ChangedError):
        storage.replace("key", b"3", etag='"another"')
    assert storage.get("key").data == b"2"
