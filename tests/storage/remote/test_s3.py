"""S3: servers that lack a part of it."""

from __future__ import annotations

from dataclasses import replace

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


def test_names_with_double_slashes_are_passed_over_by_advice(proxy: Proxy, s3_url: str) -> None:
    """AWS allows them, the server of these tests does not."""
    for name in ("a", "b"):
        open_storage(f"{s3_url}/corpus").put(f"{name}.tar", b"x")

    def rename(exchange: Exchange) -> None:
        reply = exchange.forward()
        exchange.send(replace(reply, body=reply.body.replace(b"corpus/a.tar", b"corpus//a.tar")))

    renamed = proxy.add(rename, when=lambda exchange: "list-type=2" in exchange.path)
    with pytest.raises(mdsx.MissingError, match=r"there is 1 \*\.tar file here: .*`mdsx index tar s3://.*/corpus`"):
        mdsx.Dataset(f"{s3_url}/corpus")
    assert renamed.hits
