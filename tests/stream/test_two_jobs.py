"""Two jobs on one node, far apart, share a cache smaller than the dataset: each shard is downloaded once.

There is no clock: a job reads on only when all prefetchers are idle, so downloads do not depend on speed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mdsx.order import DatasetCourse, Order
from mdsx.shards import DatasetSlice, Shards, View
from mdsx.storage.cache import Cache, filenames
from mdsx.stream import Cursor, RankReader, SampleSteps
from tests.stream.test_epochs_in_a_small_cache import BATCH, RUN, SAMPLES, SHARDS, dataset, downloads
from tests.stream.test_prefetch import idle

__all__ = ["downloads"]

RANKS = 2


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Shards so large that what processes announce takes less than a 32nd of the cache."""
    return dataset(tmp_path_factory.mktemp("dataset"), 240)


def job(url: str, cache: Path, limit: int, seed: int) -> list[RankReader]:
    """Return the readers of a job's ranks."""
    found = []
    for rank in range(RANKS):
        shards = Shards(url, cache=Cache(cache, limit))
        course = DatasetCourse(Order(shards.index.counts, seed=seed, lanes=8, shuffle_block=16 * SAMPLES))
        batching = SampleSteps(shards.index.samples, BATCH // RANKS, RANKS, drop_last=True)
        found.append(RankReader(View([DatasetSlice.whole(shards)]), course, batching, rank, processes=2 * RANKS))
    return found


@pytest.mark.slow_if("part == 0.6")
@pytest.mark.parametrize(("seeds", "part"), [((3, 3), 0.6), ((3, 4), 0.8)])
def test_jobs_apart_download_each_shard_once(
    url: str, tmp_path: Path, downloads: list[int], seeds: tuple[int, int], part: float
) -> None:
    """The second job follows when the first one has read a fourth of the epoch, and the cache holds what is between
    them, or what only one of two jobs with orders of their own has read."""
    raw = int(Shards(url, cache=Cache(tmp_path / "other")).index.raw_sizes.sum())
    first, second = (job(url, tmp_path / "cache", int(part * raw), seed) for seed in seeds)
    runs = SHARDS * SAMPLES // BATCH // RUN
    seen: list[int] = []
    for step in range(runs + runs // 4):
        for readers, at in ((first, step), (second, step - runs // 4)):
            if 0 <= at < runs:
                read(readers, at, seen)
    for reader in (*first, *second):
        reader.close()
    assert sorted(seen) == sorted([*range(SHARDS * SAMPLES)] * 2)
    assert SHARDS <= downloads[0] <= 1.02 * SHARDS
    assert downloads[1] <= 2 * RANKS * (BATCH // RANKS), "read by range, more than the first batches"
    assert list((tmp_path / "cache" / filenames.NEEDS).iterdir()) == []


def read(readers: list[RankReader], run: int, seen: list[int]) -> None:
    tasks = list(readers[0].steps.tasks(Cursor()))[run * RUN : run * RUN + RUN]
    for reader in readers:
        for batch in reader.read(tasks):
            seen += batch.columns["id"].tolist()
    for reader in readers:
        prefetcher = reader._runtime().prefetcher
        assert prefetcher is not None
        idle(prefetcher)
