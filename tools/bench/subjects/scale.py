"""What grows with the dataset: the order of 10^8, 10^10 and 10^12 samples, an index of 2^22 shards."""

from __future__ import annotations

from tools.bench.subject import Contestant, Goal, Subject
from tools.bench.subjects import contestant, mine

_STREAMED = 10_000_000  # samples
_SHARDS = 2**22  # the most that a dataset has
_PEERS_SAMPLES = 10_000_000  # mosaicml-streaming makes the whole epoch's order: 10^8 would be gigabytes


def subjects(scale: float) -> list[Subject]:
    return [_order(scale), _index(max(int(_SHARDS * scale), 100))]


def _order(scale: float) -> Subject:
    streamed = max(int(_STREAMED * scale), 100_000)
    found = [
        Contestant(
            f"mdsx, 10^{power} samples",
            mine("scale:order", samples=int(10**power * scale), streamed=streamed),
            kind="mdsx",
        )
        for power in (8, 10, 12)
    ]
    largest = found[-1].name
    samples = max(int(_PEERS_SAMPLES * scale), 1_000_000)
    arguments = {"samples": samples, "shards": max(samples // 500_000, 1)}
    return Subject(
        name="order",
        title="The order of an epoch, in shards of 500,000 samples",
        figure="construct s",
        unit="construct, s",
        more=("first batch s", "ns/sample", "MB in all"),
        higher_is_better=False,
        contestants=(*found, contestant("mosaicml", "loaders:order", "10^7 samples", arguments)),
        goals=(
            Goal("order of 10^12 samples in 2,000,000 shards: constructed under 1 s", largest, at_most=1.0),
            Goal("its first batch at 10^11: under 0.5 s", largest, at_most=0.5, figure="first batch s"),
            Goal("a sample streamed from there: under 100 ns", largest, at_most=100, figure="ns/sample"),
            Goal("all of it: under 600 MB", largest, at_most=600, figure="MB in all"),
        ),
        note="The first batch is of 512 samples at a tenth of the epoch; memory is that of the whole process.",
    )


def _index(shards: int) -> Subject:
    opened, of_worker = mine("scale:open_index", shards=shards), "bytes/shard of a worker"
    codecs = {"mdsx": None, "mdsx, zstd": "zstd"}
    return Subject(
        name="index",
        title="Open an index of 2^22 shards, the most that a dataset has",
        figure="open s",
        unit="open, s",
        more=("MB in all", "bytes/shard", "order s", "bytes/shard with order", of_worker),
        higher_is_better=False,
        contestants=[
            Contestant(name, opened, mine("scale:prepare_index", shards=shards, compression=codec), "mdsx")
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
