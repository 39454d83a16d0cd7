"""From S3: cold epochs and first batches over links. The workload is *tokens*.

Each measurement starts a local server, with the link of tools/link.py in front of it, before the clock starts.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import xxhash

from tools.bench.measure import Figures, cpu_seconds, timed
from tools.bench.subject import Contestant, Subject
from tools.bench.subjects import TOKENS_LOADER, alone, call, contestant, prepare
from tools.link import Link
from tools.peers import Lazy, Peer, Reading, peer
from tools.servers.s3 import S3Server

boto3, config = Lazy("boto3"), Lazy("botocore.config")

_NEAR: dict[str, Any] = {"rtt": 0.0, "rate": None}
_FAR: dict[str, Any] = {"rtt": 0.05, "rate": 100e6}
_THREADS = (4, 8)
_PEERS = ("mosaicml", "litdata", "lancedb")
_CODECS = {"mdsx": "zstd", "mosaicml": "zstd:3"}
_BATCH = 32
_CHUNK = 2**20


def subjects(scale: float) -> list[Subject]:
    data = {"samples": int(2**18 * scale), "size": 2**26 if scale > 0.5 else 2**22}
    blocks = {**data, "size": 2**22}
    return [
        _cold_epoch("near", "no latency", _NEAR, data, peers=True),
        _cold_epoch("near-blocks", "no latency, shards of 4 MiB", _NEAR, blocks),
        _cold_epoch("far", "50 ms, 100 MB/s", _FAR, data),
        _first_batch("plain", "uncompressed", data),
        _first_batch("zstd", "zstd, of data that it halves", data, compressed=True),
    ]


def _cold_epoch(name: str, title: str, link: dict[str, Any], data: dict[str, Any], peers: bool = False) -> Subject:
    near = link["rate"] is None
    ours = [_driven("mdsx", data, link, samples=data["samples"])]
    if near:
        ours.append(_driven("mdsx", data, link, "sequential", samples=data["samples"], shuffle=False))
    ours += [
        alone("limit", f"bare downloader, {threads} threads", bare, ours[0].prepare, link=link, threads=threads)
        for threads in (_THREADS if near else _THREADS[-1:])
    ]
    if peers:
        few = {**data, "samples": data["samples"] // 4}
        ours.append(contestant("s3torchconnector", objects, "", ours[0].prepare, link=link))
        ours += [
            _driven(loader, few, link, samples=few["samples"], workers=peer(loader).best_workers) for loader in _PEERS
        ]
    return Subject(
        name=f"s3-{name}",
        title=f"tokens: cold epoch from S3, {title}",
        figure="MB/s",
        more=("CPU s/GB", "samples/s"),
        contestants=ours,
        limit=120.0,
        note="From the dataset's construction to the last batch, with an empty cache that holds all of it. With shards "
        "of 64 MiB the dataset is one shuffle block, and little of it can be read before its last shard arrives; with "
        "4 MiB it is several blocks long. CPU seconds are the reader's and its children's, without the server and the "
        "link. The bare downloader streams each object to a file and hashes it with XXH3. Peers read a quarter of the "
        "samples; s3torchconnector reads whole objects. LanceDB cannot read from this server: it reads from the local "
        "disk, which is faster.",
    )


def _first_batch(name: str, title: str, data: dict[str, Any], compressed: bool = False) -> Subject:
    first: dict[str, Any] = {"samples": _BATCH, "batches": 1, "compressed": compressed}
    ours = _driven("mdsx", data, _FAR, **first)
    slow = _driven("mdsx", data, {**_FAR, "rtt": 0.5}, "500 ms", **first)
    few = {**data, "samples": data["samples"] // 4}
    remote = (loader for loader in _PEERS if peer(loader).remote and (not compressed or loader in _CODECS))
    peers = [_driven(loader, few, _FAR, **first) for loader in remote]
    return Subject(
        name=f"s3-first-{name}",
        title=f"tokens: first batch from S3, cold, {title}, 50 ms, 100 MB/s",
        figure="s",
        more=("round trips",),
        contestants=(ours, slow, *peers),
        note="From the dataset's construction on, in a fresh process, after all imports; full shuffle. Round trips are "
        "counted on a link of 500 ms, so that requests which are merely sent slowly do not count as if they waited. "
        "The dataset has 1 GiB, the peers' a quarter of it, which is less to wait for.",
    )


def _driven(
    loader: str, data: dict[str, Any], link: dict[str, Any], words: str = "", compressed: bool = False, **how: Any
) -> Contestant:
    written: dict[str, Any] = {"compression": _CODECS[loader]} if compressed else {}
    if loader == "litdata":
        written, how = TOKENS_LOADER, how | TOKENS_LOADER
    made = call(prepare, loader, workload="low-tokens" if compressed else "tokens", **data, **written)
    return contestant(loader, read, words, made, link=link, **how)


def read(peer: Peer, data: str, link: dict[str, Any], samples: int, batches: int | None = None, **how: Any) -> Figures:
    """The first batches of an epoch, or all, from creating the dataset on; the cache is empty and holds all of it."""
    reading = Reading(data, "tokens", _BATCH, **how)
    if peer.remote:
        reading = replace(reading, source=url_of(data), cache=f"{tempfile.mkdtemp()}/cache")

    def work() -> None:
        found: Any = islice(peer.loader(reading), batches)
        seen = sum(len(batch["tokens"] if isinstance(batch, dict) else batch) for batch in found)
        if seen != samples:
            raise ValueError(f"{seen} samples came, of {samples}")

    figures = over_link(data, link, work)
    return {**figures, "samples/s": samples / figures["s"]}


def objects(peer: Peer, data: str, link: dict[str, Any]) -> Figures:
    """All objects of a dataset, each as a whole."""

    def work() -> None:
        found = sum(map(len, peer.loader(Reading(url_of(data), "objects"))))
        if found != size_of(data):
            raise ValueError(f"{found} bytes came, of {size_of(data)}")

    return over_link(data, link, work)


def bare(data: str, link: dict[str, Any], threads: int) -> Figures:
    """All objects of mdsx's dataset, `threads` at a time, one GET each, by a client like mdsx's own, hashed."""
    source, target = Path(data), tempfile.mkdtemp()

    def epoch() -> None:
        checksums = dict.fromkeys(("request_checksum_calculation", "response_checksum_validation"), "when_required")
        client = boto3.client("s3", config=config.Config(max_pool_connections=64, **checksums))

        def store(name: str) -> None:
            body = client.get_object(Bucket=source.parent.name, Key=f"{source.name}/{name}")["Body"]
            found = xxhash.xxh3_128()
            with Path(target, name).open("wb", buffering=0) as file:
                while chunk := body.read(_CHUNK):
                    file.write(chunk)
                    found.update(chunk)
            found.digest()

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(store, sorted(os.listdir(source))))

    return over_link(data, link, epoch)


def url_of(data: str) -> str:
    return f"s3://{Path(data).parent.name}/{Path(data).name}"


@contextmanager
def served(data: str, *, rtt: float = 0.0, rate: float | None = None) -> Iterator[tuple[S3Server, Link]]:
    """Serve a dataset to boto3 in this process and its children, over a link."""
    with S3Server(Path(data).parents[1], checksums=False) as server, Link(server.endpoint, rtt=rtt, rate=rate) as link:
        os.environ.update(server.env())
        os.environ["AWS_ENDPOINT_URL"] = os.environ["S3_ENDPOINT_URL"] = link.endpoint
        yield server, link


def size_of(data: str) -> int:
    return sum(path.stat().st_size for path in Path(data).rglob("*") if path.is_file())


def over_link(data: str, link: dict[str, Any], work: Callable[[], object]) -> Figures:
    size = size_of(data)
    with served(data, **link) as (server, counted):
        others = (server.pid, counted.pid)
        before = cpu_seconds(others)
        _, took = timed(work)
        cpu, counts = cpu_seconds(others) - before, counted.counts()
        return {
            "s": took,
            "MB/s": size / took / 1e6,
            "CPU s/GB": cpu / size * 1e9,
            "MB received": counts.received / 1e6,
            "round trips": counts.round_trips,
            "requests": counts.requests,
        }
