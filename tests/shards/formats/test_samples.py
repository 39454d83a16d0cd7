"""Every sample of every format, read in every way, is the one that was written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import mdsx
from mdsx.shards import Shards
from mdsx.storage import open_storage
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tests.shards.formats.conftest import Written
from tests.shards.formats.far_disk import SCHEME
from tests.shards.formats.subjects import (
    COLUMNS,
    COMMON,
    COUNT,
    FIRST,
    SOME,
    SUBJECTS,
    WAYS,
    Subject,
    all_of,
    by_slice,
    sample,
)


@pytest.fixture(params=["room", "one shard", "none"])
def cache(request: pytest.FixtureRequest, far: str, other: Path, tmp_path: Path) -> Iterator[mdsx.Cache]:
    """A cache with room for all shards, for one of them, or for none."""
    if request.param == "room":
        yield mdsx.Cache(tmp_path / "cache")
        return
    largest = int(Shards(far).index.raw_sizes.max())
    cache = mdsx.Cache(tmp_path / "cache", limit=largest + largest // 2)
    holder = Shards(f"{SCHEME}{other}", cache=cache)
    if request.param == "none":
        assert holder.fetch(0) is None
    yield cache
    holder.release()


@pytest.mark.filterwarnings("ignore:the cache may hold")
def test_every_way_of_reading_returns_every_sample(subject: Subject, far: str, cache: mdsx.Cache) -> None:
    expected = [subject.expected(FIRST + number) for number in range(COUNT)]
    for way in WAYS.values() if cache.limit is None else [by_slice]:
        data = mdsx.Dataset(far, cache=cache)
        assert len(data) == COUNT
        assert dict(data.columns) == {name: COLUMNS[name] for name in subject.columns}
        assert all_of(way(data)) == expected
    data = mdsx.Dataset(far, cache=cache)
    assert all_of(data[number] for number in range(0, COUNT, 7)) == expected[::7]


@pytest.mark.parametrize("mmap", [True, False])
def test_a_local_dataset_is_read(subject: Subject, folder: Path, mmap: bool) -> None:
    data = mdsx.Dataset(folder, mmap=mmap)
    assert all_of(data[number] for number in range(COUNT)) == [
        subject.expected(FIRST + number) for number in range(COUNT)
    ]
    assert all_of(data[10:40]) == [subject.expected(FIRST + number) for number in range(10, 40)]


def test_columns_are_chosen_renamed_and_ordered(url: str) -> None:
    data = mdsx.Dataset(url, columns={"v": "vector", "t": "text", "again": "text"})
    expected = {"v": sample(FIRST + 5)["vector"], "t": sample(FIRST + 5)["text"], "again": sample(FIRST + 5)["text"]}
    (found,) = all_of([data[5]])
    assert list(found.items()) == list(expected.items())
    assert all_of([data.select_columns(["t"])[5]]) == [{"t": expected["t"]}]
    assert mdsx.Dataset(url).select_columns(["id"]).take([3, 1])["id"].tolist() == [FIRST + 3, FIRST + 1]


@pytest.mark.filterwarnings("ignore:the cache may hold")
def test_a_loader_returns_every_sample_once_an_epoch(far: str, cache: mdsx.Cache) -> None:
    loader = StreamingDataLoader(StreamingDataset(far, cache=cache, columns=["id", "vector", "text"]), 6)
    for _ in range(2):
        batches = list(loader)
        ids = [int(number) for batch in batches for number in batch["id"]]
        assert sorted(ids) == list(range(FIRST, FIRST + COUNT))
        assert ids != sorted(ids)
        assert all((batch["vector"][:, 0] == batch["id"]).all() for batch in batches)
        assert [text for batch in batches for text in batch["text"]] == [sample(number)["text"] for number in ids]


@pytest.mark.filterwarnings("ignore:the cache may hold")
def test_all_formats_stream_as_one_through_a_small_cache(written: Written, tmp_path: Path) -> None:
    folders = [written(subject, FIRST) for subject in SUBJECTS]
    cache = mdsx.Cache(tmp_path / "small", limit="100KB")
    mixture = mdsx.Mixture([mdsx.Dataset(f"{SCHEME}{each}", columns=[*COMMON], cache=cache) for each in folders])
    loader = StreamingDataLoader(StreamingDataset(mixture), 20)
    batches = list(loader)
    ids = np.concatenate([batch["id"] for batch in batches])
    times = len(SUBJECTS)
    assert np.bincount(ids - FIRST).tolist() == [times] * COUNT
    for batch in batches:
        numbers = batch["id"].tolist()
        assert batch["text"] == [sample(number)["text"] for number in numbers]
        assert batch["extra"] == [sample(number)["extra"] for number in numbers]
        assert batch["vector"].tolist() == [sample(number)["vector"] for number in numbers]


@pytest.mark.parametrize("subject", SOME, indirect=True, ids=str)
def test_a_dataset_on_s3_is_read(subject: Subject, folder: Path, s3_url: str) -> None:
    storage = open_storage(s3_url)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            storage.put(str(path.relative_to(folder)), path.read_bytes())
    data = mdsx.Dataset(s3_url)
    assert all_of(data) == [subject.expected(FIRST + number) for number in range(COUNT)]
