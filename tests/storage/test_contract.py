"""What every storage promises: local disk and real servers of the clouds pass the same tests."""

from __future__ import annotations

import errno
import os
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import mdsx
from mdsx.base.pieces import Pieces
from mdsx.storage import SCHEMES, Storage, open_storage
from tests.forks import forked
from tools.fault_proxy import Proxy

DATA = bytes(range(256)) * 20


WRITABLE = ["s3", "gs", "az"]
"""The clouds under contract: each has a fixture with the URL of a fresh bucket, in `tests/conftest.py`."""


def test_each_cloud_that_can_be_written_is_under_contract() -> None:
    opened = {scheme: open_storage(f"{scheme}://datasets/org/name") for scheme in SCHEMES}
    modules = {SCHEMES[scheme][0] for scheme, storage in opened.items() if not hasattr(storage, "instead")}
    assert modules == set(WRITABLE)


@pytest.fixture(params=["local", *WRITABLE])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """An empty place."""
    if request.param == "local":
        return open_storage(tmp_path / "not there yet")
    return open_storage(f"{request.getfixturevalue(f'{request.param}_url')}/some/prefix")


def downloaded(storage: Storage, key: str, size: int) -> bytes:
    chunks: list[bytes] = []
    storage.download(key, chunks.append, size=size)
    return b"".join(chunks)


def test_a_put_object_is_read_completely(storage: Storage) -> None:
    storage.put("a/b.bin", DATA)
    piece = storage.get("a/b.bin")
    assert (piece.data, piece.total) == (DATA, len(DATA))
    assert downloaded(storage, "a/b.bin", len(DATA)) == DATA
    storage.put("a/b.bin", memoryview(DATA)[:100])  # and may be replaced
    assert storage.get("a/b.bin").data == DATA[:100]


def test_an_object_is_downloaded_into_the_room_of_the_caller(storage: Storage) -> None:
    """Each byte is read to its place, unless the storage passes copies."""
    data, memory, asked = bytes(range(256)) * 2**13, bytearray(2**22), list[int]()  # several chunks, and room to spare

    def room(size: int) -> memoryview:
        asked.append(size)
        return memoryview(memory)[:size]

    chunks = list[bytes]()
    storage.put("key", data)
    storage.download("key", chunks.append, size=len(data), room=room)
    assert b"".join(chunks) == data
    if storage.path("key") is not None:
        assert (asked, bytes(memory[: len(data)])) == ([len(data)], data)
        assert all(isinstance(chunk, memoryview) and chunk.obj is memory for chunk in chunks)


def test_room_is_asked_for_only_if_the_size_is_right(storage: Storage) -> None:
    storage.put("key", DATA)
    with pytest.raises(mdsx.TransportError, match="key"):
        storage.download("key", lambda chunk: None, size=2**60, room=lambda size: pytest.fail(f"{size} bytes"))


def test_a_range_is_half_open_and_ends_with_the_object(storage: Storage) -> None:
    storage.put("key", DATA)
    assert storage.get("key", start=3, stop=7).data == DATA[3:7]
    assert storage.get("key", start=5000).data == DATA[5000:]
    assert storage.get("key", start=len(DATA) - 2, stop=len(DATA) + 99).data == DATA[-2:]
    assert storage.get("key", start=3, stop=7).total == len(DATA)
    with pytest.raises(mdsx.TruncatedError, match="key"):
        storage.get("key", start=len(DATA), stop=len(DATA) + 5)


def test_an_object_is_put_in_one_piece_or_several(storage: Storage) -> None:
    pieces: list[bytes | memoryview] = [b"", b"head", memoryview(bytearray(b"rows")), b"", bytes(2**20), b"end"]
    storage.put("several", *pieces)
    storage.put("none")
    assert storage.get("several").data == b"".join(pieces)
    assert storage.get("none").data == b""


def test_an_object_may_be_empty(storage: Storage) -> None:
    storage.put("empty", b"")
    assert storage.get("empty").data == b""
    assert downloaded(storage, "empty", 0) == b""


def test_a_replaced_object_is_noticed(storage: Storage) -> None:
    storage.put("key", DATA)
    etag = storage.get("key").etag
    assert storage.get("key", start=1, stop=2, etag=etag).data == DATA[1:2]
    storage.put("key", DATA[::-1])
    with pytest.raises(mdsx.ChangedError, match="key"):
        storage.get("key", start=1, stop=2, etag=etag)
    with pytest.raises(mdsx.ChangedError, match="key"):
        storage.download("key", lambda chunk: None, size=len(DATA), etag=etag)


def test_a_replace_needs_the_object_that_was_read(storage: Storage) -> None:
    storage.put("key", DATA)
    first = storage.get("key").etag
    storage.replace("key", b"second", etag=first)
    second = storage.get("key")
    assert second.data == b"second"
    with pytest.raises(mdsx.ChangedError, match="key"):
        storage.replace("key", b"third", etag=first)
    assert storage.get("key").data == b"second"
    storage.replace("key", b"fourth", etag=second.etag)
    storage.delete("key")
    with pytest.raises(mdsx.ChangedError, match="key"):
        storage.replace("key", b"fifth", etag=second.etag)
    assert list(storage.list()) == []


def test_a_create_needs_a_free_place(storage: Storage) -> None:
    storage.create("folder/key", DATA)
    with pytest.raises(mdsx.ChangedError, match="key"):
        storage.create("folder/key", b"second")
    assert storage.get("folder/key").data == DATA
    storage.delete("folder/key")
    storage.create("folder/key", b"third")
    assert [(entry.key, entry.size) for entry in storage.list()] == [("folder/key", 5)]


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


def test_a_listing_says_when_an_object_was_stored(storage: Storage) -> None:
    storage.put("key", DATA)
    (entry,) = storage.list()
    assert abs(entry.modified - time.time()) < 600


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


def test_a_download_has_the_promised_size(storage: Storage) -> None:
    storage.put("key", DATA)
    with pytest.raises(mdsx.TruncatedError, match="key"):
        downloaded(storage, "key", len(DATA) + 1)
    with pytest.raises(mdsx.ChangedError, match="key"):
        downloaded(storage, "key", len(DATA) - 1)


def test_a_missing_object_raises(storage: Storage) -> None:
    with pytest.raises(mdsx.MissingError, match="absent"):
        storage.get("absent")
    with pytest.raises(mdsx.MissingError, match="absent"):
        downloaded(storage, "absent", 5)
    storage.delete("absent")
    assert list(storage.list()) == []


def test_a_listing_is_sorted_and_by_prefix(storage: Storage) -> None:
    for key in ("shard.2", "shard.10", "part-1/shard.1", "part-1/deep/x", "part-2/shard.1", "z"):
        storage.put(key, key.encode())
    assert [entry.key for entry in storage.list("shard.")] == ["shard.10", "shard.2"]
    assert [entry.key for entry in storage.list("part-1/")] == ["part-1/deep/x", "part-1/shard.1"]
    everything = list(storage.list())
    assert [entry.key for entry in everything] == sorted(entry.key for entry in everything)
    assert {entry.key: entry.size for entry in everything}["part-2/shard.1"] == len("part-2/shard.1")
    assert list(storage.list("nothing")) == []


def test_a_deleted_object_is_missing(storage: Storage) -> None:
    storage.put("a/b", DATA)
    storage.put("a/c", DATA)
    storage.delete("a/b")
    assert [entry.key for entry in storage.list()] == ["a/c"]


@pytest.mark.parametrize("key", ["../x", "/x", "a/../../x", "a//b", "a\\b", "", ".", "a/"])
def test_no_key_leads_outside_the_storage(storage: Storage, key: str) -> None:
    for use in (storage.get, storage.delete, storage.path, lambda bad: storage.put(bad, b"")):
        with pytest.raises(mdsx.UsageError, match="key"):
            use(key)


def test_storage_works_across_pickle_threads_and_forks(storage: Storage) -> None:
    storage.put("key", DATA)
    storage.get("key")
    assert pickle.loads(pickle.dumps(storage)).get("key").data == DATA
    with ThreadPoolExecutor(8) as threads:
        assert all(piece.data == DATA for piece in threads.map(storage.get, ["key"] * 40))
    assert forked(lambda: storage.get("key").data) == DATA
    assert storage.get("key").data == DATA


def test_connections_can_be_opened_in_advance(storage: Storage) -> None:
    storage.put("key", DATA)
    for key in ("key", "missing"):  # errors appear at later requests
        storage.connect(key, 8)
        assert forked(lambda: storage.get("key").data) == DATA
        assert storage.get("key").data == DATA


def test_unusual_names_are_read_and_listed(storage: Storage) -> None:
    names = ["a b/ü%2F+&'~(1).bin", "a b/?#", "x;y=z,@:!$*"]
    for name in names:
        storage.put(name, name.encode())
        assert storage.get(name, start=1).data == name.encode()[1:]
    assert [(entry.key, entry.etag) for entry in storage.list()] == sorted(
        (name, storage.get(name).etag) for name in names
    )
    for name in names:
        storage.delete(name)
    assert list(storage.list()) == []


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
