"""The cache of mdsx: what it downloads again in each epoch if the dataset is larger, and its admissions a second.

The unit of downloads is the dataset: 0.5 is half of its bytes in an epoch. The first epoch, with an empty cache, does
not count.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import pairwise
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import mean

import numpy as np

import mdsx
from mdsx.storage.cache import CacheDirectory, CacheKey, Verdict
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tools.bench.contestants.s3 import URL, place, served, size_of
from tools.bench.measure import Figures
from tools.link import Link
from tools.workloads import mix

_SEED = 7
_WAIT = 60.0  # seconds that a process waits for another
_FINGERPRINT = "0" * 32
_SIZE = 4096
_barrier: Barrier


def later_epochs(
    data: str, scratch: str, share: float, ranks: int, epochs: int, global_batch: int, step: float
) -> Figures:
    """`ranks` processes in step, as in training: each batch takes `step` seconds; one cache of `share` of the data."""
    size = size_of(place(data))
    context = multiprocessing.get_context("spawn")
    with served(data) as link:
        os.environ["LOCAL_WORLD_SIZE"] = str(ranks)
        barrier = context.Barrier(ranks + 1)
        how = (ranks, str(Path(scratch, "cache")), int(share * size), epochs, global_batch // ranks, step, barrier)
        processes = [context.Process(target=_train, args=(rank, *how), daemon=True) for rank in range(ranks)]
        for process in processes:
            process.start()
        received = [0, *(_after_epoch(link, barrier) for _ in range(epochs))]
        for process in processes:
            process.join(_WAIT)
    shares = [(after - before) / size for before, after in pairwise(received)]
    return {"downloaded": mean(shares[1:]), "first epoch": shares[0], "last epoch": shares[-1]}


def _after_epoch(link: Link, barrier: Barrier) -> int:
    barrier.wait(_WAIT)
    received = link.counts().received
    barrier.wait(_WAIT)
    return received


def _train(
    rank: int, ranks: int, cache: str, limit: int, epochs: int, batch_size: int, step: float, barrier: Barrier
) -> None:
    dataset = StreamingDataset(URL, seed=_SEED, cache=mdsx.Cache(cache, limit=limit), rank=rank, world_size=ranks)
    loader = StreamingDataLoader(dataset, batch_size=batch_size)
    for _ in range(epochs):
        for _ in loader:
            time.sleep(step)
        for _ in range(2):
            barrier.wait(_WAIT)


def lru(data: str, share: float, epochs: int, global_batch: int) -> Figures:
    """Simulated: the shard that was not used for the longest time makes room."""
    dataset = mdsx.Dataset(place(data))
    shards = len(_counts(dataset))
    use = lru_cache(max(int(share * shards), 1))(lambda shard: None)
    missed = []
    for uses in _epochs(dataset, epochs, global_batch):
        before = use.cache_info().misses
        for shard in uses:
            use(shard)
        missed.append(use.cache_info().misses - before)
    return {"downloaded": mean(missed[1:]) / shards}


def by_next_use(data: str, share: float, epochs: int, global_batch: int) -> Figures:
    """Simulated: the shard that is needed last makes room. No cache can do better."""
    dataset = mdsx.Dataset(place(data))
    per_epoch = [list(uses) for uses in _epochs(dataset, epochs + 1, global_batch)]
    line = [(epoch, shard) for epoch, uses in enumerate(per_epoch) for shard in uses]
    following, last = [len(line)] * len(line), dict[int, int]()
    for at in range(len(line) - 1, -1, -1):
        following[at] = last.get(line[at][1], len(line))
        last[line[at][1]] = at
    room = max(int(share * len(last)), 1)
    kept: dict[int, int] = {}  # shard -> where it is needed next
    missed = [0] * (epochs + 1)
    for at, (epoch, shard) in enumerate(line):
        if shard not in kept:
            missed[epoch] += 1
            if len(kept) >= room:
                del kept[max(kept, key=kept.__getitem__)]
        kept[shard] = following[at]
    return {"downloaded": mean(missed[1:epochs]) / len(last)}


def _counts(dataset: mdsx.Dataset) -> list[int]:
    """Samples in each shard."""
    counts: list[int] = dataset.excerpt.shards.index.counts.tolist()
    return counts


def _epochs(dataset: mdsx.Dataset, epochs: int, global_batch: int) -> Iterator[Iterator[int]]:
    """For each epoch the shards as they are used, batch by batch, each once in a batch."""
    counts = _counts(dataset)
    starts = range(0, sum(counts) - global_batch + 1, global_batch)

    def uses(order: mdsx.Order) -> Iterator[int]:
        for start in starts:
            shards, _ = order.locate(range(start, start + global_batch))
            yield from dict.fromkeys(shards.tolist())

    return (uses(mdsx.Order(counts, seed=_SEED, epoch=epoch)) for epoch in range(epochs))


def admissions(scratch: str, shards: int, processes: int, seconds: float) -> Figures:
    """A second, over all processes."""
    directory = Path(scratch, "cache")
    (directory / _FINGERPRINT).mkdir(parents=True)
    now = time.time()
    ages = mix(np.arange(shards, dtype=np.uint64)) % np.uint64(86400)
    for number, age in enumerate(ages.tolist()):
        path = directory / _FINGERPRINT / f"{number:032x}.mdsx"
        path.write_bytes(bytes(_SIZE))
        os.utime(path, (now, now - age))
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(processes)
    with context.Pool(processes, _keep, (barrier,)) as pool:
        jobs = [(str(directory), shards, number, seconds) for number in range(processes)]
        found = pool.starmap(_admit, jobs, chunksize=1)
    return {
        "admissions/s": sum(each[0] / each[1] for each in found),
        "slowest ms": 1e3 * max(each[2] for each in found),
        "no room": sum(each[3] for each in found),
    }


def _keep(barrier: Barrier) -> None:
    global _barrier
    _barrier = barrier


def _admit(directory: str, shards: int, process: int, seconds: float) -> tuple[int, float, float, int]:
    """How many, in how many seconds, the slowest, and how often there was no room."""
    cache = CacheDirectory(directory, shards * _SIZE)
    _barrier.wait(_WAIT)
    started = time.perf_counter()
    count, slowest, refused = 0, 0.0, 0

    def fill(write: Callable[[bytes], object]) -> None:
        write(bytes(_SIZE))

    while (begun := time.perf_counter()) - started < seconds:
        number = (process + 1) << 32 | (count + refused)
        result = cache.fetch(CacheKey(_FINGERPRINT, f"{number:032x}", _SIZE), fill)
        if isinstance(result, Verdict):
            refused += 1
        else:
            count += 1
        del result  # and with it the lease
        slowest = max(slowest, time.perf_counter() - begun)
    return count, time.perf_counter() - started, slowest, refused
