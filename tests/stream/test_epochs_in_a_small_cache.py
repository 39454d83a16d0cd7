"""From the second epoch on, a cache of 50 / 75 / 90 % of the dataset downloads 50 / 25 / 10 % of it, and little more.

There is no clock: each rank reads on only when all prefetchers are idle, so downloads do not depend on speed.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import mdsx
from mdsx.order import DatasetCourse, Order
from mdsx.shards import DatasetSlice, Shards, View
from mdsx.storage.cache import Cache
from mdsx.storage.local import LocalStorage
from mdsx.stream import Cursor, RankReader, SampleSteps
from tests.conftest import Often
from tests.stream.test_prefetch import idle

SHARDS, SAMPLES, EPOCHS = 200, 16, 3
BATCH, RUN = 32, 2  # global batch; batches per run


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return dataset(tmp_path_factory.mktemp("dataset"), 8)


def dataset(path: Path, more: int) -> str:
    """Write samples of 16 + `more` bytes, compressed: so they are read through the cache although they are local."""
    columns, row = {"id": "int64", "more": f"uint8[{more}]"}, 16 + more
    with mdsx.Writer(path, columns, shard_size=128 + SAMPLES * row + row // 2, compression="zstd") as out:
        for number in range(SHARDS * SAMPLES):
            out.write({"id": number, "more": [number % 251] * more})
    return str(path)


@pytest.fixture
def downloads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of whole shards downloaded, and of ranges."""
    counts, lock = [0, 0], threading.Lock()
    download, get = LocalStorage.download, LocalStorage.get

    def counted(self: LocalStorage, key: str, *args: Any, **options: Any) -> None:
        with lock:
            counts[0] += 1
        download(self, key, *args, **options)

    def counted_get(self: LocalStorage, key: str, **options: Any) -> Any:
        with lock:
            counts[1] += key != "index.json"
        return get(self, key, **options)

    monkeypatch.setattr(LocalStorage, "download", counted)
    monkeypatch.setattr(LocalStorage, "get", counted_get)
    monkeypatch.setattr("mdsx.storage.cache.eviction._RESCAN", 0.0)  # see changes of other processes immediately
    monkeypatch.setattr("mdsx.storage.cache.eviction._RETRY", 0.0)
    return counts


def readers(url: str, cache: Path, limit: int, ranks: int, lanes: int) -> list[RankReader]:
    found = []
    for rank in range(ranks):
        shards = Shards(url, cache=Cache(cache, limit))
        course = DatasetCourse(Order(shards.index.counts, seed=3, lanes=lanes, shuffle_block=32 * SAMPLES))
        batching = SampleSteps(shards.index.samples, BATCH // ranks, ranks, drop_last=True)
        found.append(RankReader(View([DatasetSlice.whole(shards)]), course, batching, rank, processes=ranks))
    return found


PARTS = [(0.5, 0.52), (0.75, 0.27), (0.9, 0.12)]
"""How much of the dataset the cache may hold, and the most that is downloaded of it."""


@pytest.mark.slow_if("not joined")
@pytest.mark.parametrize(
    ("ranks", "lanes", "joined", "first"), [(1, 8, False, 0), (4, 8, False, 1), (1, 1, False, 1), (1, 8, True, 2)]
)
def test_later_epochs_download_only_what_the_cache_lacks(
    url: str, tmp_path: Path, downloads: list[int], ranks: int, lanes: int, joined: bool, first: int, often: Often
) -> None:
    """Each case has a cache of another size."""
    for number in range(often(1, long=len(PARTS))):
        part, most = PARTS[(first + number) % len(PARTS)]
        raw = int(Shards(url, cache=Cache(tmp_path / "other")).index.raw_sizes.sum())
        group = readers(url, tmp_path / f"cache{number}", int(part * raw), ranks, lanes)
        read_epochs(group, downloads, joined)
        assert downloads[1] <= 0.01 * SHARDS * (EPOCHS - 1), "read by range"
        assert downloads[0] <= most * SHARDS * (EPOCHS - 1)


def read_epochs(group: list[RankReader], downloads: list[int], joined: bool) -> None:
    """Read each sample once in each epoch; afterwards `downloads` are those of all but the first epoch."""
    seen: list[int] = []
    for epoch in range(EPOCHS):
        if epoch == 1:
            downloads[:] = [0, 0]
        tasks = list(group[0].steps.tasks(Cursor(epoch)))
        for start in range(0, len(tasks), RUN):
            for reader in group:
                batches = reader.read(tasks[start : start + RUN], joined=joined)
                for batch in [next(batches)] if joined else batches:  # workers take the only item, and not the end
                    seen += batch.columns["id"].tolist()
                del batches
            for reader in group:
                prefetcher = reader._runtime().prefetcher
                assert prefetcher is not None
                idle(prefetcher)
        for reader in group:  # as a loader does at the end of each epoch
            reader.close()
    assert sorted(seen) == sorted([*range(SHARDS * SAMPLES)] * EPOCHS)
