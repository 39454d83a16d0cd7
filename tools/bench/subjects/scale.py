"""What grows with the dataset: the order of 10^8, 10^10 and 10^12 samples, an index of 2^22 shards."""

from __future__ import annotations

import gc
import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil

import mdsx
from mdsx.format import Schema, ShardEntry, build_index
from tools.bench.measure import Figures, at_once, memory_of, timed
from tools.bench.subject import Goal, Subject
from tools.bench.subjects import alone, call, contestant
from tools.peers import Peer
from tools.peers.mosaicml import make_order

_STREAMED = 10_000_000  # samples
_BATCH = 512
_RUN = 16_384  # positions that are located together, as the reader does with many batches
_PER_SHARD = 500_000
_SHARDS = 2**22  # the most that a dataset has
_PEERS_SAMPLES = 10_000_000  # mosaicml-streaming makes the whole epoch's order: 10^8 would be gigabytes


def subjects(scale: float) -> list[Subject]:
    return [_order(scale), _index(max(int(_SHARDS * scale), 100))]


def _order(scale: float) -> Subject:
    streamed, peers_samples = max(int(_STREAMED * scale), 100_000), max(int(_PEERS_SAMPLES * scale), 1_000_000)
    found = [
        alone("mdsx", f"mdsx, 10^{power} samples", order, samples=int(10**power * scale), streamed=streamed)
        for power in (8, 10, 12)
    ]
    largest = found[-1].name
    return Subject(
        name="order",
        title="The order of an epoch, in shards of 500,000 samples",
        figure="construct, s",
        more=("first batch s", "ns/sample", "MB in all"),
        contestants=(*found, contestant("mosaicml", whole_order, "10^7 samples", samples=peers_samples)),
        goals=(
            Goal("order of 10^12 samples in 2,000,000 shards: constructed under 1 s", largest, at_most=1.0),
            Goal("its first batch at 10^11: under 0.5 s", largest, at_most=0.5, figure="first batch s"),
            Goal("a sample streamed from there: under 100 ns", largest, at_most=100, figure="ns/sample"),
            Goal("all of it: under 600 MB", largest, at_most=600, figure="MB in all"),
        ),
        note="The first batch is of 512 samples at a tenth of the epoch; memory is that of the whole process.",
    )


def order(samples: int, streamed: int) -> Figures:
    """Construct it, locate the first batch at 10 % of the epoch, then stream; memory is that of the whole process."""
    counts = np.full(max(samples // _PER_SHARD, 1), _PER_SHARD, np.int64)
    made, construct = timed(lambda: mdsx.Order(counts, seed=7, epoch=3))
    position = len(made) // 10
    streamed = min(streamed, len(made) - position)

    def stream() -> None:
        for start in range(position, position + streamed, _RUN):
            made.locate(np.arange(start, min(start + _RUN, position + streamed)))

    _, first = timed(lambda: made.locate(np.arange(position, position + _BATCH)))
    _, took = timed(stream)
    return {"construct, s": construct, "first batch s": first, "ns/sample": took / streamed * 1e9, "MB in all": _peak()}


def whole_order(peer: Peer, samples: int) -> Figures:
    """That of mosaicml-streaming, which is made as a whole."""
    _, took = timed(lambda: make_order(samples, max(samples // _PER_SHARD, 1)))
    return {"construct, s": took, "ns/sample": took / samples * 1e9}


def _index(shards: int) -> Subject:
    of_worker = "bytes/shard of a worker"
    codecs = {"mdsx": None, "mdsx, zstd": "zstd"}
    return Subject(
        name="index",
        title="Open an index of 2^22 shards, the most that a dataset has",
        figure="open, s",
        more=("MB in all", "bytes/shard", "order s", "bytes/shard with order", of_worker),
        contestants=[
            alone("mdsx", name, open_index, call(prepare_index, shards=shards, compression=codec), shards=shards)
            for name, codec in codecs.items()
        ],
        goals=(
            Goal("index of 2^22 shards: opened under 4 s", "mdsx", at_most=4.0),
            Goal("the same of compressed shards: under 4 s", "mdsx, zstd", at_most=4.0),
            Goal("in a process of under 1,000 MB", "mdsx", at_most=1000, figure="MB in all"),
            Goal("of compressed shards: under 1,000 MB", "mdsx, zstd", at_most=1000, figure="MB in all"),
            Goal("resident for each shard: under 300 bytes", "mdsx", at_most=300, figure="bytes/shard"),
            Goal("a forked worker's own for each shard: under 300 bytes", "mdsx", at_most=300, figure=of_worker),
        ),
        note="A worker is forked from the process that has the order, and locates samples all over the epoch.",
    )


def prepare_index(data: str, shards: int, compression: str | None) -> Figures:
    """An index of shards that are not there."""
    schema = Schema.from_columns({"text": "str", "id": "int64"})
    hashes = np.random.default_rng(7).integers(2**64, size=(shards, 2), dtype=np.uint64).tolist()

    def entries() -> Iterator[ShardEntry]:
        for number, (high, low) in enumerate(hashes):
            digits, size = f"{high:016x}{low:016x}", 2**26 - number % 4096
            stored = size if compression is None else size // 2
            yield ShardEntry(f"shard.{number:05}.mdsx", _PER_SHARD, high, stored, digits, size, digits)

    Path(data, "index.json").write_bytes(build_index(schema, compression, list(entries())))
    return {}


def open_index(data: str, shards: int) -> Figures:
    """Open it; what stays in memory of it, here and in a process forked from here that locates samples."""
    before = _anonymous()
    dataset, opened = timed(lambda: mdsx.Dataset(data))
    figures: Figures = {"open, s": opened, "MB in all": _peak()}
    figures["bytes/shard"] = (_anonymous() - before) / shards
    counts = dataset.shards.index.counts
    made, figures["order s"] = timed(lambda: mdsx.Order(counts, seed=7))
    figures["bytes/shard with order"] = (_anonymous() - before) / shards

    def locate(number: int) -> int:
        """The bytes that a process has for itself after it located a batch of each 16th of the epoch."""
        for position in range(0, len(made) - _BATCH, len(made) // 16):
            made.locate(np.arange(position, position + _BATCH))
        return memory_of(psutil.Process())["private"]

    (private,) = at_once(locate, 1)
    figures["bytes/shard of a worker"] = private / shards
    return figures


def _anonymous() -> int:
    """Bytes of this process that are no mapped file's."""
    gc.collect()
    return memory_of(psutil.Process())["anonymous"]


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
