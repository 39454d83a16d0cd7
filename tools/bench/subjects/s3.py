"""From S3: cold epochs and first batches over links, resuming, caches that are smaller than the dataset.

The server is local, with the link of tools/link.py in front of it. The workload is *tokens*.
"""

from __future__ import annotations

from typing import Any

from tools.bench.subject import Contestant, Goal, Subject
from tools.bench.subjects.common import CONTESTANTS, TOKENS_LOADER, call, contestant, limit
from tools.processes import Call
from tools.workloads import WIDTH

_SAMPLE = 2 * WIDTH
_NEAR: dict[str, Any] = {"rtt": 0.0, "rate": None}
_FAR: dict[str, Any] = {"rtt": 0.05, "rate": 100e6}
_THREADS = (2, 4, 8, 16)
_PEERS = ("mosaicml", "litdata")
_CODECS = {"mdsx": "zstd", "mosaicml": "zstd:3", "litdata": "zstd"}
_BATCH = 32
_REPEATED = 100_000  # shards


def subjects(scale: float) -> tuple[Subject, ...]:
    shard = 2**26 if scale > 0.5 else 2**24
    samples = int(2**18 * scale)
    data = {"samples": samples, "shard_size": shard}
    blocks = {"samples": samples, "shard_size": 2**22}
    return (
        _cold_epoch("near", "no latency", _NEAR, data, 0.9),
        _cold_epoch("near-blocks", "no latency, shards of 4 MiB", _NEAR, blocks, 0.9),
        _cold_epoch("far", "50 ms, 100 MB/s", _FAR, data, 0.95),
        _cold_epoch("far-blocks", "50 ms, 100 MB/s, shards of 4 MiB", _FAR, blocks, 0.95),
        _first_batch("plain", "uncompressed", data),
        _first_batch("zstd", "zstd", data, compressed=True),
        _resume(data),
        *(_small_cache(share, ranks, most) for share, most in _SHARES for ranks in (1, 4)),
        _admissions(scale),
    )


def _cold_epoch(name: str, title: str, link: dict[str, Any], data: dict[str, Any], least: float) -> Subject:
    epoch = {"samples": data["samples"], "batch_size": _BATCH, **link}
    made = _prepare("mdsx", data)
    mdsx = contestant("mdsx", "s3:cold_epoch", "", epoch, made)
    bare = [limit(f"bare downloader, {n} threads", "bare", made, "s3", threads=n, **link) for n in _THREADS]
    peers = []
    for peer in _PEERS:
        how = TOKENS_LOADER if peer == "litdata" else {}
        for workers in (0, 2):
            arguments = {"workers": workers, **epoch, **how}
            made = _prepare(peer, {**data, **how})
            peers.append(contestant(peer, "s3:cold_epoch", f"{workers} workers", arguments, made))
    if link["rate"] is None:
        goal = Goal(
            f"cold epoch from S3, {title}: 0.9 x the bare downloader",
            mdsx.name,
            tuple(each.name for each in bare),
            at_least=least,
        )
    else:
        goal = Goal(
            f"cold epoch from S3, {title}: 95 MB/s of a link of 100", mdsx.name, at_least=least * link["rate"] / 1e6
        )
    return Subject(
        name=f"s3-epoch-{name}",
        title=f"tokens: cold epoch from S3, {title}",
        figure="MB/s",
        unit="MB/s",
        contestants=(mdsx, *bare, *peers),
        goals=(goal,),
        limit=300.0,
        note="From the making of the dataset to the last batch, with an empty cache that holds all of it. With shards "
        "of 64 MiB the dataset is one shuffle block, and little of it can be read before its last shard arrives; with "
        "4 MiB it is several blocks long.",
    )


def _first_batch(name: str, title: str, data: dict[str, Any], compressed: bool = False) -> Subject:
    how = {"batch_size": _BATCH, **_FAR}

    def driven(loader: str, words: str, **more: Any) -> Contestant:
        prepared = {**data, "compression": _CODECS[loader]} if compressed else data
        if loader == "litdata" and not compressed:
            prepared, more = {**prepared, **TOKENS_LOADER}, {**more, **TOKENS_LOADER}
        return contestant(loader, "s3:first_batch", words, {**how, **more}, _prepare(loader, prepared))

    mdsx = driven("mdsx", "")
    slow = driven("mdsx", "500 ms", rtt=0.5)
    peers = [driven(peer, "") for peer in _PEERS]
    return Subject(
        name=f"s3-first-{name}",
        title=f"tokens: first batch from S3, cold, {title}, 50 ms, 100 MB/s",
        figure="s",
        unit="s",
        contestants=(mdsx, slow, *peers),
        goals=(
            Goal(f"first batch from S3, {title}: under 0.5 s", mdsx.name, at_most=0.5),
            Goal(f"first batch from S3, {title}: under 5 round trips", slow.name, at_most=4, figure="round trips"),
        ),
        higher_is_better=False,
        note="From the making of the dataset on, in a fresh process, after all imports; full shuffle. Round trips are "
        "counted on a link of 500 ms, so that requests which are merely sent slowly do not count as if they waited.",
    )


def _resume(data: dict[str, Any]) -> Subject:
    small = {**data, "samples": data["samples"] // 10}
    mdsx = [_resumes(f"{made['samples']:,} samples", _prepare("mdsx", made)) for made in (small, data)]
    one = {"samples": 256, "shard_size": 256 * (_SAMPLE + 8) + 4096, "shards": _REPEATED}
    many = _resumes(f"{_REPEATED:,} shards", Call(f"{CONTESTANTS}.s3:prepare_repeated", one))
    return Subject(
        name="s3-resume",
        title="tokens: resume at 90 % of an epoch, shards in the cache",
        figure="s",
        unit="s",
        contestants=(*mdsx, many),
        goals=tuple(
            Goal(f"resume at 90 %, {each.name.removeprefix('mdsx, ')}: under 0.3 s", each.name, at_most=0.3)
            for each in (*mdsx, many)
        ),
        higher_is_better=False,
    )


def _prepare(loader: str, data: dict[str, Any]) -> Call:
    return call(loader, "s3:prepare", **data)


def _resumes(name: str, made: Call) -> Contestant:
    what = Call(f"{CONTESTANTS}.s3:resume", {"batch_size": _BATCH, "part": 0.9})
    return Contestant(f"mdsx, {name}", what, made, "mdsx")


_SHARES = ((0.5, 0.52), (0.75, 0.27), (0.9, 0.12))


def _small_cache(share: float, ranks: int, most: float) -> Subject:
    data = {"samples": 400 * 64, "shard_size": 64 * (_SAMPLE + 8) + 256}  # 400 shards
    order = {"share": share, "epochs": 6, "global_batch": 64}
    made = _prepare("mdsx", data)
    how = {**order, "ranks": ranks, "step": 0.01}
    mdsx = Contestant("mdsx", Call(f"{CONTESTANTS}.cache:later_epochs", how), made, "mdsx")
    simulated = {"lru": "LRU, simulated", "by_next_use": "by next use, simulated"}
    limits = [limit(title, function, made, "cache", **order) for function, title in simulated.items()]
    processes = "process" if ranks == 1 else "processes"
    return Subject(
        name=f"s3-cache-{share * 100:.0f}-{ranks}",
        title=f"epochs 2 and on, a cache of {share:.0%} of the dataset, {ranks} {processes}",
        figure="downloaded",
        unit="of the dataset an epoch",
        contestants=(mdsx, *limits),
        goals=(
            Goal(
                f"a cache of {share:.0%}, {ranks} {processes}: downloaded of the dataset an epoch",
                mdsx.name,
                at_most=most,
            ),
        ),
        higher_is_better=False,
    )


def _admissions(scale: float) -> Subject:
    call = Call(f"{CONTESTANTS}.cache:admissions", {"shards": 20_000, "processes": 16, "seconds": max(20 * scale, 5)})
    return Subject(
        name="cache-admissions",
        title="admissions to a full cache of 20,000 shards, 16 processes",
        figure="admissions/s",
        unit="admissions/s",
        contestants=(Contestant("mdsx", call, kind="mdsx"),),
        goals=(Goal("cache admissions a second, 16 processes", "mdsx", at_least=100),),
    )
