"""mdsx at sizes that no disk here holds: the order of up to 10^12 samples, an index of 2^22 shards."""

from __future__ import annotations

import gc
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import mdsx
from mdsx.format import Schema, ShardEntry, build_index
from tools import workloads
from tools.bench.measure import Figures, in_child, memory_of

_BATCH = 512
_RUN = 16_384  # positions that are located together, as the reader does with many batches
_PER_SHARD = 500_000


def order(samples: int, streamed: int) -> Figures:
    """Construct it, locate the first batch at 10 % of the epoch, then stream; memory is that of the whole process."""
    counts = np.full(max(samples // _PER_SHARD, 1), _PER_SHARD, np.int64)
    figures: Figures = {}
    begun = time.perf_counter()
    made = mdsx.Order(counts, seed=7, epoch=3)
    figures["construct s"] = time.perf_counter() - begun
    position = len(made) // 10
    begun = time.perf_counter()
    made.locate(np.arange(position, position + _BATCH))
    figures["first batch s"] = time.perf_counter() - begun
    streamed = min(streamed, len(made) - position)
    begun = time.perf_counter()
    for start in range(position, position + streamed, _RUN):
        made.locate(np.arange(start, min(start + _RUN, position + streamed)))
    figures["ns/sample"] = (time.perf_counter() - begun) / streamed * 1e9
    figures["MB in all"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    return figures


def prepare_index(data: str, shards: int, compression: str | None = None) -> Figures:
    """An index of shards that are not there."""
    schema = Schema.from_columns({"text": "str", "id": "int64"})
    names = workloads.mix(np.arange(2 * shards, dtype=np.uint64)).reshape(shards, 2).tolist()

    def entries() -> Iterator[ShardEntry]:
        for number, (high, low) in enumerate(names):
            digits = f"{high:016x}{low:016x}"
            size = 2**26 - number % 4096
            name, stored = f"shard.{number:05}.mdsx", size if compression is None else size // 2
            yield ShardEntry(name, _PER_SHARD, high, stored, digits, size, digits)

    Path(data, "index.json").write_bytes(build_index(schema, compression, list(entries())))
    return {}


def open_index(data: str, shards: int) -> Figures:
    """Open it; what stays in memory of it, here and in a process forked from here that locates samples."""
    gc.collect()
    before = memory_of(os.getpid())["anonymous"]
    begun = time.perf_counter()
    dataset = mdsx.Dataset(data)
    figures: Figures = {"open s": time.perf_counter() - begun}
    figures["MB in all"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    gc.collect()
    figures["bytes/shard"] = (memory_of(os.getpid())["anonymous"] - before) * 1024 / shards
    counts = dataset.shards.index.counts
    begun = time.perf_counter()
    made = mdsx.Order(counts, seed=7)
    figures["order s"] = time.perf_counter() - begun
    gc.collect()
    figures["bytes/shard with order"] = (memory_of(os.getpid())["anonymous"] - before) * 1024 / shards
    with os.fdopen(in_child(_private, made)) as pipe:
        figures["bytes/shard of a worker"] = int(pipe.read()) * 1024 / shards
    return figures


def _private(made: mdsx.Order) -> int:
    """KiB that this process has for itself after it located a batch of each 16th of the epoch."""
    for position in range(0, len(made) - _BATCH, len(made) // 16):
        made.locate(np.arange(position, position + _BATCH))
    return memory_of(os.getpid())["private"]
