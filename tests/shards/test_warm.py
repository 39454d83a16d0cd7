"""Warming: every shard is fetched and checked once, within the cache's rules, and again after a kill.

The dataset is compressed on disk, so it is read through the cache, like one on S3.
"""

from __future__ import annotations

import gc
import os
import random
import time
from pathlib import Path

import pytest

import mdsx
from mdsx.base.progress import Progress
from mdsx.shards import Shards, Warmed, warm
from mdsx.storage.cache import Cache, CacheDirectory, clear, contents_of, prune
from tests.conftest import Often
from tests.shards.test_verify_cached import PER_SHARD, N, one_by_one, write
from tests.storage.cache import test_cache
from tests.storage.cache.reading import background, killed
from tests.storage.cache.watch import check

SHARDS = N // PER_SHARD


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("dataset") / "data")
    write(url)
    return url


def warmed(url: str, cache: Path, limit: int | str | None = None, first: int | None = None) -> Warmed:
    return warm(Shards(url, cache=Cache(cache, limit=limit)), first=first, watch=lambda progress: None)


def shards(cache: Path) -> list[Path]:
    return sorted(cache.glob("*/*.mdsx"))


def test_every_shard_is_fetched_once(url: str, tmp_path: Path) -> None:
    reports: list[Progress] = []
    done = warm(Shards(url, cache=Cache(tmp_path / "cache")), watch=reports.append)
    assert (done.shards, done.cached, done.fetched, done.busy) == (SHARDS, SHARDS, SHARDS, 0)
    assert done.size == done.fetched_size == sum(path.stat().st_size for path in shards(tmp_path / "cache"))
    last = reports[-1]
    assert (last.samples, last.shards, last.of_shards, last.size, last.of_size) == (
        N, SHARDS, SHARDS, done.size, done.size,
    )  # fmt: skip
    again = warmed(url, tmp_path / "cache")
    assert (again.cached, again.fetched, again.fetched_size) == (SHARDS, 0, 0)
    before = [path.stat().st_ino for path in shards(tmp_path / "cache")]
    assert one_by_one(url, tmp_path / "cache") == list(range(N))
    assert [path.stat().st_ino for path in shards(tmp_path / "cache")] == before
    (dataset,) = contents_of(tmp_path / "cache", time.time()).datasets
    assert dataset.urls == (url,)


def test_only_the_first_shards_if_asked(url: str, tmp_path: Path) -> None:
    assert warmed(url, tmp_path / "cache", first=2).cached == 2
    assert warmed(url, tmp_path / "cache").fetched == SHARDS - 2


def test_a_limit_that_is_too_small_says_what_fits(url: str, tmp_path: Path) -> None:
    size = int(Shards(url, cache=Cache(tmp_path / "cache")).index.raw_sizes.sum())
    with pytest.raises(mdsx.UsageError, match=f"the first 3 fit; give --cache-limit {size} .*--shards 3"):
        warmed(url, tmp_path / "cache", limit=size - 1)
    assert not shards(tmp_path / "cache")
    assert warmed(url, tmp_path / "cache", limit=size - 1, first=3).cached == 3
    assert warmed(url, tmp_path / "cache", limit=size).cached == SHARDS


def test_a_dataset_in_place_is_refused(tmp_path: Path) -> None:
    write(str(tmp_path / "data"), compression=None)
    with pytest.raises(mdsx.UsageError, match="read in place"):
        warmed(str(tmp_path / "data"), tmp_path / "cache")


def test_a_damaged_shard_raises_and_is_not_cached(tmp_path: Path) -> None:
    write(str(tmp_path / "data"))
    path = tmp_path / "data" / "shard.00001.mdsx.zst"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(mdsx.CorruptError, match=r"shard\.00001"):
        warmed(str(tmp_path / "data"), tmp_path / "cache")
    assert len(shards(tmp_path / "cache")) < SHARDS
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert warmed(str(tmp_path / "data"), tmp_path / "cache").cached == SHARDS


def test_only_shards_unused_for_a_day_are_evicted(url: str, tmp_path: Path) -> None:
    size = int(Shards(url, cache=Cache(tmp_path / "other")).index.raw_sizes.sum())
    other = CacheDirectory(tmp_path / "cache", size + test_cache.SIZE)
    for number in (1, 2):  # one fits beside the dataset
        test_cache.fetch(other, number)
    gc.collect()
    os.utime(other.path(test_cache.key(1)), (0, 0))
    done = warmed(url, tmp_path / "cache", limit=size + test_cache.SIZE)
    assert done.cached == SHARDS
    assert test_cache.there(other) >= test_cache.names(2)
    assert not test_cache.there(other) & test_cache.names(1)
    write(str(tmp_path / "more"), offset=N)  # fills the cache as well, but all was used within a day
    more = warmed(str(tmp_path / "more"), tmp_path / "cache", limit=size + test_cache.SIZE)
    assert (more.cached, more.shards) == (0, SHARDS)
    assert one_by_one(url, tmp_path / "cache") == list(range(N))


# --- while jobs read


def test_kills_and_removals_leave_readers_and_cache_right(url: str, tmp_path: Path, often: Often) -> None:
    """Processes that warm, clear and prune are killed at random, while a reader compares every sample."""
    cache, chance = tmp_path / "cache", random.Random(7)
    limit = warmed(url, cache).size

    def read() -> None:
        assert one_by_one(url, cache) == list(range(N))

    def remove() -> None:
        clear(cache) if random.random() < 0.5 else prune(cache, idle=0.0, size=limit // 2)
        time.sleep(0.005)

    reader = background(read)
    try:
        for _ in range(often(3, long=100)):
            others = [background(work) for work in (lambda: warmed(url, cache, limit), remove)]
            time.sleep(chance.uniform(0.02, 0.2))
            assert [killed(pid) for pid in others] == [-9, -9], "one failed"
    finally:
        assert killed(reader) == -9, "a wrong sample"
    done = warmed(url, cache, limit)
    assert (done.cached, done.busy) == (SHARDS, 0)
    check(cache, limit)
