"""What only Azure has: accounts, ways to authorise, blocks, folders as blobs, and its errors. Azurite is the server.

Its faults are in `test_faults.py`.
"""

from __future__ import annotations

import json
import pickle
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import pytest

import mdsx
from mdsx.base.pieces import Pieces
from mdsx.storage import MissingBucketError, open_storage, retry, throttle
from mdsx.storage.remote import az as az_module
from mdsx.storage.remote import az_identity, parse
from mdsx.storage.remote.az import AzStorage
from tests.forks import forked
from tools.fault_proxy import Proxy, status
from tools.servers.az import AzureServer

AZURE = "https://acc.blob.core.windows.net"
KEY = "a2V5IG9mIHRoZSBhY2NvdW50"


@pytest.fixture
def storage(az_url: str) -> AzStorage:
    found = open_storage(f"{az_url}/set")
    assert isinstance(found, AzStorage)
    return found


@pytest.fixture
def proxy(az: AzureServer, az_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    monkeypatch.setattr(retry, "pause", lambda failures: None)
    monkeypatch.setattr(throttle, "pause", lambda seconds: None)
    with Proxy(az) as running:
        for name, value in running.env().items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without credentials of Azure."""
    for name in ("AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_KEY"):
        monkeypatch.delenv(name, raising=False)


# --- objects


def test_a_listing_has_many_pages(proxy: Proxy, az: AzureServer, az_url: str) -> None:
    storage = open_storage(f"{az_url}/set", {"sas_token": az.sas()})
    names = [f"shard {number}" for number in range(5)]
    for name in names:
        storage.put(name, b"1")

    def two(exchange: Any) -> None:
        exchange.path += "&maxresults=2"
        exchange.send(exchange.forward())

    rule = proxy.add(two)
    assert [entry.key for entry in storage.list("shard ")] == names
    assert rule.hits == 3


def test_folders_are_not_listed_as_objects(storage: AzStorage) -> None:
    storage.put("folder/key", b"1")
    url = storage._blob("folder")
    headers = {"Content-Length": "0", "x-ms-blob-type": "BlockBlob", "x-ms-meta-hdi_isfolder": "true"}
    storage._ask("folder", "PUT", url, headers=headers, body=Pieces())
    assert [entry.key for entry in storage.list()] == ["folder/key"]


PAGE = """\ufeff<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Blobs>
<Blob><Name>part</Name><Properties><Etag>0x1</Etag><ResourceType>directory</ResourceType>
<Content-Length>0</Content-Length></Properties></Blob>
<Blob><Name Encoded="true">part%2F%EF%BF%BE%25</Name><Properties><Etag>0x2</Etag><ResourceType>file</ResourceType>
<Content-Length>12</Content-Length></Properties><Metadata><Name>other</Name></Metadata></Blob>
</Blobs><NextMarker>2!4</NextMarker></EnumerationResults>"""


def test_a_hierarchical_namespace_and_encoded_names_are_listed() -> None:
    entries, marker = az_module._listed(PAGE.encode(), "az://box")
    assert [(entry.key, entry.size, entry.etag) for entry in entries] == [("part/\ufffe%", 12, '"0x2"')]
    assert marker == "2!4"


@pytest.mark.parametrize(
    "page",
    [
        PAGE.replace("<EnumerationResults>", '<!DOCTYPE x [<!ENTITY a "b">]><EnumerationResults>', 1),
        PAGE.replace("12", "many"),
        PAGE[:200],
        "{}",
        "\xff",
    ],
)
def test_a_page_that_is_no_listing_raises(page: str) -> None:
    """A document type, whose entities could grow without bounds, is never parsed."""
    with pytest.raises(mdsx.TransportError, match="az://box: the endpoint did not return a listing"):
        az_module._listed(page.encode("latin-1" if page == "\xff" else "utf-8"), "az://box")


# --- uploads in blocks


def test_a_large_object_is_uploaded_in_blocks(
    proxy: Proxy, storage: AzStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(az_module, "MULTIPART", 400)
    data = bytes(range(250)) * 5
    lost = proxy.add(status(500, "OperationTimedOut"), method="PUT", skip=2, times=2)
    storage.put("large", data)
    assert storage.get("large").data == data
    assert lost.hits == 2


def test_blocks_that_another_upload_discards_are_sent_again(
    proxy: Proxy, storage: AzStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(az_module, "MULTIPART", 400)

    def small_first(exchange: Any) -> None:
        monkeypatch.setattr(az_module, "MULTIPART", 2000)
        storage.put("large", b"another's")
        exchange.send(exchange.forward())

    proxy.add(small_first, method="PUT", times=1, when=lambda exchange: exchange.path.endswith("comp=blocklist"))
    storage.put("large", bytes(1000))
    assert storage.get("large").data == bytes(1000)


def test_an_unfinished_upload_is_not_visible(proxy: Proxy, storage: AzStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(az_module, "MULTIPART", 400)
    proxy.add(status(403, "AuthorizationFailure"), method="PUT", skip=2)
    with pytest.raises(mdsx.ForbiddenError):
        storage.put("large", bytes(1000))
    storage.discard_unfinished()
    assert list(storage.list()) == []
    with pytest.raises(mdsx.MissingError):
        storage.get("large")
    storage.delete("large")


# --- accounts and URLs


@pytest.mark.parametrize(
    ("url", "shown", "endpoint", "name"),
    [
        ("az://box/set/", "az://box/set", AZURE, "acc"),
        ("azure://box", "azure://box", AZURE, "acc"),
        ("abfs://box/a/b", "abfs://box/a/b", AZURE, "acc"),
        ("abfss://box@acc2.dfs.core.windows.net/set", None, "https://acc2.blob.core.windows.net", "acc2"),
        ("az://box@acc2.blob.core.chinacloudapi.cn", None, "https://acc2.blob.core.chinacloudapi.cn", "acc2"),
        ("az://box@acc2.z1.blob.storage.azure.net", None, "https://acc2.z1.blob.storage.azure.net", "acc2"),
    ],
)
def test_a_url_names_container_and_maybe_account(
    bare: None, monkeypatch: pytest.MonkeyPatch, url: str, shown: str | None, endpoint: str, name: str
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "acc")
    storage = open_storage(url, {"anonymous": True})
    assert isinstance(storage, AzStorage)
    assert storage.url == (shown or url)
    assert (storage._account.endpoint, storage._account.name) == (endpoint, name)
    assert storage._file("key") == f"{storage.url}/key"
    assert str(mdsx.TransportError("x", file=storage.url)) == f"{storage.url}: x"


@pytest.mark.parametrize(
    "url",
    [
        "az://",
        "az://box@secret/set",
        "az://name:secret@box/set",
        "az://box@acc.example.com/secret",
        "az://box/set?sig=secret",
        "abfss://name:secret@acc.dfs.core.windows.net/set",
    ],
)
def test_wrong_urls_raise_without_showing_them(url: str) -> None:
    with pytest.raises(mdsx.UsageError, match="a URL is") as raised:
        open_storage(url)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "environment", "endpoint", "name", "uses"),
    [
        ({"account": "acc", "account_key": KEY}, {}, AZURE, "acc", "key of the options"),
        ({"account": "acc", "sas_token": "?sig=abcdefg"}, {}, AZURE, "acc", "SAS token of the options"),
        ({"account": "acc", "token": "abcdefg"}, {}, AZURE, "acc", "option token"),
        ({"endpoint": AZURE + "/", "account_key": KEY}, {}, AZURE, "acc", "key of the options"),
        ({"endpoint": "http://127.0.0.1:1/acc", "client_id": "1-2"}, {}, "http://127.0.0.1:1/acc", "acc", "identity"),
        ({"endpoint": "https://data.example"}, {}, "https://data.example", "data.example", "identity"),
        ({"connection_string": f"AccountName=acc;AccountKey={KEY}"}, {}, AZURE, "acc", "key of the options"),
        (
            {"connection_string": f"BlobEndpoint={AZURE};SharedAccessSignature=sig=abcdefg"},
            {"AZURE_STORAGE_KEY": KEY},
            *(AZURE, "acc", "SAS token of the options"),
        ),
        (
            {"account": "acc"},
            {"AZURE_STORAGE_CONNECTION_STRING": f"AccountName=acc;AccountKey={KEY};EndpointSuffix=core.example"},
            *("https://acc.blob.core.example", "acc", "key of the environment"),
        ),
        ({}, {"AZURE_STORAGE_ACCOUNT": "acc", "AZURE_STORAGE_KEY": KEY}, AZURE, "acc", "key of the environment"),
        ({}, {"AZURE_ACCOUNT_NAME": "acc", "AZURE_ACCOUNT_ACCESS_KEY": KEY}, AZURE, "acc", "key of the environment"),
        (
            {},
            {"AZURE_STORAGE_ACCOUNT_NAME": "acc", "AZURE_STORAGE_SAS_TOKEN": "sig=1"},
            AZURE,
            "acc",
            "SAS token of the",
        ),
        ({}, {"AZURE_STORAGE_ACCOUNT": "acc"}, AZURE, "acc", "azure-identity"),
        (
            {"anonymous": "true"},
            {"AZURE_STORAGE_ACCOUNT": "acc", "AZURE_STORAGE_KEY": KEY},
            AZURE,
            "acc",
            "no credentials",
        ),
        # what the environment has for another account is not used
        ({"account": "acc"}, {"AZURE_STORAGE_ACCOUNT": "b", "AZURE_STORAGE_KEY": KEY}, AZURE, "acc", "azure-identity"),
        (
            {"account": "acc"},
            {"AZURE_STORAGE_CONNECTION_STRING": f"AccountName=b;AccountKey={KEY}"},
            *(AZURE, "acc", "azure-identity"),
        ),
    ],
)
def test_options_come_before_the_environment(
    bare: None,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    environment: dict[str, str],
    endpoint: str,
    name: str,
    uses: str,
) -> None:
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    storage = open_storage("az://box/set", options)
    assert isinstance(storage, AzStorage)
    account = storage._account
    assert (account.endpoint, account.name) == (endpoint, name)
    assert uses in account.uses


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "the storage account is unknown.*AZURE_STORAGE_ACCOUNT"),
        ({"account": "acc", "connection_string": "AccountName=b"}, "name different accounts"),
        ({"connection_string": "secret=1"}, "the option connection_string: not a connection string"),
        ({"account": "acc", "account_key": "secret!"}, "not base64"),
        ({"endpoint": "acc.blob.core.windows.net"}, "the endpoint is not a URL"),
        ({"endpoint": "https://a:secret@acc.blob.core.windows.net"}, "the endpoint is not a URL"),
    ],
)
def test_wrong_accounts_raise_with_advice(bare: None, options: dict[str, str], message: str) -> None:
    with pytest.raises(mdsx.UsageError, match=message) as raised:
        open_storage("az://box/set", options).get("key")
    assert "secret" not in str(raised.value)


# --- credentials


def test_every_kind_of_credentials_is_accepted(az: AzureServer, storage: AzStorage, bare: None) -> None:
    connection = az.env()["AZURE_STORAGE_CONNECTION_STRING"]
    ways: list[dict[str, Any]] = [
        {"connection_string": connection},
        {"endpoint": az.url, "account_key": az.key},
        {"endpoint": az.url, "sas_token": az.sas()},
        {"endpoint": az.url, "sas_token": "?" + az.sas("rwdl")},
    ]
    for number, options in enumerate(ways):
        ours = open_storage(storage.url, options)
        ours.put(f"key {number}", b"1")
        assert pickle.loads(pickle.dumps(ours)).get(f"key {number}").data == b"1"
        assert [entry.key for entry in ours.list()] == [f"key {number}"]
        ours.delete(f"key {number}")


def test_a_sas_permits_what_it_says(az: AzureServer, storage: AzStorage) -> None:
    storage.put("key", b"1")
    reader = open_storage(storage.url, {"sas_token": az.sas("rl")})
    assert reader.get("key").data == b"1"
    with pytest.raises(mdsx.ForbiddenError, match=r"AuthorizationPermissionMismatch.*the SAS token of the options"):
        reader.put("key", b"2")
    with pytest.raises(mdsx.ForbiddenError):
        open_storage(storage.url, {"sas_token": az.sas(seconds=-60)}).get("key")
    assert storage.get("key").data == b"1"


def test_a_public_container_needs_no_credentials(az: AzureServer, bare: None) -> None:
    options = {"endpoint": az.url, "anonymous": True}
    url = az.make_bucket("public", public=True)
    open_storage(url, {"endpoint": az.url, "account_key": az.key}).put("key", b"1")
    assert open_storage(url, options).get("key").data == b"1"
    assert [entry.key for entry in open_storage(url, options).list()] == ["key"]
    with pytest.raises(mdsx.ForbiddenError, match="no credentials"):
        open_storage(az.make_bucket("private"), options).get("key")


def test_renewed_credentials_apply_immediately(
    az: AzureServer, storage: AzStorage, bare: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = open_storage(storage.url, {"endpoint": az.url})
    monkeypatch.setenv("AZURE_STORAGE_KEY", KEY)
    with pytest.raises(mdsx.ForbiddenError):
        ours.put("key", b"1")
    monkeypatch.setenv("AZURE_STORAGE_KEY", az.key)
    ours.put("key", b"1")


def test_a_clock_that_is_off_is_named(storage: AzStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse, "now", lambda: time.time() - 3600)
    with pytest.raises(mdsx.ForbiddenError, match=r"clock is (59|60) minutes slow"):
        open_storage(storage.url, {"account_key": KEY}).get("key")


def test_no_error_shows_a_credential(az: AzureServer, proxy: Proxy, storage: AzStorage) -> None:
    storage.put("key", b"1")
    sas = az.sas("l")
    secrets = [az.key, KEY, sas, sas.rpartition("sig=")[2], "a.token"]
    ways = [
        {"sas_token": sas},
        {"account_key": KEY},
        {"token": "a.token"},
        {"connection_string": proxy.env()["AZURE_STORAGE_CONNECTION_STRING"]},
        {},
    ]
    errors: list[mdsx.MdsxError] = []
    for options in ways:
        ours = open_storage(storage.url, options)
        assert not any(secret in repr(ours) + repr(ours.__dict__) for secret in secrets)
        for fault in (
            status(403, "AuthenticationFailed"),
            status(500, "InternalError"),
            lambda exchange: exchange.reset(),
        ):
            proxy.add(fault)
            with pytest.raises(mdsx.TransportError) as raised:
                ours.get("key")
            errors.append(raised.value)
            proxy.clear()
    with proxy.down(), pytest.raises(mdsx.TransportError) as raised:
        storage.get("key")
    for error in (*errors, raised.value):
        shown = "".join(traceback.format_exception(error)) + repr(error) + repr(pickle.dumps(error))
        assert not any(secret in shown for secret in secrets)


# --- answers that are no success


@pytest.mark.parametrize(
    ("code", "name"),
    [(409, "ContainerBeingDeleted"), (500, "OperationTimedOut"), (500, "InternalError"), (503, "ServerBusy")],
)
def test_what_passes_is_retried(proxy: Proxy, storage: AzStorage, code: int, name: str) -> None:
    storage.put("key", b"1")
    rule = proxy.add(status(code, name), times=3)
    assert storage.get("key").data == b"1"
    assert rule.hits == 3
    rule.times = None
    with pytest.raises(mdsx.TransportError, match=f"/set/key: .*{code} {name}.*given up after {retry.TRIES} tries"):
        storage.get("key")


@pytest.mark.parametrize(
    ("code", "name", "error"),
    [
        (401, "InvalidAuthenticationInfo", mdsx.ForbiddenError),
        (403, "AuthenticationFailed", mdsx.ForbiddenError),
        (409, "PublicAccessNotPermitted", mdsx.ForbiddenError),
        (404, "BlobNotFound", mdsx.MissingError),
        (412, "ConditionNotMet", mdsx.ChangedError),
        (412, "LeaseIdMissing", mdsx.TransportError),
        (416, "InvalidRange", mdsx.TruncatedError),
    ],
)
def test_refusals_are_not_retried(
    proxy: Proxy, storage: AzStorage, code: int, name: str, error: type[mdsx.MdsxError]
) -> None:
    rule = proxy.add(status(code, name))
    with pytest.raises(error, match="/set/key") as raised:
        storage.get("key")
    assert type(raised.value) is error
    assert rule.hits == 1


def test_a_container_that_was_there_is_retried(proxy: Proxy, storage: AzStorage) -> None:
    with pytest.raises(MissingBucketError, match=r"no such container.*1 try, on first contact"):
        open_storage("az://absent/set").get("key")
    storage.put("key", b"1")
    proxy.add(status(404, "ContainerNotFound"), times=5)
    assert storage.get("key").data == b"1"


# --- tokens


class Cloud(ThreadingHTTPServer):
    """Gives tokens, as a managed identity does on Azure's machines, and serves blobs to those who have the last one."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Exchange)
        self.tokens = 0
        self.lifetime = 3600
        self.broken = self.refuses = False
        self.asked: list[str] = []
        self.lock = threading.Lock()


class Exchange(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Cloud

    def do_GET(self) -> None:
        code, body = 200, b"1"
        self.server.asked.append(self.path)
        if urlsplit(self.path).path == "/token":
            assert self.headers["X-IDENTITY-HEADER"] == "known"
            with self.server.lock:
                self.server.tokens += not self.server.broken
            expires = int(time.time()) + self.server.lifetime
            token = {"access_token": f"token-{self.server.tokens}", "expires_on": str(expires), "token_type": "Bearer"}
            code, body = (400, b"{}") if self.server.broken else (200, json.dumps(token).encode())
        elif self.server.refuses or self.headers["Authorization"] != f"Bearer token-{self.server.tokens}":
            code, body = 401, b"<Error><Code>InvalidAuthenticationInfo</Code></Error>"
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def cloud(bare: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    with Cloud() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{address}/token")
        monkeypatch.setenv("IDENTITY_HEADER", "known")
        monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "ManagedIdentityCredential")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield server
        server.shutdown()
        thread.join()


def of(cloud: Cloud) -> dict[str, str]:
    return {"endpoint": f"http://127.0.0.1:{cloud.server_port}/acc"}


def test_one_token_serves_storages_threads_and_forks(cloud: Cloud) -> None:
    storages = [open_storage(f"az://box/{number}", of(cloud)) for number in range(4)]
    with ThreadPoolExecutor(4) as threads:
        assert {piece.data for piece in threads.map(lambda storage: storage.get("key"), storages * 5)} == {b"1"}
    assert forked(lambda: storages[0].get("key").data) == b"1"
    assert pickle.loads(pickle.dumps(storages[0])).get("key").data == b"1"
    assert cloud.tokens == 1


def test_a_token_is_renewed_before_it_expires(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(az_identity, "_AGAIN", 0)
    cloud.lifetime = 200  # less than the time before which it is renewed
    storage = open_storage("az://box", of(cloud))
    for _ in range(3):
        storage.get("key")
    assert cloud.tokens == 3
    cloud.broken = True
    assert storage.get("key").data == b"1"  # with the token that is still valid


def test_a_refused_token_is_renewed(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(az_identity, "_AGAIN", 0)
    monkeypatch.setattr(retry, "pause", lambda failures: None)
    storage = open_storage("az://refused", of(cloud))
    cloud.refuses = True
    with pytest.raises(mdsx.ForbiddenError, match=r"401 InvalidAuthenticationInfo.*azure-identity") as raised:
        storage.get("key")  # at once: this may be another tenant's account
    assert "tries" not in str(raised.value)
    cloud.refuses = False
    assert storage.get("key").data == b"1"
    cloud.tokens += 1  # the storage's is revoked
    assert storage.get("key").data == b"1"
    cloud.refuses = True
    with pytest.raises(mdsx.ForbiddenError, match=f"given up after {retry.TRIES} tries"):
        storage.get("key")


def test_a_user_assigned_identity_is_named_by_its_client_id(cloud: Cloud) -> None:
    assert open_storage("az://box", {**of(cloud), "client_id": "1-2-3"}).get("key").data == b"1"
    assert "client_id=1-2-3" in cloud.asked[0]


def test_without_any_credentials_the_ways_are_named(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud.broken = True
    with pytest.raises(mdsx.ForbiddenError, match=r"no credentials: .*ManagedIdentityCredential.*az login"):
        open_storage("az://box", of(cloud)).get("key")
    monkeypatch.setenv("AZURE_CLIENT_ID", "another")  # another identity, which has no token
    monkeypatch.setitem(sys.modules, "azure.identity", None)
    with pytest.raises(mdsx.UsageError, match=r"pip install 'mdsx\[az\]'"):
        open_storage("az://box", of(cloud)).get("key")
