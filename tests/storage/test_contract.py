"""What every storage promises (`mdsx.testing`): local disk and real servers of the clouds pass the same tests."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import mdsx
from mdsx.base.pieces import Pieces
from mdsx.storage import SCHEMES, Storage, open_storage
from mdsx.testing import StorageContract
from tools.fault_proxy import Proxy

DATA = bytes(range(256)) * 20


WRITABLE = ["s3", "gs", "az"]
"""The clouds under contract: each has a fixture with the URL of a fresh bucket, in `tests/conftest.py`."""


class TestStorages(StorageContract):
    @pytest.fixture(params=["local", *WRITABLE])
    def storage(self, request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
        """An empty place."""
        if request.param == "local":
            return open_storage(tmp_path / "not there yet")
        return open_storage(f"{request.getfixturevalue(f'{request.param}_url')}/some/prefix")


def test_each_cloud_that_can_be_written_is_under_contract() -> None:
    opened = {scheme: open_storage(f"{scheme}://datasets/org/name") for scheme in SCHEMES}
    modules = {SCHEMES[scheme][0] for scheme, storage in opened.items() if not hasattr(storage, "instead")}
    assert modules == set(WRITABLE)


def test_azure_checks_the_condition_of_a_create(az_url: str) -> None:
    storage: Any = open_storage(az_url)
    storage.put("key", DATA)
    with pytest.raises(mdsx.ChangedError, match="key"):
        storage._store("key", Pieces(b"late"), "")
    assert storage.get("key").data == DATA


def test_a_create_sends_the_condition(s3_url: str, gs_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The servers of these tests ignore it."""
    monkeypatch.setattr("mdsx.storage.remote.s3.MULTIPART", 5 * 2**20)
    storage: Any = open_storage(s3_url)
    sent = []

    def note(request: Any, **_: object) -> None:
        sent.append(request.headers["If-None-Match"])

    events = storage._client.boto.meta.events
    for verb in ("PutObject", "CompleteMultipartUpload"):
        events.register(f"before-send.s3.{verb}", note)
    try:
        storage.create("small", b"small")
        storage.create("large", bytes(6 * 2**20))
    finally:
        for verb in ("PutObject", "CompleteMultipartUpload"):
            events.unregister(f"before-send.s3.{verb}", note)
    assert sent == [b"*"] * 2
    google: Any = open_storage(gs_url)
    assert "ifGenerationMatch=0&" in f"{google._uploading('media', 'key', '')}&"


def test_one_of_many_creates_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = open_storage(tmp_path)

    def created(number: int) -> bytes | None:
        data = b"%d" % number
        try:
            open_storage(tmp_path).create("key", data)
        except mdsx.ChangedError:
            return None
        return data

    def no_links(source: str, target: str, **folders: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    for _ in range(2):
        with ThreadPoolExecutor(8) as threads:
            found = [data for data in threads.map(created, range(16)) if data is not None]
        assert found == [storage.get("key").data]
        assert [path.name for path in tmp_path.iterdir()] == ["key"]
        storage.delete("key")
        monkeypatch.setattr(os, "link", no_links)  # a file system without hard links


def test_azure_checks_the_condition_of_a_replace(az_url: str) -> None:
    storage: Any = open_storage(az_url)
    storage.put("key", DATA)
    etag = storage.get("key").etag
    storage.put("key", DATA[:9])
    with pytest.raises(mdsx.ChangedError, match="key"):
        storage._store("key", Pieces(b"late"), etag)
    assert storage.get("key").data == DATA[:9]


def test_a_replace_in_s3_sends_the_condition(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server of these tests ignores it."""
    monkeypatch.setattr("mdsx.storage.remote.s3.MULTIPART", 5 * 2**20)
    storage: Any = open_storage(s3_url)
    storage.put("key", DATA)
    sent = []

    def note(request: Any, **_: object) -> None:
        sent.append(request.headers["If-Match"])

    events = storage._client.boto.meta.events
    for verb in ("PutObject", "CompleteMultipartUpload"):
        events.register(f"before-send.s3.{verb}", note)
    try:
        expected = []
        for data in (b"small", bytes(6 * 2**20)):
            expected.append(storage.get("key").etag.encode())
            storage.replace("key", data, etag=expected[-1].decode())
    finally:
        for verb in ("PutObject", "CompleteMultipartUpload"):
            events.unregister(f"before-send.s3.{verb}", note)
    assert sent == expected


def test_one_of_many_replaces_succeeds(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    storage.put("key", DATA)
    etag = storage.get("key").etag

    def replaced(number: int) -> bytes | None:
        data = b"%d" % number
        try:
            open_storage(tmp_path).replace("key", data, etag=etag)
        except mdsx.ChangedError:
            return None
        return data

    with ThreadPoolExecutor(8) as threads:
        found = [data for data in threads.map(replaced, range(16)) if data is not None]
    assert found == [storage.get("key").data]
    assert [path.name for path in tmp_path.iterdir()] == ["key"]  # the lock is removed


@pytest.mark.parametrize("cloud", [cloud for cloud in WRITABLE if cloud != "s3"])
def test_a_dataset_takes_as_many_requests_as_on_s3(
    cloud: str, s3_url: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    for name, url in ((cloud, request.getfixturevalue(f"{cloud}_url")), ("s3", s3_url)):
        with Proxy(request.getfixturevalue(name)) as proxy:
            for variable, value in proxy.env().items():
                monkeypatch.setenv(variable, value)
            with mdsx.Writer(f"{url}/set", {"n": "int64"}, shard_size=2000) as out:
                out.write_batch({"n": list(range(1000))})
            proxy.clear()
            assert mdsx.Dataset(f"{url}/set")[[3, 700]][1]["n"] == 700
            asked.append(sorted(each.range for each in proxy.asked))
    assert asked[0] == asked[1]
