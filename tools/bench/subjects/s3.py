"""From S3: cold epochs and first batches over links, and resuming. The workload is *tokens*.

Each measurement starts a local server, with the link of tools/link.py in front of it, before the clock starts.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from tools.bench.measure import Figures, timed
from tools.bench.subject import Contestant, Goal, Subject
from tools.bench.subjects import TOKENS_LOADER, alone, call, contestant, prepare
from tools.link import Link
from tools.peers import Lazy, Peer, Reading
from tools.servers.s3 import S3Server

boto3, config = Lazy("boto3"), Lazy("botocore.config")

_NEAR: dict[str, Any] = {"rtt": 0.0, "rate": None}
_FAR: dict[str, Any] = {"rtt": 0.05, "rate": 100e6}
_THREADS = (2, 4, 8, 16)
_PEERS = ("mosaicml", "litdata")
_CODECS = {"mdsx": "zstd", "mosaicml": "zstd:3", "litdata": "zstd"}
_BATCH = 32
_CHUNK = 2**20
_READ_BEFORE = 1000  # batches


def subjects(scale: float) -> list[Subject]:
    data = {"samples": int(2**18 * scale), "size": 2**26 if scale > 0.5 else 2**24}
    blocks = {**data, "size": 2**22}
    return [
        _cold_epoch("near", "no latency", _NEAR, data),
        _cold_epoch("near-blocks", "no latency, shards of 4 MiB", _NEAR, blocks),
        _cold_epoch("far", "50 ms, 100 MB/s", _FAR, data),
        _cold_epoch("far-blocks", "50 ms, 100 MB/s, shards of 4 MiB", _FAR, blocks),
        _first_batch("plain", "uncompressed", data),
        _first_batch("zstd", "zstd", data, compressed=True),
        _resume(data),
    ]


def _cold_epoch(name: str, title: str, link: dict[str, Any], data: dict[str, Any]) -> Subject:
    ours = _driven("mdsx", data, link, samples=data["samples"])
    bare_ones = [
        alone("limit", f"bare downloader, {threads} threads", bare, ours.prepare, link=link, threads=threads)
        for threads in _THREADS
    ]
    peers = [
        _driven(peer, data, link, f"{workers} workers", samples=data["samples"], workers=workers)
        for peer in _PEERS
        for workers in (0, 2)
    ]
    goal = f"cold epoch from S3, {title}"
    if link["rate"] is None:
        against = tuple(each.name for each in bare_ones)
        judged = Goal(f"{goal}: 0.9 x the bare downloader", "mdsx", against, at_least=0.9)
    else:
        judged = Goal(f"{goal}: 95 MB/s of a link of 100", "mdsx", at_least=0.95 * link["rate"] / 1e6)
    return Subject(
        name=f"s3-epoch-{name}",
        title=f"tokens: cold epoch from S3, {title}",
        figure="MB/s",
        contestants=(ours, *bare_ones, *peers),
        goals=(judged,),
        limit=300.0,
        note="From the dataset's construction to the last batch, with an empty cache that holds all of it. With shards "
        "of 64 MiB the dataset is one shuffle block, and little of it can be read before its last shard arrives; with "
        "4 MiB it is several blocks long.",
    )


def _first_batch(name: str, title: str, data: dict[str, Any], compressed: bool = False) -> Subject:
    first: dict[str, Any] = {"samples": _BATCH, "batches": 1, "compressed": compressed}
    ours = _driven("mdsx", data, _FAR, **first)
    slow = _driven("mdsx", data, {**_FAR, "rtt": 0.5}, "500 ms", **first)
    goal = f"first batch from S3, {title}"
    return Subject(
        name=f"s3-first-{name}",
        title=f"tokens: first batch from S3, cold, {title}, 50 ms, 100 MB/s",
        figure="s",
        contestants=(ours, slow, *(_driven(peer, data, _FAR, **first) for peer in _PEERS)),
        goals=(
            Goal(f"{goal}: under 0.5 s", "mdsx", at_most=0.5),
            Goal(f"{goal}: under 5 round trips", slow.name, at_most=4, figure="round trips"),
        ),
        note="From the dataset's construction on, in a fresh process, after all imports; full shuffle. Round trips are "
        "counted on a link of 500 ms, so that requests which are merely sent slowly do not count as if they waited.",
    )


def _driven(
    loader: str, data: dict[str, Any], link: dict[str, Any], words: str = "", compressed: bool = False, **how: Any
) -> Contestant:
    written: dict[str, Any] = {"compression": _CODECS[loader]} if compressed else {}
    if loader == "litdata" and not compressed:
        written, how = TOKENS_LOADER, how | TOKENS_LOADER
    made = call(prepare, loader, workload="tokens", **data, **written)
    return contestant(loader, read, words, made, link=link, **how)


def read(peer: Peer, data: str, link: dict[str, Any], samples: int, batches: int | None = None, **how: Any) -> Figures:
    """The first batches of an epoch, or all, from creating the dataset on; the cache is empty and holds all of it."""
    reading = _reading(data, **how)

    def work() -> None:
        found: Any = islice(peer.loader(reading), batches)
        seen = sum(len(batch["tokens"] if isinstance(batch, dict) else batch) for batch in found)
        if seen != samples:
            raise ValueError(f"{seen} samples came, of {samples}")

    return _over_link(data, link, work)


def bare(data: str, link: dict[str, Any], threads: int) -> Figures:
    """All objects of mdsx's dataset, `threads` at a time, one GET each, by a client like mdsx's own."""
    source, target = Path(data), tempfile.mkdtemp()

    def epoch() -> None:
        checksums = dict.fromkeys(("request_checksum_calculation", "response_checksum_validation"), "when_required")
        client = boto3.client("s3", config=config.Config(max_pool_connections=64, **checksums))

        def store(name: str) -> None:
            body = client.get_object(Bucket=source.parent.name, Key=f"{source.name}/{name}")["Body"]
            with Path(target, name).open("wb", buffering=0) as file:
                while chunk := body.read(_CHUNK):
                    file.write(chunk)

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(store, sorted(os.listdir(source))))

    return _over_link(data, link, epoch)


def _resume(data: dict[str, Any]) -> Subject:
    made = {
        f"{samples:,} samples": call(prepare, "mdsx", workload="tokens", samples=samples, size=data["size"])
        for samples in (data["samples"] // 10, data["samples"])
    }
    return Subject(
        name="s3-resume",
        title="tokens: resume at 90 % of an epoch, shards in the cache",
        figure="s",
        contestants=[contestant("mdsx", resume, name, each) for name, each in made.items()],
        goals=[Goal(f"resume at 90 %, {name}: under 0.3 s", f"mdsx, {name}", at_most=0.3) for name in made],
    )


def resume(peer: Peer, data: str) -> Figures:
    """New dataset and loader, the state loaded, the first batch at 90 % of an epoch; its shards are in the cache."""
    reading = _reading(data)
    with served(data):
        before: Any = peer.loader(reading)
        state = before.state_dict()
        state["position"] = int(len(before) * 0.9) * _BATCH
        before.load_state_dict(state)
        batches = list(islice(before, _READ_BEFORE))  # so that all shards come
        expected = batches[0]["tokens"]
        del before, batches

        def again() -> Any:
            loader: Any = peer.loader(reading)
            loader.load_state_dict(state)
            return next(iter(loader))["tokens"]

        found, took = timed(again)
        if not found.equal(expected):
            raise ValueError("another batch came")
        return {"s": took}


def url_of(data: str) -> str:
    return f"s3://{Path(data).parent.name}/{Path(data).name}"


@contextmanager
def served(data: str, *, rtt: float = 0.0, rate: float | None = None) -> Iterator[Link]:
    """Serve a dataset to boto3 in this process and its children, over a link."""
    with S3Server(Path(data).parents[1], checksums=False) as server, Link(server.endpoint, rtt=rtt, rate=rate) as link:
        os.environ.update(server.env())
        os.environ["AWS_ENDPOINT_URL"] = os.environ["S3_ENDPOINT_URL"] = link.endpoint
        yield link


def size_of(data: str) -> int:
    return sum(path.stat().st_size for path in Path(data).rglob("*") if path.is_file())


def _over_link(data: str, link: dict[str, Any], work: Callable[[], object]) -> Figures:
    size = size_of(data)
    with served(data, **link) as counted:
        _, took = timed(work)
        counts = counted.counts()
        return {
            "s": took,
            "MB/s": size / took / 1e6,
            "MB received": counts.received / 1e6,
            "round trips": counts.round_trips,
            "requests": counts.requests,
        }


def _reading(data: str, **how: Any) -> Reading:
    return Reading(url_of(data), "tokens", _BATCH, cache=f"{tempfile.mkdtemp()}/cache", **how)
