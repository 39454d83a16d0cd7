"""Admissions to a full cache of many small shards, by many processes at once: each evicts another shard."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np

from mdsx.storage.cache import CacheDirectory, CacheKey, Verdict
from tools.bench.measure import Figures
from tools.bench.workloads import mix

_FINGERPRINT = "0" * 32
_SIZE = 4096
_WAIT = 60.0  # seconds that a process waits for the others


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


_barrier: Barrier
