"""Sources are found before anything is read, in the order in which they are named, and read in bounded pieces; braces
expand as in the shell."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from mdsx import ChangedError, MissingError, UsageError
from mdsx.convert.sources import Source, expand_braces, find_sources, read_chunks
from mdsx.storage import open_storage

NAMES = ["train-0000.tar", "train-0001.tar", "val.tar"]


def read(source: Source) -> bytes:
    return b"".join(read_chunks(source, lambda size: None))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / name).write_bytes(name.encode())
    return tmp_path


def found(names: list[str]) -> list[str]:
    return [source.url.rpartition("/")[2] for source in find_sources(names)]


def test_sources_keep_the_order_given(folder: Path) -> None:
    assert found([f"{folder}/val.tar", f"{folder}/train-{{0000..0001}}.tar"]) == [NAMES[2], *NAMES[:2]]
    assert found([f"{folder}/{{val,train-0000}}.tar"]) == [NAMES[2], NAMES[0]]
    assert found([f"{folder}/train-*.tar", f"{folder}/v?l.tar"]) == NAMES
    assert found([f"file://{folder}/val.tar"]) == [NAMES[2]]


def test_a_relative_path_is_the_same_source_from_everywhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert find_sources(["val.tar"]) == find_sources([f"{folder}/val.tar"])


def test_an_existing_file_with_glob_characters_is_that_file(folder: Path) -> None:
    (folder / "odd[1].tar").touch()
    assert found([f"{folder}/odd[1].tar"]) == ["odd[1].tar"]


@pytest.mark.parametrize("name", ["lost.tar", "train-{0000..0002}.tar", "lost-*.tar"])
def test_a_missing_tar_raises_naming_it(folder: Path, name: str) -> None:
    with pytest.raises(MissingError, match=r"lost|train-0002\.tar"):
        find_sources([f"{folder}/val.tar", f"{folder}/{name}"])


def test_invalid_names_are_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="twice"):
        find_sources([f"{folder}/val.tar", f"{folder}/*.tar"])
    with pytest.raises(UsageError, match=r"is not a tar but a directory; name the tars: .*/\*\.tar"):
        find_sources([str(folder)])
    with pytest.raises(UsageError, match="not UTF-8"):
        find_sources([f"{folder}/\udcff.tar"])
    with pytest.raises(UsageError, match="names no tar"):
        find_sources(["s3://bucket"])


def test_chunks_have_all_bytes_and_are_counted(tmp_path: Path) -> None:
    content = os.urandom(20 * 2**20)  # several ranges
    (tmp_path / "x.tar").write_bytes(content)
    (source,) = find_sources([f"{tmp_path}/x.tar"])
    sizes: list[int] = []
    assert b"".join(read_chunks(source, sizes.append)) == content
    assert sum(sizes) == source.size == len(content)
    assert max(sizes) <= 8 * 2**20


def test_an_empty_file_has_no_bytes(tmp_path: Path) -> None:
    (tmp_path / "x.tar").touch()
    assert read(find_sources([f"{tmp_path}/x.tar"])[0]) == b""


def test_a_source_replaced_after_discovery_raises(folder: Path) -> None:
    (source,) = find_sources([f"{folder}/val.tar"])
    (folder / "new").write_bytes(b"other")
    (folder / "new").rename(folder / "val.tar")
    with pytest.raises(ChangedError):
        read(source)


def test_s3_sources_read_like_local_ones(s3_url: str) -> None:
    storage = open_storage(f"{s3_url}/tars")
    for name in NAMES:
        storage.put(name, name.encode())
    sources = find_sources([f"{s3_url}/tars/train-{{0001..0000}}.tar", f"{s3_url}/tars/val.tar"])
    assert [read(source).decode() for source in sources] == [NAMES[1], NAMES[0], NAMES[2]]
    with pytest.raises(MissingError, match=r"train-0002\.tar"):
        find_sources([f"{s3_url}/tars/train-{{0000..0002}}.tar"])
    with pytest.raises(MissingError):
        find_sources(["s3://no-such-bucket/x.tar"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain.tar", ["plain.tar"]),
        ("{0..3}", ["0", "1", "2", "3"]),
        ("x-{0008..0011}.tar", ["x-0008.tar", "x-0009.tar", "x-0010.tar", "x-0011.tar"]),
        ("{a,b}", ["a", "b"]),
        ("{a,b}{1..2}", ["a1", "a2", "b1", "b2"]),
        ("{train-{0..1},val}.tar", ["train-0.tar", "train-1.tar", "val.tar"]),
        ("{3..1}", ["3", "2", "1"]),
        ("{0..10..5}", ["0", "5", "10"]),
        ("{a..c}", ["a", "b", "c"]),
        ("{,x}y", ["y", "xy"]),
        ("a{1}b", ["a{1}b"]),
        ("{}", ["{}"]),
        ("{open", ["{open"]),
        ("{a{1,2}", ["{a1", "{a2"]),
        ("{x{1,2}}", ["{x1}", "{x2}"]),
        ("", [""]),
    ],
)
def test_each_form_of_braces_is_expanded(text: str, expected: list[str]) -> None:
    assert expand_braces(text) == expected


@pytest.mark.parametrize(
    "text",
    ["{00..100}", "{-2..2}", "{-02..2}", "{1..05}", "a{b,c{d,e}f}g", "{9..0..3}", "{0..9..0}", "}{a,b}{", "{{a,b},c}"],
)
def test_braces_expand_as_in_bash(text: str) -> None:
    shell = subprocess.run(["bash", "-c", f"printf '%s\\n' {text}"], capture_output=True, text=True, check=True)
    assert expand_braces(text) == shell.stdout.splitlines()


def test_an_excessive_range_is_refused_in_bounded_memory() -> None:
    with pytest.raises(UsageError, match="more than 1,000,000"):
        expand_braces("{0..1000000000000}")
