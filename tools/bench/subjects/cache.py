"""The cache of mdsx: what it downloads again in each epoch if the dataset is larger, and its admissions a second.

The unit of downloads is the dataset: 0.5 is half of its bytes in an epoch. The first epoch, with an empty cache, does
not count. The workload is *tokens*.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

import mdsx
from mdsx.storage.cache import CacheDirectory, CacheKey, Verdict
from tools.bench.measure import Figures, at_once
from tools.bench.subject import Goal, Subject
from tools.bench.subjects import alone, call, prepare
from tools.bench.subjects.s3 import SAMPLE_BYTES, served, size_of, url_of

_SEED = 7
_DOWNLOADED = "of the dataset an epoch"
_WAIT = 60.0  # seconds that a process waits for another
_EPOCHS = 6
_BATCH = 64  # of all processes
_STEP = 0.01  # seconds
_PER_SHARD = 64
_SHARES = ((0.5, 0.52), (0.75, 0.27), (0.9, 0.12))
_FINGERPRINT = "0" * 32
_CACHED, _SIZE, _PROCESSES = 20_000, 4096, 16


def subjects(scale: float) -> list[Subject]:
    return [*(_small_cache(share, ranks, most) for share, most in _SHARES for ranks in (1, 4)), _admissions(scale)]


def _small_cache(share: float, ranks: int, most: float) -> Subject:
    size = _PER_SHARD * (SAMPLE_BYTES + 8) + 256
    made = call(prepare, "mdsx", workload="tokens", samples=400 * _PER_SHARD, size=size)  # 400 shards
    processes = "1 process" if ranks == 1 else f"{ranks} processes"
    return Subject(
        name=f"s3-cache-{share * 100:.0f}-{ranks}",
        title=f"epochs 2 and on, a cache of {share:.0%} of the dataset, {processes}",
        figure=_DOWNLOADED,
        contestants=(
            alone("mdsx", "mdsx", later_epochs, made, share=share, ranks=ranks),
            alone("limit", "LRU, simulated", simulated, made, share=share, by_next_use=False),
            alone("limit", "by next use, simulated", simulated, made, share=share, by_next_use=True),
        ),
        goals=(Goal(f"a cache of {share:.0%}, {processes}: downloaded of the dataset an epoch", "mdsx", at_most=most),),
    )


def later_epochs(data: str, share: float, ranks: int) -> Figures:
    """`ranks` processes in step, as in training, and one cache of `share` of the data."""
    size, context = size_of(data), get_context("spawn")
    cache = mdsx.Cache(tempfile.mkdtemp(), limit=int(share * size))
    barrier, received = context.Barrier(ranks + 1), list[int]()
    with served(data) as link:
        os.environ["LOCAL_WORLD_SIZE"] = str(ranks)
        for rank in range(ranks):
            context.Process(target=_train, args=(rank, ranks, url_of(data), cache, barrier), daemon=True).start()
        for _ in range(_EPOCHS):
            barrier.wait(_WAIT)
            received.append(link.counts().received)
            barrier.wait(_WAIT)
    return {_DOWNLOADED: (received[-1] - received[0]) / (_EPOCHS - 1) / size}


def _train(rank: int, ranks: int, url: str, cache: mdsx.Cache, barrier: Barrier) -> None:
    from mdsx.torch import StreamingDataLoader, StreamingDataset

    dataset = StreamingDataset(url, seed=_SEED, cache=cache, rank=rank, world_size=ranks)
    loader = StreamingDataLoader(dataset, batch_size=_BATCH // ranks)
    for _ in range(_EPOCHS):
        for _ in loader:
            time.sleep(_STEP)
        for _ in range(2):
            barrier.wait(_WAIT)


def simulated(data: str, share: float, by_next_use: bool) -> Figures:
    """Evict the shard that is needed last (no cache can do better), or the one that was used least recently."""
    counts = mdsx.Dataset(data).shards.index.counts
    line = list(_uses(counts))
    following, later = [len(line)] * len(line), dict[int, int]()  # where each shard is needed next
    for at, (_, shard) in reversed(list(enumerate(line))):
        following[at] = later.get(shard, len(line))
        later[shard] = at
    room = max(int(share * len(counts)), 1)
    cached: dict[int, int] = {}  # shard -> the highest is evicted
    missed = [0] * (_EPOCHS + 1)
    for at, (epoch, shard) in enumerate(line):
        if shard not in cached:
            missed[epoch] += 1
            if len(cached) >= room:
                del cached[max(cached, key=cached.__getitem__)]
        cached[shard] = following[at] if by_next_use else -at
    return {_DOWNLOADED: mean(missed[1:_EPOCHS]) / len(counts)}


def _uses(counts: Any) -> Iterator[tuple[int, int]]:
    """Each use of a shard by a batch, with its epoch; one epoch more than is counted, for what is needed next."""
    for epoch in range(_EPOCHS + 1):
        order = mdsx.Order(counts, seed=_SEED, epoch=epoch)
        for start in range(0, len(order) - _BATCH + 1, _BATCH):
            shards, _ = order.locate(range(start, start + _BATCH))
            yield from ((epoch, shard) for shard in dict.fromkeys(shards.tolist()))


def _admissions(scale: float) -> Subject:
    return Subject(
        name="cache-admissions",
        title="admissions to a full cache of 20,000 shards, 16 processes",
        figure="admissions/s",
        contestants=(alone("mdsx", "mdsx", admissions, seconds=max(20 * scale, 5)),),
        goals=(Goal("cache admissions a second, 16 processes", "mdsx", at_least=100),),
    )


def admissions(seconds: float) -> Figures:
    """A second, over all processes."""
    directory, draw = tempfile.mkdtemp(), Random(_SEED)
    Path(directory, _FINGERPRINT).mkdir()
    for number in range(_CACHED):
        path = Path(directory, _FINGERPRINT, f"{number:032x}.mdsx")
        path.write_bytes(bytes(_SIZE))
        os.utime(path, (used := time.time() - draw.randrange(86400), used))

    barrier = get_context("fork").Barrier(_PROCESSES)

    def fill(write: Callable[[bytes], object]) -> None:
        write(bytes(_SIZE))

    def admit(process: int) -> float:
        cache = CacheDirectory(directory, _CACHED * _SIZE)
        barrier.wait(_WAIT)
        started, count = time.perf_counter(), 0
        for number in itertools.count((process + 1) << 32):
            result = cache.fetch(CacheKey(_FINGERPRINT, f"{number:032x}", _SIZE), fill)
            count += not isinstance(result, Verdict)  # which says that there was no room
            del result  # and with it the lease
            if (took := time.perf_counter() - started) > seconds:
                break
        return count / took

    return {"admissions/s": sum(at_once(admit, _PROCESSES))}
