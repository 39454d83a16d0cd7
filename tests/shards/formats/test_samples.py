"""A second stored format through all layers: none of them knows which format it reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsx
from mdsx.damage import verify
from mdsx.format import StoredFormat, StoredIndex
from mdsx.shards import formats
from mdsx.storage import open_storage
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tests.cli.conftest import Run
from tests.cli.conftest import run as run
from tests.shards.formats.json_lines import LinesFormat, LinesIndex, Sample, write_lines

COLUMNS = {"id": "int64", "text": "str", "vector": "float32[3]", "flag": "bool", "maybe": "json?"}
PER_SHARD, SHARDS = 40, 5
COUNT = PER_SHARD * SHARDS
KINDS = {
    "whole": {"table": False},
    "compressed": {"table": False, "compress": True},
    "ranges": {"table": True},
}
CACHED: dict[str, mdsx.Cache | str] = {"cache": "cache", "full": mdsx.Cache("full", limit="12KB")}
"""Two caches: one has room for all shards, the other for none or one at a time."""


def sample(number: int) -> Sample:
    return {
        "id": number,
        "text": f"text {number} " * (number % 9),
        "vector": [number, 0.5, -1.0],
        "flag": number % 3 == 0,
        "maybe": None if number % 4 else {"number": number},
    }


def check(found: Sample, number: int) -> None:
    expected = sample(number)
    assert found["vector"].tolist() == expected.pop("vector")
    assert {name: found[name] for name in expected} == expected


@pytest.fixture(autouse=True)
def _two_formats(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(formats, "FORMATS", (*formats.FORMATS, LinesFormat()))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(params=KINDS)
def lines(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A dataset of JSON lines."""
    samples = [sample(number) for number in range(COUNT)]
    shards = [samples[start : start + PER_SHARD] for start in range(0, COUNT, PER_SHARD)]
    write_lines(tmp_path / "lines", COLUMNS, shards, **KINDS[request.param])
    return tmp_path / "lines"


@pytest.fixture(params=["local", "remote"])
def url(request: pytest.FixtureRequest, lines: Path) -> Iterator[str]:
    """The dataset on the local disk, or on S3."""
    if request.param == "local":
        yield str(lines)
        return
    url = request.getfixturevalue("s3_url")
    storage = open_storage(url)
    for path in sorted(lines.iterdir()):
        storage.put(path.name, path.read_bytes())
    yield url


def test_the_test_format_implements_the_protocols() -> None:
    stored: StoredFormat = LinesFormat()
    kind: type[StoredIndex] = LinesIndex
    assert stored.index_key
    assert kind


@pytest.mark.parametrize("cache", CACHED)
def test_a_dataset_reads_every_sample(url: str, cache: str) -> None:
    data = mdsx.Dataset(url, cache=CACHED[cache])
    assert len(data) == COUNT
    assert dict(data.columns) == COLUMNS
    for number in (0, 77, 3, COUNT - 1, 78):
        check(data[number], number)
    for number, found in enumerate(data):
        check(found, number)
    order = np.random.default_rng(1).permutation(COUNT)
    assert data.take(order)["id"].tolist() == order.tolist()
    assert data.select_columns({"name": "text"})[5] == {"name": sample(5)["text"]}


def test_a_dataset_reads_without_mmap(lines: Path) -> None:
    data = mdsx.Dataset(lines, mmap=False, cache="cache")
    for number in (199, 0, 41, 40):
        check(data[number], number)


@pytest.mark.filterwarnings("ignore:the cache may hold")
@pytest.mark.parametrize("cache", CACHED)
def test_a_stream_reads_every_sample_once_an_epoch(url: str, cache: str) -> None:
    loader = StreamingDataLoader(StreamingDataset(url, cache=CACHED[cache], columns=["id", "vector"]), 8)
    for _ in range(2):
        batches = list(loader)
        ids = [int(number) for batch in batches for number in batch["id"]]
        assert sorted(ids) == list(range(COUNT))
        assert ids != sorted(ids)
        assert all((batch["vector"][:, 0] == batch["id"]).all() for batch in batches)


def test_a_mixture_joins_two_formats(url: str, tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "ours", COLUMNS, shard_size=4096) as out:
        for number in range(COUNT, 2 * COUNT):
            out.write(sample(number))
    mixture = mdsx.Mixture([url, str(tmp_path / "ours")], cache="cache")
    found: dict[int, Any] = {}
    for batch in StreamingDataLoader(StreamingDataset(mixture), 16):
        found |= dict(zip(batch["id"].tolist(), batch["text"], strict=True))
    assert found == {number: sample(number)["text"] for number in range(2 * COUNT)}


def test_verify_finds_no_damage_in_a_sound_dataset(url: str) -> None:
    report = verify(url)
    assert report.ok
    assert (report.samples, report.shards) == (COUNT, SHARDS)


def test_a_damaged_shard_is_found_and_never_handed_out(lines: Path) -> None:
    damaged = bytearray((lines / "1.lines").read_bytes())
    damaged[-9] ^= 1
    (lines / "1.lines").write_bytes(damaged)
    (lines / "3.lines").unlink()
    first, second = verify(str(lines))
    assert isinstance(first, mdsx.CorruptError)
    assert isinstance(second, mdsx.MissingError)
    assert str(lines / "1.lines") in str(first)
    data = mdsx.Dataset(lines, cache="cache")
    check(data[PER_SHARD - 1], PER_SHARD - 1)
    with pytest.raises(mdsx.CorruptError, match=r"1\.lines"):
        data[PER_SHARD]
    with pytest.raises(mdsx.MissingError, match=r"3\.lines"):
        data[3 * PER_SHARD]


def test_a_damaged_index_is_an_error(lines: Path) -> None:
    (lines / "lines.json").write_text('{"format": "lines", ')
    with pytest.raises(mdsx.CorruptError, match="this is not JSON"):
        mdsx.Dataset(lines)


def test_a_place_without_an_index_is_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(mdsx.MissingError, match=r"no dataset is here: it has no index\.json or lines\.json"):
        mdsx.Dataset(tmp_path)


def test_info_shows_a_dataset(run: Run, url: str) -> None:
    ran = run("info", url)
    assert ran.status == 0
    lines = [line.split(maxsplit=1) for line in ran.out.splitlines()]
    assert ["format", "lines"] in lines
    assert ["checks", "XXH3-128 of shards"] in lines
    assert ["samples", f"{COUNT}"] in lines


@pytest.mark.parametrize("kind", KINDS)
def test_a_format_with_ranges_reads_only_ranges(kind: str, tmp_path: Path, s3_url: str) -> None:
    write_lines(tmp_path / "lines", COLUMNS, [[sample(number) for number in range(COUNT)]], **KINDS[kind])
    storage = open_storage(s3_url)
    for path in (tmp_path / "lines").iterdir():
        storage.put(path.name, path.read_bytes())
    data = mdsx.Dataset(s3_url, cache="cache")
    check(data[3], 3)
    assert data.shards.is_whole_only(0) == (kind != "ranges")
    assert data.shards.is_open(0) == (kind != "ranges")
