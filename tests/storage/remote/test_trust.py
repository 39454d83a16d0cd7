"""Whom requests trust: the parser that connects also judges, and only named servers get credentials."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler

import pytest

import mdsx
from mdsx.storage import open_storage
from mdsx.storage.remote.trust import Address, followed, is_azure, named_hosts
from tests.storage.remote.test_web import answering, send

HERE = Address.of("https://here.example/a/b")


@pytest.mark.parametrize(
    ("location", "server"),
    [
        ("/c", "https://here.example"),
        ("c?sig=x", "https://here.example"),
        ("//here.example:8443/c", "https://here.example:8443"),
        ("https://cdn.there.example/c", "https://cdn.there.example"),
    ],
)
def test_links_lead_to_the_same_or_a_named_host(location: str, server: str) -> None:
    target = followed(HERE, location, named_hosts("*.there.example"), file="x")
    assert str(target.server) == server
    assert "sig" not in repr(target)
    assert target.reveal().startswith(server)


@pytest.mark.parametrize(
    "location",
    [
        "http://here.example/c",
        "https://there.example/c",
        "https://cdn.there.example.evil.example/c",
        "https://evil.example\\@here.example/c",
        "https://evil.example\\.here.example/c",
        "https://user@here.example/c",
        "https://here.example#@evil.example/c d",
        "https://evil.example;here.example/c",
        "\\\\evil.example/c",
        "ftp://here.example/c",
        "file:///etc/hosts",
        "https://here.example:port/c",
        "https://[bad/c",
        "https:///c",
        ":",
    ],
)
def test_no_other_link_is_followed_elsewhere(location: str) -> None:
    """An error, or the same server: never another one."""
    try:
        target = followed(HERE, location, named_hosts("*.there.example"), file="x")
    except mdsx.TransportError:
        return
    assert target.server == HERE.server


def test_what_is_judged_is_what_is_sent() -> None:
    for url in ("http://h/a%2fb?x=%zz&y", "http://H:80/%41?", "http://[::1]:81/a b", "http://h//@evil.example/\\x"):
        address = Address.of(url)
        assert Address.of(address.reveal()) == address


def test_a_backslash_sends_no_token_to_another_host() -> None:
    seen: list[str | None] = []

    def evil(request: BaseHTTPRequestHandler) -> None:
        seen.append(request.headers.get("Authorization"))
        send(request, 404)

    with answering(evil) as elsewhere:
        port = elsewhere.rpartition(":")[2]

        def reply(request: BaseHTTPRequestHandler) -> None:
            send(request, 302, Location=f"http://localhost:{port}\\@{request.headers['Host']}/x")

        with answering(reply) as url, pytest.raises(mdsx.TransportError):
            open_storage(url, {"token": "TOKEN-of-mine"}).get("x")
    assert not any(seen)


def test_only_hosts_of_azure_are_trusted_by_name() -> None:
    trusted = ("a.blob.core.windows.net", "A.BLOB.core.usgovcloudapi.net", "onelake.blob.fabric.microsoft.com")
    assert all(map(is_azure, trusted))
    others = ("a.blob.attacker.example", "core.windows.net.attacker.example", "a.blobcore.windows.net.x", "windows.net")
    assert not any(map(is_azure, others))


@pytest.mark.parametrize(
    "options",
    [
        {"token": "TOKEN-of-mine"},
        {"account_key": "a2V5"},
        {"sas_token": "sv=1&sig=PLANTED"},
        {},
    ],
)
@pytest.mark.parametrize("url", ["az://data@corp.blob.attacker.example/x", "abfss://data@corp.dfs.attacker.example/x"])
def test_a_url_of_azure_names_no_host_of_others(url: str, options: dict[str, str]) -> None:
    with pytest.raises(mdsx.UsageError, match=r"not known to belong to Azure.*endpoint='https://corp.blob.attacker"):
        open_storage(url, options).get("index.json")


def test_an_option_names_another_host_of_azure() -> None:
    seen: list[str | None] = []

    def reply(request: BaseHTTPRequestHandler) -> None:
        seen.append(request.headers.get("Authorization"))
        send(request, 200, b"x")

    with answering(reply) as endpoint:
        options = {"endpoint": f"{endpoint}/corp", "token": "TOKEN-of-mine"}
        assert open_storage("az://data@corp.blob.private.example/x", options).get("y").data == b"x"
    assert seen == ["Bearer TOKEN-of-mine"]


@pytest.mark.parametrize("url", ["gs://bucket/x", "az://c/x", "hf://datasets/a/b", "s3://bucket/x"])
def test_an_endpoint_has_no_login(url: str) -> None:
    options = {"endpoint": "http://user:PLANTED-login@127.0.0.1:9"} | ({"account": "a"} if "az" in url else {})
    with pytest.raises(mdsx.MdsxError, match="credentials") as raised:
        open_storage(url, options).get("x")
    assert "PLANTED-login" not in f"{raised.value!r} {vars(raised.value)}"
