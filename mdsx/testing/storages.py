"""The contract of a storage. mdsx's own storages pass the same tests, with real servers of the clouds."""

from __future__ import annotations

import pickle
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import mdsx
from mdsx.storage import Storage
from mdsx.testing.forks import forked

DATA = bytes(range(256)) * 20


def downloaded(storage: Storage, key: str, size: int) -> bytes:
    chunks: list[bytes] = []
    storage.download(key, chunks.append, size=size)
    return b"".join(chunks)


class StorageContract:
    """The tests that a storage must pass. A subclass has a fixture that returns an empty place in it.

    class TestDisk(mdsx.testing.StorageContract):
        @pytest.fixture
        def storage(self, tmp_path):
            return DiskStorage(f"disk://{tmp_path}/data", {})
    """

    def test_a_put_object_is_read_completely(self, storage: Storage) -> None:
        storage.put("a/b.bin", DATA)
        piece = storage.get("a/b.bin")
        assert (piece.data, piece.total) == (DATA, len(DATA))
        assert downloaded(storage, "a/b.bin", len(DATA)) == DATA
        storage.put("a/b.bin", memoryview(DATA)[:100])  # and may be replaced
        assert storage.get("a/b.bin").data == DATA[:100]

    def test_an_object_is_downloaded_into_the_room_of_the_caller(self, storage: Storage) -> None:
        """Each byte is read directly to its place, unless the storage passes copies."""
        # several chunks, with room
        data, memory, asked = bytes(range(256)) * 2**13, bytearray(2**22), list[int]()

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

    def test_room_is_asked_for_only_if_the_size_is_right(self, storage: Storage) -> None:
        storage.put("key", DATA)
        with pytest.raises(mdsx.TransportError, match="key"):
            storage.download("key", lambda chunk: None, size=2**60, room=lambda size: pytest.fail(f"{size} bytes"))

    def test_a_range_is_half_open_and_ends_with_the_object(self, storage: Storage) -> None:
        storage.put("key", DATA)
        assert storage.get("key", start=3, stop=7).data == DATA[3:7]
        assert storage.get("key", start=5000).data == DATA[5000:]
        assert storage.get("key", start=len(DATA) - 2, stop=len(DATA) + 99).data == DATA[-2:]
        assert storage.get("key", start=3, stop=7).total == len(DATA)
        with pytest.raises(mdsx.TruncatedError, match="key"):
            storage.get("key", start=len(DATA), stop=len(DATA) + 5)

    def test_an_object_is_put_in_one_piece_or_several(self, storage: Storage) -> None:
        pieces: list[bytes | memoryview] = [b"", b"head", memoryview(bytearray(b"rows")), b"", bytes(2**20), b"end"]
        storage.put("several", *pieces)
        storage.put("none")
        assert storage.get("several").data == b"".join(pieces)
        assert storage.get("none").data == b""

    def test_an_object_may_be_empty(self, storage: Storage) -> None:
        storage.put("empty", b"")
        assert storage.get("empty").data == b""
        assert downloaded(storage, "empty", 0) == b""
        first = storage.get("empty", stop=1)
        assert (first.data, first.total) == (b"", 0)
        with pytest.raises(mdsx.ChangedError, match="empty"):
            storage.create("empty", DATA)
        storage.replace("empty", DATA, etag=first.etag)
        assert storage.get("empty").data == DATA

    def test_a_replaced_object_is_noticed(self, storage: Storage) -> None:
        storage.put("key", DATA)
        etag = storage.get("key").etag
        assert storage.get("key", start=1, stop=2, etag=etag).data == DATA[1:2]
        storage.put("key", DATA[::-1])
        with pytest.raises(mdsx.ChangedError, match="key"):
            storage.get("key", start=1, stop=2, etag=etag)
        with pytest.raises(mdsx.ChangedError, match="key"):
            storage.download("key", lambda chunk: None, size=len(DATA), etag=etag)

    def test_a_replace_needs_the_object_that_was_read(self, storage: Storage) -> None:
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

    def test_a_create_needs_a_free_place(self, storage: Storage) -> None:
        storage.create("folder/key", DATA)
        with pytest.raises(mdsx.ChangedError, match="key"):
            storage.create("folder/key", b"second")
        assert storage.get("folder/key").data == DATA
        storage.delete("folder/key")
        storage.create("folder/key", b"third")
        assert [(entry.key, entry.size) for entry in storage.list()] == [("folder/key", 5)]

    def test_a_listing_says_when_an_object_was_stored(self, storage: Storage) -> None:
        storage.put("key", DATA)
        (entry,) = storage.list()
        assert abs(entry.modified - time.time()) < 600

    def test_a_download_has_the_promised_size(self, storage: Storage) -> None:
        storage.put("key", DATA)
        with pytest.raises(mdsx.TruncatedError, match="key"):
            downloaded(storage, "key", len(DATA) + 1)
        with pytest.raises(mdsx.ChangedError, match="key"):
            downloaded(storage, "key", len(DATA) - 1)

    def test_a_missing_object_raises(self, storage: Storage) -> None:
        with pytest.raises(mdsx.MissingError, match="absent"):
            storage.get("absent")
        with pytest.raises(mdsx.MissingError, match="absent"):
            downloaded(storage, "absent", 5)
        storage.delete("absent")
        assert list(storage.list()) == []

    def test_a_listing_is_sorted_and_by_prefix(self, storage: Storage) -> None:
        for key in ("shard.2", "shard.10", "part-1/shard.1", "part-1/deep/x", "part-2/shard.1", "z"):
            storage.put(key, key.encode())
        assert [entry.key for entry in storage.list("shard.")] == ["shard.10", "shard.2"]
        assert [entry.key for entry in storage.list("part-1/")] == ["part-1/deep/x", "part-1/shard.1"]
        everything = list(storage.list())
        assert [entry.key for entry in everything] == sorted(entry.key for entry in everything)
        assert {entry.key: entry.size for entry in everything}["part-2/shard.1"] == len("part-2/shard.1")
        assert list(storage.list("nothing")) == []

    def test_a_deleted_object_is_missing(self, storage: Storage) -> None:
        storage.put("a/b", DATA)
        storage.put("a/c", DATA)
        storage.delete("a/b")
        assert [entry.key for entry in storage.list()] == ["a/c"]

    @pytest.mark.parametrize("key", ["../x", "/x", "a/../../x", "a//b", "a\\b", "", ".", "a/"])
    def test_no_key_leads_outside_the_storage(self, storage: Storage, key: str) -> None:
        for use in (storage.get, storage.delete, storage.path, lambda bad: storage.put(bad, b"")):
            with pytest.raises(mdsx.UsageError, match="key"):
                use(key)

    def test_storage_works_across_pickle_threads_and_forks(self, storage: Storage) -> None:
        storage.put("key", DATA)
        storage.get("key")
        assert pickle.loads(pickle.dumps(storage)).get("key").data == DATA
        with ThreadPoolExecutor(8) as threads:
            assert all(piece.data == DATA for piece in threads.map(storage.get, ["key"] * 40))
        assert forked(lambda: storage.get("key").data) == DATA
        assert storage.get("key").data == DATA

    def test_connections_can_be_opened_in_advance(self, storage: Storage) -> None:
        storage.put("key", DATA)
        for key in ("key", "missing"):  # errors appear at later requests
            storage.connect(key, 8)
            assert forked(lambda: storage.get("key").data) == DATA
            assert storage.get("key").data == DATA

    def test_unusual_names_are_read_and_listed(self, storage: Storage) -> None:
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
