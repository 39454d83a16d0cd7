"""Sources are found before anything is read, in the order in which they are named, and read in bounded pieces; braces
expand as in the shell."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mdsx import ChangedError, MissingError, UsageError
from mdsx.storage import open_storage
from mdsx.transfer.converting.files import File, FileKind, find_files, find_files_below, read_chunks
from tools.servers.http import HttpServer

NAMES = ["train-0000.tar", "train-0001.tar", "val.tar"]


TARS = FileKind("tar", "tar")


def read(file: File) -> bytes:
    return b"".join(read_chunks(file))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / name).write_bytes(name.encode())
    return tmp_path


def found(names: list[str]) -> list[str]:
    return [source.url.rpartition("/")[2] for source in find_files(names, TARS)]


def test_sources_keep_the_order_given(folder: Path) -> None:
    assert found([f"{folder}/val.tar", f"{folder}/train-{{0000..0001}}.tar"]) == [NAMES[2], *NAMES[:2]]
    assert found([f"{folder}/{{val,train-0000}}.tar"]) == [NAMES[2], NAMES[0]]
    assert found([f"{folder}/train-*.tar", f"{folder}/v?l.tar"]) == NAMES
    assert found([f"file://{folder}/val.tar"]) == [NAMES[2]]


def test_the_first_missing_file_is_named(folder: Path) -> None:
    with pytest.raises(MissingError, match=r"train-0002\.tar: there is no such file; check the name"):
        found([f"{folder}/train-{{0000..0009}}.tar"])


def test_a_folder_means_the_files_that_an_index_would_have(tmp_path: Path) -> None:
    names = ["a.tar", "_year=2024/b.tar", ".hidden.tar", "_temporary/c.tar", "_d.tar", ".git/e.tar", "f/g.tar", "h.txt"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"tar")
    visible = [f"{tmp_path}/{name}" for name in ("_year=2024/b.tar", "a.tar", "f/g.tar")]
    for given in (str(tmp_path), f"file://{tmp_path}"):
        assert [file.url for file in find_files_below([given], TARS)] == visible


def test_a_folder_may_be_named_like_a_file(tmp_path: Path, s3_url: str) -> None:
    """As Spark names the folder that it writes."""
    (tmp_path / "x.tar").mkdir()
    storage = open_storage(s3_url, write=True)
    for name in ("x.tar/part-0.tar", "x.tar/_SUCCESS", "y.tar"):
        (tmp_path / name).write_bytes(b"tar")
        storage.put(name, b"tar")
    for root in (str(tmp_path), f"file://{tmp_path}", s3_url):
        given = [f"{root}/x.tar", f"{root}/y.tar"]
        expected = [f"{root.removeprefix('file://')}/{name}" for name in ("x.tar/part-0.tar", "y.tar")]
        assert [file.url for file in find_files_below(given, TARS)] == expected
        with pytest.raises(MissingError, match=r"z\.tar: there is no such"):
            find_files_below([*given, f"{root}/z.tar"], TARS)


def test_a_missing_file_on_a_web_server_is_named(folder: Path) -> None:
    with HttpServer(folder) as server, pytest.raises(MissingError, match=r"lost\.tar"):
        find_files_below([server.url("lost.tar")], TARS)


def test_a_relative_path_is_the_same_source_from_everywhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert find_files(["val.tar"], TARS) == find_files([f"{folder}/val.tar"], TARS)


def test_an_existing_file_with_glob_characters_is_that_file(folder: Path) -> None:
    (folder / "odd[1].tar").touch()
    assert found([f"{folder}/odd[1].tar"]) == ["odd[1].tar"]


@pytest.mark.parametrize("name", ["lost.tar", "train-{0000..0002}.tar", "lost-*.tar"])
def test_a_missing_tar_raises_naming_it(folder: Path, name: str) -> None:
    with pytest.raises(MissingError, match=r"lost|train-0002\.tar"):
        find_files([f"{folder}/val.tar", f"{folder}/{name}"], TARS)


def test_invalid_names_are_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="twice"):
        find_files([f"{folder}/val.tar", f"{folder}/*.tar"], TARS)
    with pytest.raises(UsageError, match=r"is not a tar but a directory; name the files: .*/\*\.tar"):
        find_files([str(folder)], TARS)
    with pytest.raises(UsageError, match="not UTF-8"):
        find_files([f"{folder}/\udcff.tar"], TARS)
    with pytest.raises(UsageError, match="names no file"):
        find_files(["s3://bucket"], TARS)


def test_chunks_have_all_bytes_and_are_counted(tmp_path: Path) -> None:
    content = os.urandom(20 * 2**20)  # several ranges
    (tmp_path / "x.tar").write_bytes(content)
    (source,) = find_files([f"{tmp_path}/x.tar"], TARS)
    sizes: list[int] = []
    assert b"".join(read_chunks(source, count=sizes.append)) == content
    assert sum(sizes) == source.size == len(content)
    assert max(sizes) <= 8 * 2**20


def test_an_empty_file_has_no_bytes(tmp_path: Path) -> None:
    (tmp_path / "x.tar").touch()
    assert read(find_files([f"{tmp_path}/x.tar"], TARS)[0]) == b""


def test_a_source_replaced_after_discovery_raises(folder: Path) -> None:
    (source,) = find_files([f"{folder}/val.tar"], TARS)
    (folder / "new").write_bytes(b"other")
    (folder / "new").rename(folder / "val.tar")
    with pytest.raises(ChangedError):
        read(source)


def test_s3_sources_read_like_local_ones(s3_url: str) -> None:
    storage = open_storage(f"{s3_url}/tars")
    for name in NAMES:
        storage.put(name, name.encode())
    sources = find_files([f"{s3_url}/tars/train-{{0001..0000}}.tar", f"{s3_url}/tars/val.tar"], TARS)
    assert [read(source).decode() for source in sources] == [NAMES[1], NAMES[0], NAMES[2]]
    with pytest.raises(MissingError, match=r"train-0002\.tar"):
        find_files([f"{s3_url}/tars/train-{{0000..0002}}.tar"], TARS)
    with pytest.raises(MissingError):
        find_files(["s3://no-such-bucket/x.tar"], TARS)


def test_files_of_a_web_server_may_have_escapes_in_their_names(tmp_path: Path) -> None:
    (tmp_path / "two words.tar").write_bytes(b"content")
    with HttpServer(tmp_path) as server:
        (file,) = find_files([server.url("two words.tar")], TARS)
        assert (file.url, file.size) == (server.url("two words.tar"), 7)
        assert read(file) == b"content"
