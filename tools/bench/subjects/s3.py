"""From S3: cold epochs and first batches over links, resuming, caches that are smaller than the dataset.

The server is local, with the link of tools/link.py in front of it. The workload is *tokens*.
"""

from __future__ import annotations

from typing import Any

from tools.bench.subject import Contestant, Goal, Subject
from tools.bench.subjects import TOKENS_LOADER, call, contestant, limit, mine
from tools.processes import Call
from tools.workloads import WIDTH

_SAMPLE = 2 * WIDTH
_NEAR: dict[str, Any] = {"rtt": 0.0, "rate": None}
_FAR: dict[str, Any] = {"rtt": 0.05, "rate": 100e6}
_THREADS = (2, 4, 8, 16)
_PEERS = ("mosaicml", "litdata")
_CODECS = {"mdsx": "zstd", "mosaicml": "zstd:3", "litdata": "zstd"}
_BATCH = {"batch_size": 32}
_REPEATED = 100_000  # shards
_SHARES = ((0.5, 0.52), (0.75, 0.27), (0.9, 0.12))


def subjects(scale: float) -> list[Subject]:
    data = {"samples": int(2**18 * scale), "shard_size": 2**26 if scale > 0.5 else 2**24}
    blocks = {**data, "shard_size": 2**22}
    return [
        _cold_epoch("near", "no latency", _NEAR, data),
        _cold_epoch("near-blocks", "no latency, shards of 4 MiB", _NEAR, blocks),
        _cold_epoch("far", "50 ms, 100 MB/s", _FAR, data),
        _cold_epoch("far-blocks", "50 ms, 100 MB/s, shards of 4 MiB", _FAR, blocks),
        _first_batch("plain", "uncompressed", data),
        _first_batch("zstd", "zstd", data, compressed=True),
        _resume(data),
        *(_small_cache(share, ranks, most) for share, most in _SHARES for ranks in (1, 4)),
        _admissions(scale),
    ]


def _cold_epoch(name: str, title: str, link: dict[str, Any], data: dict[str, Any]) -> Subject:
    epoch = {"samples": data["samples"], **_BATCH, **link}
    made = _prepare("mdsx", data)
    bare = [limit(f"bare downloader, {n} threads", "bare", made, "s3", threads=n, **link) for n in _THREADS]
    peers = []
    for peer in _PEERS:
        how = TOKENS_LOADER if peer == "litdata" else {}
        for workers in (0, 2):
            arguments = {"workers": workers, **epoch, **how}
            made_by_peer = _prepare(peer, {**data, **how})
            peers.append(contestant(peer, "s3:cold_epoch", f"{workers} workers", arguments, made_by_peer))
    goal = f"cold epoch from S3, {title}"
    if link["rate"] is None:
        judged = Goal(f"{goal}: 0.9 x the bare downloader", "mdsx", tuple(each.name for each in bare), at_least=0.9)
    else:
        judged = Goal(f"{goal}: 95 MB/s of a link of 100", "mdsx", at_least=0.95 * link["rate"] / 1e6)
    return Subject(
        name=f"s3-epoch-{name}",
        title=f"tokens: cold epoch from S3, {title}",
        figure="MB/s",
        unit="MB/s",
        contestants=(contestant("mdsx", "s3:cold_epoch", "", epoch, made), *bare, *peers),
        goals=(judged,),
        limit=300.0,
        note="From the dataset's construction to the last batch, with an empty cache that holds all of it. With shards "
        "of 64 MiB the dataset is one shuffle block, and little of it can be read before its last shard arrives; with "
        "4 MiB it is several blocks long.",
    )


def _first_batch(name: str, title: str, data: dict[str, Any], compressed: bool = False) -> Subject:
    def driven(loader: str, words: str = "", **more: Any) -> Contestant:
        how = TOKENS_LOADER if loader == "litdata" and not compressed else {}
        prepared = {**data, **how} | ({"compression": _CODECS[loader]} if compressed else {})
        return contestant(
            loader, "s3:first_batch", words, {**_BATCH, **_FAR, **how, **more}, _prepare(loader, prepared)
        )

    goal, slow = f"first batch from S3, {title}", driven("mdsx", "500 ms", rtt=0.5)
    return Subject(
        name=f"s3-first-{name}",
        title=f"tokens: first batch from S3, cold, {title}, 50 ms, 100 MB/s",
        figure="s",
        unit="s",
        contestants=(driven("mdsx"), slow, *map(driven, _PEERS)),
        goals=(
            Goal(f"{goal}: under 0.5 s", "mdsx", at_most=0.5),
            Goal(f"{goal}: under 5 round trips", slow.name, at_most=4, figure="round trips"),
        ),
        higher_is_better=False,
        note="From the dataset's construction on, in a fresh process, after all imports; full shuffle. Round trips are "
        "counted on a link of 500 ms, so that requests which are merely sent slowly do not count as if they waited.",
    )


def _resume(data: dict[str, Any]) -> Subject:
    one = {"samples": 256, "shard_size": 256 * (_SAMPLE + 8) + 4096, "shards": _REPEATED}
    sizes = (data["samples"] // 10, data["samples"])
    made = {f"{size:,} samples": _prepare("mdsx", {**data, "samples": size}) for size in sizes}
    made[f"{_REPEATED:,} shards"] = mine("s3:prepare_repeated", **one)
    resume = mine("s3:resume", **_BATCH, part=0.9)
    return Subject(
        name="s3-resume",
        title="tokens: resume at 90 % of an epoch, shards in the cache",
        figure="s",
        unit="s",
        contestants=[Contestant(f"mdsx, {name}", resume, each, "mdsx") for name, each in made.items()],
        goals=[Goal(f"resume at 90 %, {name}: under 0.3 s", f"mdsx, {name}", at_most=0.3) for name in made],
        higher_is_better=False,
    )


def _prepare(loader: str, data: dict[str, Any]) -> Call:
    return call(loader, "s3:prepare", **data)


def _small_cache(share: float, ranks: int, most: float) -> Subject:
    made = _prepare("mdsx", {"samples": 400 * 64, "shard_size": 64 * (_SAMPLE + 8) + 256})  # 400 shards
    order = {"share": share, "epochs": 6, "global_batch": 64}
    processes = "1 process" if ranks == 1 else f"{ranks} processes"
    return Subject(
        name=f"s3-cache-{share * 100:.0f}-{ranks}",
        title=f"epochs 2 and on, a cache of {share:.0%} of the dataset, {processes}",
        figure="downloaded",
        unit="of the dataset an epoch",
        contestants=(
            Contestant("mdsx", mine("cache:later_epochs", **order, ranks=ranks, step=0.01), made, "mdsx"),
            limit("LRU, simulated", "lru", made, "cache", **order),
            limit("by next use, simulated", "by_next_use", made, "cache", **order),
        ),
        goals=(Goal(f"a cache of {share:.0%}, {processes}: downloaded of the dataset an epoch", "mdsx", at_most=most),),
        higher_is_better=False,
    )


def _admissions(scale: float) -> Subject:
    admissions = mine("cache:admissions", shards=20_000, processes=16, seconds=max(20 * scale, 5))
    return Subject(
        name="cache-admissions",
        title="admissions to a full cache of 20,000 shards, 16 processes",
        figure="admissions/s",
        unit="admissions/s",
        contestants=(Contestant("mdsx", admissions, kind="mdsx"),),
        goals=(Goal("cache admissions a second, 16 processes", "mdsx", at_least=100),),
    )
