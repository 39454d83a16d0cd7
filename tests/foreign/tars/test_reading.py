"""Indexed tars are read like any dataset, and no byte of them is handed out that is not the one that was indexed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsx
from mdsx.checks.damage import verify
from mdsx.checks.doctor.dataset import check_dataset
from mdsx.datasets import excerpt_of
from mdsx.foreign.tars import INDEX_KEY, KEY
from mdsx.format import filenames
from mdsx.shards import Shards, read_index, shards
from mdsx.storage import open_storage
from mdsx.testing import far_disk
from mdsx.testing.far_disk import SCHEME, FarDisk
from tests.conftest import Often
from tests.foreign.tars.indexed import write_indexed
from tests.foreign.tars.tars import JPEG

COLUMNS = {
    KEY: "str",
    "jpg": "jpeg",
    "cls": "int64",
    "ok": "bool",
    "score": "float32?",
    "caption": "str?",
    "json": "json",
    "grid": "float32[2,2]",
    "tokens": "uint16[*]",
    "boxes": "int32[*,4]?",
    "mask": "bool[3]",
}
IN_ONE_PIECE = [name for name in COLUMNS if name not in ("score", "tokens", "boxes")]
PER_TAR, TARS = 6, 3
COUNT = PER_TAR * TARS


def sample(number: int, *, long_key: bool = False) -> dict[str, Any]:
    return {
        KEY: f"{'a long key ' * 12}{number}" if long_key else None,
        "jpg": JPEG + bytes([number]) * (100 + number),
        "cls": number - 5,
        "ok": number % 2 == 0,
        "score": None if number % 3 == 0 else number / 4,
        "caption": None if number % 4 == 0 else f"caption {number}",
        "json": {"n": number},
        "grid": np.full((2, 2), number, np.float32),
        "tokens": np.arange(number % 5, dtype=np.uint16),
        "boxes": None if number % 5 == 0 else np.full((number % 3, 4), number, np.int32),
        "mask": np.array([number % 2 == 1, True, False]),
    }


def tars(first: int = 0, **options: bool) -> list[list[dict[str, Any]]]:
    return [[sample(first + PER_TAR * tar + k, **options) for k in range(PER_TAR)] for tar in range(TARS)]


def key_of(number: int) -> str:
    return f"s{1000 * (number // PER_TAR) + number % PER_TAR:06}"


def plain(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value.tolist() if hasattr(value, "tolist") else value for name, value in found.items()}


def expected(number: int, names: Any = COLUMNS) -> dict[str, Any]:
    found = sample(number) | {KEY: key_of(number)}
    return plain({name: found[name] for name in names})


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("indexed") / "data"
    write_indexed(folder, COLUMNS, tars())
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(shards, "open_storage", far_disk.open_far)
    monkeypatch.setenv("MDSX_CACHE", str(tmp_path / "cache"))
    FarDisk.requests.clear()
    return Path(shutil.copytree(written, tmp_path / "data"))


@pytest.fixture(params=["local", "far"])
def url(request: pytest.FixtureRequest, folder: Path) -> str:
    return str(folder) if request.param == "local" else f"{SCHEME}{folder}"


@pytest.mark.parametrize("names", [list(COLUMNS), IN_ONE_PIECE, ["cls"], ["score", KEY]])
def test_every_type_is_read_in_every_way(url: str, names: list[str]) -> None:
    wanted = [expected(number, names) for number in range(COUNT)]
    data = mdsx.Dataset(url, columns=names)
    assert dict(data.columns) == {name: COLUMNS[name] for name in names}
    for _ in range(2):
        assert [plain(data[number]) for number in range(COUNT)] == wanted
        assert [plain(each) for each in data[:]] == wanted
    assert type(data[3].get("ok", True)) is bool
    unmapped = mdsx.Dataset(url, columns=names, mmap=False)
    assert [plain(each) for each in unmapped[::5]] == wanted[::5]


def test_a_dataset_of_one_piece_values_is_never_copied_from_the_tar_before_the_batch(
    tmp_path: Path, folder: Path
) -> None:
    columns = {name: COLUMNS[name] for name in IN_ONE_PIECE}
    write_indexed(tmp_path / "plain", columns, [[{**each, KEY: None} for each in tar] for tar in tars()])
    found = Shards(tmp_path / "plain")
    assert found.open(1, whole=True)
    selection = found.select(1, np.array([4, 0]))
    assert len(selection.heap) == (tmp_path / "plain" / found.index.name(1)).stat().st_size
    data = mdsx.Dataset(tmp_path / "plain")
    assert [plain(each) for each in data[:]] == [expected(number, IN_ONE_PIECE) for number in range(COUNT)]


def test_keys_that_are_not_in_the_tar_are_read(tmp_path: Path, folder: Path) -> None:
    write_indexed(tmp_path / "keys", {KEY: "str", "cls": "int64"}, tars(long_key=True))
    data = mdsx.Dataset(tmp_path / "keys")
    assert [each[KEY] for each in data[:]] == [sample(number, long_key=True)[KEY] for number in range(COUNT)]
    assert data[7] == {KEY: sample(7, long_key=True)[KEY], "cls": 2}


def test_the_index_may_be_elsewhere(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "index"
    elsewhere.mkdir()
    (folder / INDEX_KEY).rename(elsewhere / INDEX_KEY)
    (folder / filenames.POINTERS_FOLDER).rename(elsewhere / filenames.POINTERS_FOLDER)
    for url in (str(folder), f"{SCHEME}{folder}"):
        assert plain(mdsx.Dataset(url, index=elsewhere)[8]) == expected(8)
    assert verify(folder, index=elsewhere).ok


def test_webdatasets_own_index_may_stay(folder: Path) -> None:
    (folder / "index.json").write_text(json.dumps({"wids_version": 1, "shardlist": [{"url": "0000.tar"}]}))
    assert len(mdsx.Dataset(folder)) == COUNT
    (folder / INDEX_KEY).unlink()
    with pytest.raises(mdsx.UnsupportedError, match="mdsx index tar"):
        mdsx.Dataset(folder)


# --- requests


def keys(name: str) -> list[str]:
    found = [request.key for request in FarDisk.requests if name in request.key]
    FarDisk.requests.clear()
    return found


def test_the_first_batch_costs_one_round_trip_more_than_of_our_own_shards(folder: Path, tmp_path: Path) -> None:
    """That is for the index, which is at another key. Pointers and samples cost as many as rows and values of ours."""
    with mdsx.Writer(tmp_path / "ours", {"cls": "int64", "json": "json"}) as out:
        for number in range(COUNT):
            out.write({"cls": number, "json": {"n": number}})
    excerpt_of(mdsx.Dataset(f"{SCHEME}{tmp_path}/ours")).shards.select_stored(0, np.array([2, 3]))
    assert [request.key for request in FarDisk.requests] == ["index.json", *["shard.00000.mdsx"] * 2]
    FarDisk.requests.clear()
    data = mdsx.Dataset(f"{SCHEME}{folder}")
    first, *others = [request.key for request in FarDisk.requests]
    assert first == "index.json"
    assert {INDEX_KEY} <= set(others) <= {"_mdsx-parquet.json", INDEX_KEY, "_mdsx-tokens.json"}  # at once
    assert len(others) == len(set(others))
    FarDisk.requests.clear()
    found = excerpt_of(data).shards.select_stored(1, np.array([2, 3]))
    assert [request.key.partition("/")[0] for request in FarDisk.requests] == ["_mdsx-tars", "0001.tar"]
    assert found.samples.tolist() == [2, 3]
    excerpt_of(data).shards.select_stored(1, np.array([0]))
    assert len(keys("_mdsx-tars/")) == 1


def test_a_filter_by_numbers_reads_no_tar(folder: Path) -> None:
    columns = {name: kind for name, kind in COLUMNS.items() if name not in ("grid", "mask")}
    write_indexed(folder / "numbers", columns, tars())
    data = mdsx.Dataset(f"{SCHEME}{folder}/numbers")
    keys("")
    chosen = data.filter(lambda cls: cls > 3, ["cls"])
    assert len(chosen) == COUNT - 9
    assert not keys(".tar")
    assert plain(chosen[0]) == expected(9, columns)


def test_lengths_are_known_from_the_pointers(folder: Path) -> None:
    found = Shards(f"{SCHEME}{folder}")
    samples = [sample(PER_TAR + k) for k in range(PER_TAR)]
    for name in ("jpg", "caption", "tokens", "mask", "cls"):
        lengths = [each[name] if name == "cls" else 0 if each[name] is None else len(each[name]) for each in samples]
        assert found.lengths(1, list(COLUMNS).index(name)).tolist() == lengths
    assert not keys(".tar")


# --- the cache


def side_files(cache: Path) -> list[Path]:
    return sorted(cache.rglob("*.side"))


def test_pointers_are_cached_checked_and_fetched_again(folder: Path, tmp_path: Path) -> None:
    url, cache = f"{SCHEME}{folder}", tmp_path / "cache"
    assert len(mdsx.Dataset(url)[:]) == COUNT
    assert len(side_files(cache)) == TARS
    keys("")
    for path in side_files(cache):
        path.write_bytes(b"x" * path.stat().st_size)
    assert [plain(each) for each in mdsx.Dataset(url)[:]] == [expected(number) for number in range(COUNT)]
    assert len(keys("_mdsx-tars/")) == TARS
    for path in side_files(cache):
        path.unlink()
    assert len(mdsx.Dataset(url)[:]) == COUNT
    assert len(keys("_mdsx-tars/")) == TARS


def test_without_room_in_the_cache_pointers_are_kept_in_memory(folder: Path, tmp_path: Path) -> None:
    largest = max(path.stat().st_size for path in folder.glob("*.tar"))
    data = mdsx.Dataset(f"{SCHEME}{folder}", cache=mdsx.Cache(tmp_path / "small", limit=largest))
    assert [plain(each) for each in data[:]] == [expected(number) for number in range(COUNT)]


# --- changed tars and pointers


def change(path: Path, damage: Callable[[bytes], bytes]) -> None:
    path.write_bytes(damage(path.read_bytes()))


def flip(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("damage", [lambda data: data + b"\0" * 512, lambda data: data[:-512]])
def test_a_tar_that_grew_or_shrank_is_to_be_indexed_again(url: str, folder: Path, damage: Any) -> None:
    change(folder / "0001.tar", damage)
    data = mdsx.Dataset(url)
    assert plain(data[0]) == expected(0)
    for ask in (lambda: data[PER_TAR], lambda: data[PER_TAR : 2 * PER_TAR]):
        with pytest.raises(mdsx.TransportError, match=r"0001\.tar.*mdsx index") as error:
            ask()
        assert not isinstance(error.value, mdsx.CorruptError)


def test_verify_finds_every_changed_byte(folder: Path, often: Often) -> None:
    path = folder / "0001.tar"
    undamaged = path.read_bytes()
    found = Shards(folder)
    assert found.open(1, whole=True)
    extents = found._state.opened.get(1).view.pointers.extents(np.arange(PER_TAR))  # type: ignore[union-attr]
    step = len(undamaged) // often(60, long=1000) | 1  # odd: headers, members and padding
    for at in range(0, len(undamaged), step):
        path.write_bytes(flip(at)(undamaged))
        (problem,) = verify(folder)
        assert "0001.tar" in str(problem)
        inside = [k for k, (start, stop) in enumerate(extents) if start <= at < stop]
        if inside:
            start, stop = extents[inside[0]]
            assert f"sample {inside[0]} ({PER_TAR + inside[0]} of the dataset), bytes {start} to {stop}" in str(problem)
        else:
            assert "belong to no sample" in str(problem)
    path.write_bytes(undamaged)
    assert verify(folder).ok


@pytest.mark.parametrize("checksums", [True, False])
def test_verify_numbers_values_that_cannot_be_decoded(folder: Path, tmp_path: Path, checksums: bool) -> None:
    wrong: list[list[dict[str, Any]]] = [
        [{"json": b"{"} if tar == 1 and k == 2 else {"json": {}} for k in range(PER_TAR)] for tar in range(TARS)
    ]
    write_indexed(tmp_path / "wrong", {"json": "json"}, wrong, checksums=checksums)
    (problem,) = verify(tmp_path / "wrong")
    assert f"0001.tar: sample 2 ({PER_TAR + 2} of the dataset), column 'json'" in str(problem)


def test_a_wrong_pointer_file_is_an_error_that_names_it(url: str, folder: Path) -> None:
    (path,) = [folder / each.pointers for each in Shards(folder).index._parsed.tars[1:2]]  # type: ignore[attr-defined]
    undamaged = path.read_bytes()
    for damaged in (flip(200)(undamaged), undamaged[:-1], undamaged + b"x", b""):
        path.write_bytes(damaged)
        with pytest.raises(mdsx.MdsxError, match=path.name):
            mdsx.Dataset(url)[PER_TAR]
        assert path.name in str(next(iter(verify(folder))))
    path.unlink()
    with pytest.raises(mdsx.MissingError, match=path.name):
        mdsx.Dataset(url)[PER_TAR]
    (problem,) = verify(folder)
    assert path.name in str(problem)


def test_doctor_looks_for_the_pointers(folder: Path) -> None:
    def shards_found() -> str:
        storage = open_storage(folder)
        *_, last = check_dataset(storage, read_index(storage), 0.0)
        return last.state

    assert shards_found() == "ok"
    next((folder / filenames.POINTERS_FOLDER).iterdir()).unlink()
    assert shards_found() == "problem"


# --- an index without checksums


@pytest.fixture
def unread(tmp_path: Path, folder: Path) -> Path:
    write_indexed(tmp_path / "unread", COLUMNS, tars(), checksums=False)
    return tmp_path / "unread"


def test_without_checksums_headers_are_compared(unread: Path, tmp_path: Path) -> None:
    assert "headers" in Shards(unread).index.checks
    path = unread / "0001.tar"
    undamaged = path.read_bytes()
    for url in (str(unread), f"{SCHEME}{unread}"):
        assert [plain(each) for each in mdsx.Dataset(url)[:]] == [expected(number) for number in range(COUNT)]
        for damaged in (
            flip(3)(undamaged),  # in the name of the first member
            undamaged[512:] + undamaged[:512],
            undamaged.replace(b"s001000.", b"s001009."),
        ):
            path.write_bytes(damaged)
            shutil.rmtree(tmp_path / "cache", ignore_errors=True)
            data = mdsx.Dataset(url)
            for wanted in ([PER_TAR], slice(PER_TAR, 2 * PER_TAR)):
                with pytest.raises(mdsx.CorruptError, match=r"0001\.tar: sample 0.*mdsx index tar"):
                    data[wanted]
        path.write_bytes(undamaged)
    path.write_bytes(flip(3)(undamaged))
    assert not verify(unread).ok
