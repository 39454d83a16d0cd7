"""`loader.stats()`: exact totals with any kind of workers, and whether data is the bottleneck."""

from __future__ import annotations

import os
import pickle
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import mdsx
from mdsx.datasets import excerpt_of
from mdsx.torch import Stats, StreamingDataLoader, StreamingDataset
from tests.torch.conftest import write
from tests.waiting import wait_until
from tools.fault_proxy import Exchange, Proxy, status

N, BATCH = 1003, 32
WORKERS: list[dict[str, Any]] = [
    {"num_workers": 0},
    {"num_workers": 2},
    {"num_workers": 2, "multiprocessing_context": "forkserver"},  # as with spawn, workers unpickle everything
]
KINDS = ["thread", "forked", "pickled"]


def made(url: str, cache: Path, *, limit: int | None = None, **options: Any) -> StreamingDataLoader:
    data = StreamingDataset(url, shuffle=False, cache=mdsx.Cache(cache, limit=limit))
    return StreamingDataLoader(data, BATCH, drop_last=False, **options)


def warm(url: str, cache: Path) -> mdsx.Dataset:
    """Fetch all shards into the cache."""
    data = mdsx.Dataset(url, cache=cache)
    assert sum(1 for _ in data) == N
    return data


def sent(proxy: Proxy) -> list[int]:
    """Return the sizes of all answers about shards from now on."""
    sizes = list[int]()

    def noted(exchange: Exchange) -> None:
        reply = exchange.forward()
        sizes.append(len(reply.body))
        exchange.send(reply)

    proxy.add(noted, key="*/shard*")
    return sizes


@pytest.mark.parametrize("workers", WORKERS[:2], ids=KINDS[:2])
def test_totals_of_a_warm_epoch_are_exact(workers: dict[str, Any], remote_url: str, tmp_path: Path) -> None:
    loader = made(remote_url, tmp_path, **workers)
    index = excerpt_of(warm(remote_url, tmp_path)).shards.index
    before = loader.stats()
    assert before == Stats(0.0, 0.0, *[0] * 12)
    batches = sum(1 for _ in loader)
    found, shards = loader.stats(), len(index.counts)
    assert (found.batches, found.samples, found.skipped) == (batches, N, 0)
    assert found.bytes_read == pytest.approx(index.raw_sizes.sum(), abs=batches)  # rounded for each run
    assert found.bytes_from_cache == pytest.approx(found.bytes_read, abs=batches)
    assert (found.bytes_downloaded, found.cache_misses, found.in_flight) == (0, 0, 0)
    assert (found.retries, found.evictions, found.hit_rate) == (0, 0, 1.0)
    if workers["num_workers"] == 0:
        assert found.cache_hits == shards
    assert shards <= found.cache_hits <= shards * max(workers["num_workers"], 1)
    assert 0 < found.waited < found.seconds


class Environment:
    """Gives a worker these variables: the fork server has those of an earlier test."""

    def __init__(self, values: dict[str, str]) -> None:
        self._values = values

    def __call__(self, worker: int) -> None:
        os.environ.update(self._values)


@pytest.mark.slow_if("id == 'pickled'")
@pytest.mark.parametrize("workers", WORKERS, ids=KINDS)
def test_totals_of_a_cold_epoch_are_exact(
    workers: dict[str, Any], remote_url: str, tmp_path: Path, proxy: Proxy
) -> None:
    sizes, busy = sent(proxy), proxy.add(status(503, "SlowDown"), key="*/shard.00003*", times=2)
    proxy.rules.reverse()  # the busy server comes first
    if workers["num_workers"]:
        workers = {**workers, "worker_init_fn": Environment(proxy.env())}
    loader = made(remote_url, tmp_path, **workers)
    for _ in range(2):
        for _ in loader:
            pass
    found = loader.stats()
    assert found.samples == 2 * N
    assert found.bytes_downloaded == sum(sizes)
    assert found.retries == busy.hits == 2
    assert found.cache_misses == len(list(tmp_path.rglob("*.mdsx")))
    assert found.cache_hits > 0


@pytest.mark.filterwarnings("ignore:the cache may hold")
def test_evictions_are_counted(remote_url: str, tmp_path: Path) -> None:
    loader = made(remote_url, tmp_path, limit=40_000)
    for _ in loader:
        pass

    def counted() -> bool:
        found = loader.stats()
        return found.cache_misses - found.evictions == len(list(tmp_path.rglob("*.mdsx")))

    wait_until(counted)  # a shard may still be on its way into the cache
    assert loader.stats().evictions > 0


def test_two_loaders_are_counted_apart(remote_url: str, tmp_path: Path) -> None:
    cold, other = made(remote_url, tmp_path / "cold"), made(remote_url, tmp_path / "warm")
    warm(remote_url, tmp_path / "warm")
    for _ in zip(cold, other, strict=True):
        pass
    assert cold.stats().bytes_downloaded > 0
    assert (other.stats().bytes_downloaded, other.stats().cache_misses) == (0, 0)
    assert cold.stats().samples == other.stats().samples == N


def test_a_copy_counts_from_zero(local_url: str, tmp_path: Path) -> None:
    loader = made(local_url, tmp_path)
    next(iter(loader))
    assert loader.stats().samples == BATCH
    assert pickle.loads(pickle.dumps(loader)).stats().samples == 0


def test_each_rank_counts_its_share(local_url: str) -> None:
    found = []
    for rank in range(2):
        data = StreamingDataset(local_url, rank=rank, world_size=2)
        loader = StreamingDataLoader(data, 8, drop_last=False)
        assert sum(len(batch["id"]) for batch in loader) == loader.stats().samples
        found.append(loader.stats())
    assert sum(each.samples for each in found) == N
    assert len({each.batches for each in found}) == 1


@pytest.mark.parametrize("workers", WORKERS[:2], ids=KINDS[:2])
def test_slow_storage_is_seen_as_waiting(
    workers: dict[str, Any], remote_url: str, tmp_path: Path, proxy: Proxy
) -> None:
    def slow(exchange: Exchange) -> None:
        time.sleep(0.1)
        exchange.send(exchange.forward())

    proxy.add(slow, key="*/shard*")
    loader = made(remote_url, tmp_path, **workers)
    for _ in loader:
        pass
    assert loader.stats().wait_fraction > 0.7


def test_a_slow_consumer_does_not_wait(local_url: str, tmp_path: Path) -> None:
    loader = made(local_url, tmp_path)
    batches = iter(loader)
    next(batches)
    before = loader.stats()
    for _ in range(10):
        time.sleep(0.05)
        next(batches)
    assert (loader.stats() - before).wait_fraction < 0.2


@pytest.mark.parametrize("workers", WORKERS[:2], ids=KINDS[:2])
def test_a_stall_is_seen_while_it_lasts(workers: dict[str, Any], remote_url: str, tmp_path: Path, proxy: Proxy) -> None:
    free = threading.Event()

    def held(exchange: Exchange) -> None:
        free.wait(60)
        exchange.send(exchange.forward())

    proxy.add(held, key="*/shard*")
    loader = made(remote_url, tmp_path, **workers)
    reader = threading.Thread(target=lambda: next(iter(loader)))
    reader.start()
    try:
        wait_until(lambda: loader.stats().in_flight > 0)
        before = loader.stats()
        wait_until(lambda: loader.stats().seconds > before.seconds + 0.1)
        stalled = loader.stats() - before
        assert stalled.samples == 0
        assert stalled.wait_fraction == pytest.approx(1, abs=0.05)
    finally:
        free.set()
        reader.join()
    assert loader.stats().samples == BATCH


def test_killed_workers_leave_nothing_in_flight(remote_url: str, tmp_path: Path, proxy: Proxy) -> None:
    free = threading.Event()

    def held(exchange: Exchange) -> None:
        free.wait(60)
        exchange.send(exchange.forward())

    loader = made(remote_url, tmp_path, num_workers=1)
    batches = iter(loader)
    next(batches)
    proxy.add(held, key="*/shard*")
    try:
        wait_until(lambda: loader.stats().in_flight > 0)
        before = loader.stats()
        del batches
        after = loader.stats()
    finally:
        free.set()
    assert after.in_flight == 0
    assert after.bytes_downloaded >= before.bytes_downloaded > 0


def test_a_difference_and_its_line() -> None:
    early = Stats(
        seconds=10, waited=1, batches=5, samples=100, skipped=1, sample_bytes=300.0, bytes_read=1000,
        bytes_from_cache=0, bytes_downloaded=500, in_flight=7,
        cache_hits=0, cache_misses=4, retries=0, evictions=0,
    )  # fmt: skip
    late = Stats(
        seconds=20, waited=6, batches=15, samples=5100, skipped=1, sample_bytes=400.0, bytes_read=2_001_000,
        bytes_from_cache=0, bytes_downloaded=40_500,
        in_flight=2, cache_hits=3, cache_misses=5, retries=2, evictions=1,
    )  # fmt: skip
    assert str(late - early) == (
        "500 samples/s, 200 kB/s, waiting 50%, 4 kB/s downloaded, cache hits 75%, 2 in flight, 2 retried, 1 evicted"
    )
    assert (late - early).samples_per_second == 500
    assert (early.hit_rate, (early - early).hit_rate, (early - early).wait_fraction) == (0.0, None, 0.0)


def test_local_shards_are_neither_downloaded_nor_cached(tmp_path: Path) -> None:
    write(str(tmp_path / "data"), 64)
    loader = StreamingDataLoader(StreamingDataset(tmp_path / "data"), 16)
    for _ in loader:
        pass
    found = loader.stats()
    assert found.bytes_read > 0
    assert (found.bytes_from_cache, found.bytes_downloaded, found.hit_rate) == (0, 0, None)
