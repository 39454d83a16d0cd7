"""Indexes made of others: Energon's and WebDataset's wids JSON. Only headers, numbers and arrays are read."""

from __future__ import annotations

import json
import sqlite3
import tarfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsx
from mdsx.base.process import Workers
from mdsx.foreign.tars import parse_text
from mdsx.storage import Entry, open_storage
from mdsx.storage.local import LocalStorage
from mdsx.transfer.indexing.other_indexes import FOLDER, OtherIndex
from tests.foreign.tars.sparse_tars import header, old_gnu, padded
from tests.foreign.tars.tars import JPEG, npy, write_tar

INDEX = "_mdsx-tars.json"
SIZE = 200_000  # bytes of an image


def members(first: int) -> Iterator[tuple[str, bytes]]:
    for number in range(first, first + 10):
        yield f"{number:03d}.jpg", JPEG.ljust(SIZE, b"x")
        yield f"{number:03d}.cls", str(number).encode()
        yield f"{number:03d}.v.npy", npy(np.full(4, number, np.float32))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for tar in range(2):
        write_tar(tmp_path / f"data/{tar}.tar", members(tar * 10))
    return tmp_path / "data"


def energon(folder: Path, *, info: str = ".info.json") -> Path:
    """Write the index that Energon 7 writes: the tables, and the number of samples of each tar."""
    made = folder / FOLDER
    made.mkdir()
    counts = {}
    with closing(sqlite3.connect(made / "index.sqlite")) as database:
        database.execute("CREATE TABLE samples (tar_file_id, sample_key, sample_index, byte_offset, byte_size)")
        database.execute(
            "CREATE TABLE sample_parts (tar_file_id INTEGER, sample_index INTEGER, part_name TEXT, "
            "content_byte_offset INTEGER, content_byte_size INTEGER)"
        )
        for number, path in enumerate(sorted(folder.glob("*.tar"))):
            with tarfile.open(path) as tar:
                found = tar.getmembers()
            keys = list(dict.fromkeys(member.name.partition(".")[0] for member in found))
            counts[path.name] = len(keys)
            for member in found:
                key, _, part = member.name.partition(".")
                row = (number, keys.index(key), part, member.offset_data, member.size)
                database.execute("INSERT INTO sample_parts VALUES (?, ?, ?, ?, ?)", row)
        database.commit()
    if info == ".info.json":
        (made / info).write_text(json.dumps({"energon_version": "7.4.1", "shard_counts": counts}))
    else:
        lines = "".join(f"  {name}: {count}\n" for name, count in counts.items())
        (made / info).write_text(f"energon_version: 7.4.1\nshard_counts:\n{lines}")
    return made


def wids(folder: Path, count: int = 10) -> Path:
    shards = [{"url": f"{tar}.tar", "md5sum": "", "nsamples": count, "filesize": 1} for tar in range(2)]
    (folder / "index.json").write_text(json.dumps({"wids_version": 1, "shardlist": shards, "name": "x"}))
    return folder / "index.json"


def check_samples(folder: Path | str, tmp_path: Path, index: Path | None = None) -> None:
    dataset = mdsx.Dataset(folder, cache=tmp_path / "cache", index=index)
    assert len(dataset) == 20
    for number, sample in enumerate(dataset):
        assert (sample["__key__"], sample["cls"]) == (f"{number:03d}", number)
        assert sample["jpg"] == JPEG.ljust(SIZE, b"x")
        assert sample["v.npy"].tolist() == [number] * 4


@pytest.mark.parametrize("kind", ["energon", "energon in YAML", "wids"])
def test_only_headers_numbers_and_arrays_are_read(
    folder: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = wids(folder) if kind == "wids" else energon(folder, info=".info.yaml" if "YAML" in kind else ".info.json")
    read = []
    get = LocalStorage.get

    def counted(self: LocalStorage, key: str, **options: object) -> object:
        piece = get(self, key, **options)  # type: ignore[arg-type]
        if key == "1.tar":  # the columns are those of the first samples of 0.tar
            read.append(len(piece.data))
        return piece

    monkeypatch.setattr(LocalStorage, "get", counted)
    found = mdsx.index_tars(folder, from_index=made)
    assert (found.samples, found.checksums) == (20, False)
    assert sum(read) < 10 * SIZE / 10
    parsed = parse_text((folder / INDEX).read_bytes())
    assert [tar.hash for tar in parsed.tars] == [None, None]
    assert parsed.metadata == {"checksums": False}
    check_samples(folder, tmp_path)
    assert mdsx.index_tars(folder).read == 2  # now with checksums
    assert mdsx.index_tars(folder).checksums


def uploaded(folder: Path, url: str) -> str:
    storage = open_storage(url)
    for path in folder.rglob("*"):
        if path.is_file():
            storage.put(path.relative_to(folder).as_posix(), path.read_bytes())
    return url


_ENDLESS = """
    VIEW sample_parts AS WITH RECURSIVE c(x) AS (VALUES(0) UNION ALL SELECT x + 1 FROM c)
    SELECT 0 AS tar_file_id, x AS content_byte_offset, 0 AS content_byte_size FROM c
"""


@pytest.mark.parametrize("made", [_ENDLESS, "VIRTUAL TABLE sample_parts USING fts5(tar_file_id)"])
def test_energons_members_are_a_plain_table_or_refused(folder: Path, made: str, s3_url: str) -> None:
    path = energon(folder) / "index.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("DROP TABLE sample_parts")
        database.execute(f"CREATE {made}")
        database.commit()
    with pytest.raises(mdsx.CorruptError, match="sample_parts is not a table"):
        mdsx.index_tars(uploaded(folder, s3_url), from_index=f"{s3_url}/{FOLDER}")


def test_energons_index_says_which_ranges_to_fetch(folder: Path, tmp_path: Path, s3_url: str) -> None:
    energon(folder)
    uploaded(folder, s3_url)
    found = mdsx.index_tars(s3_url, from_index=f"{s3_url}/{FOLDER}")
    assert (found.samples, found.checksums) == (20, False)
    check_samples(s3_url, tmp_path)


def test_energons_index_may_have_any_size(
    folder: Path, tmp_path: Path, s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mdsx.storage.remote.limits.OBJECT", 4096)  # bytes of an object that is read whole
    monkeypatch.setattr("mdsx.transfer.indexing.other_indexes._STEPS_A_BYTE", 2**31)
    assert (energon(folder) / "index.sqlite").stat().st_size > 4096
    uploaded(folder, s3_url)
    mdsx.index_tars(s3_url, from_index=f"{s3_url}/{FOLDER}", index=tmp_path / "index")
    check_samples(s3_url, tmp_path, index=tmp_path / "index")


def test_energons_index_may_be_in_a_folder_of_any_name(folder: Path, tmp_path: Path, s3_url: str) -> None:
    uploaded(folder, s3_url)
    energon(folder)
    folder = folder.rename(tmp_path / "50% #1?")
    assert mdsx.index_tars(s3_url, from_index=folder / FOLDER).samples == 20


def test_all_nodes_of_a_cluster_need_the_file_with_energons_members(
    folder: Path, s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed: list[str] = []
    run: Any = Workers.map

    def spied(self: Workers, *given: Any, paths: Any, **options: Any) -> Any:
        needed.extend(paths)
        return run(self, *given, **options)

    monkeypatch.setattr(Workers, "map", spied)
    mdsx.index_tars(uploaded(folder, s3_url), from_index=energon(folder))
    assert f"{folder}/{FOLDER}/index.sqlite" in needed


def test_a_tar_that_grew_is_noticed_without_an_etag(folder: Path) -> None:
    listed = Entry("0.tar", (folder / "0.tar").stat().st_size - 512, "")
    read = OtherIndex("wids", {}).fetch(open_storage(folder), listed)
    with pytest.raises(mdsx.ChangedError, match=r"0\.tar: the file changed while it was indexed"):
        read(0, 512)


SPARSE = old_gnu([(1024 * piece, 512) for piece in range(30)], 30 * 1024, bytes(30 * 512), "s.map")
EMPTY = header("d/", 700, b"5") + header("l.map", 700, b"2")


@pytest.mark.parametrize("between", [SPARSE, EMPTY], ids=["sparse", "empty"])
def test_members_that_are_left_out_may_be_of_any_kind(between: bytes, folder: Path, tmp_path: Path) -> None:
    """Maps of sparse members may follow their headers; links and directories have no bytes, whatever they claim."""
    for tar in range(2):
        data = b""
        for number in range(10 * tar, 10 * tar + 10):
            data += header(f"{number}.jpg", len(JPEG)) + padded(JPEG) + between
            data += header(f"{number}.cls", len(str(number))) + padded(str(number).encode())
        (folder / f"{tar}.tar").write_bytes(data + bytes(1024))
    mdsx.index_tars(folder, from_index=wids(folder), drop="map")
    assert [sample["cls"] for sample in mdsx.Dataset(folder, cache=tmp_path / "cache")] == [*range(20)]


def test_another_index_of_other_tars_is_refused(folder: Path) -> None:
    with pytest.raises(mdsx.ChangedError, match=r"0\.tar.*number of samples.*expected 9, found 10.*without --from"):
        mdsx.index_tars(folder, from_index=wids(folder, 9))
    made = energon(folder)
    write_tar(folder / "2.tar", members(20))
    with pytest.raises(mdsx.UsageError, match=r"2\.tar.*is not in this index.*without --from"):
        mdsx.index_tars(folder, from_index=made)
    (made / "index.sqlite").unlink()
    with pytest.raises(mdsx.MissingError):
        mdsx.index_tars(folder, from_index=made)
    (made / ".info.json").write_text("{}")
    with pytest.raises(mdsx.CorruptError, match="not Energon's"):
        mdsx.index_tars(folder, from_index=made)
    with pytest.raises(mdsx.UnsupportedError, match="not an index of tars"):
        mdsx.index_tars(folder, from_index=folder / "0.tar")
    assert not (folder / INDEX).exists()


def test_a_damaged_header_is_found(folder: Path) -> None:
    made = wids(folder)
    data = bytearray((folder / "1.tar").read_bytes())
    data[data.index(b"013.cls") + 1] ^= 1
    (folder / "1.tar").write_bytes(data)
    with pytest.raises(mdsx.CorruptError, match=r"1\.tar.*header is damaged"):
        mdsx.index_tars(folder, from_index=made)


@pytest.mark.parametrize("make", [energon, wids])
def test_a_note_names_an_index_that_is_there(folder: Path, make: Callable[[Path], Path]) -> None:
    made = make(folder)
    with pytest.warns(UserWarning, match=rf"--from {made}"):
        mdsx.index_tars(folder)
