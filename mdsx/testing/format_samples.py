"""Every sample of every format, read in every way, is the one that was written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import mdsx
from mdsx.shards import Shards
from mdsx.testing.far_disk import SCHEME
from mdsx.testing.format_case import FormatCase
from mdsx.testing.subject import (
    COLUMNS,
    COUNT,
    FIRST,
    WAYS,
    Subject,
    all_of,
    by_slice,
    sample,
)


class Samples(FormatCase):
    """Samples are read in every way."""

    @pytest.fixture(params=["room", "one shard", "none"])
    def cache(self, request: pytest.FixtureRequest, far: str, other: Path, tmp_path: Path) -> Iterator[mdsx.Cache]:
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
    def test_every_way_of_reading_returns_every_sample(self, subject: Subject, far: str, cache: mdsx.Cache) -> None:
        expected = [subject.expected(FIRST + number) for number in range(COUNT)]
        for way in WAYS.values() if cache.limit is None else [by_slice]:
            data = mdsx.Dataset(far, cache=cache)
            assert len(data) == COUNT
            assert dict(data.columns) == {name: COLUMNS[name] for name in subject.columns}
            assert all_of(way(data)) == expected
        data = mdsx.Dataset(far, cache=cache)
        assert all_of(data[number] for number in range(0, COUNT, 7)) == expected[::7]

    @pytest.mark.parametrize("mmap", [True, False])
    def test_a_local_dataset_is_read(self, subject: Subject, folder: Path, mmap: bool) -> None:
        data = mdsx.Dataset(folder, mmap=mmap)
        assert all_of(data[number] for number in range(COUNT)) == [
            subject.expected(FIRST + number) for number in range(COUNT)
        ]
        assert all_of(data[10:40]) == [subject.expected(FIRST + number) for number in range(10, 40)]

    def test_columns_are_chosen_renamed_and_ordered(self, url: str) -> None:
        data = mdsx.Dataset(url, columns={"v": "vector", "t": "text", "again": "text"})
        expected = {
            "v": sample(FIRST + 5)["vector"],
            "t": sample(FIRST + 5)["text"],
            "again": sample(FIRST + 5)["text"],
        }
        (found,) = all_of([data[5]])
        assert list(found.items()) == list(expected.items())
        assert all_of([data.select_columns(["t"])[5]]) == [{"t": expected["t"]}]
        assert mdsx.Dataset(url).select_columns(["id"]).take([3, 1])["id"].tolist() == [FIRST + 3, FIRST + 1]

    @pytest.mark.filterwarnings("ignore:the cache may hold")
    def test_a_loader_returns_every_sample_once_an_epoch(self, far: str, cache: mdsx.Cache) -> None:
        loader = mdsx.Loader(far, cache=cache, columns=["id", "vector", "text"], batch_size=6)
        for _ in range(2):
            batches = list(loader)
            ids = [int(number) for batch in batches for number in batch["id"]]
            assert sorted(ids) == list(range(FIRST, FIRST + COUNT))
            assert ids != sorted(ids)
            assert all((batch["vector"][:, 0] == batch["id"]).all() for batch in batches)
            assert [text for batch in batches for text in batch["text"]] == [sample(number)["text"] for number in ids]
