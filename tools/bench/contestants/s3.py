"""Any loader over S3: a cold epoch, the first batch, a resume of mdsx, and a bare downloader as the limit.

Each measurement starts a local server with a link in front of it before the clock starts. `prepare` writes the dataset
to `place(data)`, which is then `URL`. The workload is *tokens*.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from tools.bench.measure import Figures
from tools.link import Link
from tools.peers import Layout, Reading, ready
from tools.s3_server import S3Server

_BUCKET, _PREFIX = "bucket", "set"
URL = f"s3://{_BUCKET}/{_PREFIX}"
_CHUNK = 2**20
_READ_BEFORE = 1000  # batches


def place(data: str) -> Path:
    """The directory of the dataset, created if it does not exist."""
    path = Path(data, _BUCKET, _PREFIX)
    path.mkdir(parents=True, exist_ok=True)
    return path


def size_of(directory: Path) -> int:
    """Bytes of all files below a directory."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


@contextmanager
def served(data: str, *, rtt: float = 0.0, rate: float | None = None) -> Iterator[Link]:
    """Serve `place(data)` as `URL` to boto3 in this process and its children, over a link."""
    with S3Server(data, checksums=False) as server, Link(server.endpoint, rtt=rtt, rate=rate) as link:
        os.environ.update(server.env())
        os.environ["AWS_ENDPOINT_URL"] = os.environ["S3_ENDPOINT_URL"] = link.endpoint
        yield link


def prepare(loader: str, data: str, samples: int, shard_size: int, **how: Any) -> Figures:
    """Write tokens."""
    ready(loader, torch=False).store(place(data), "tokens", samples, Layout(size=shard_size, **how))
    return {}


def prepare_repeated(data: str, samples: int, shard_size: int, shards: int) -> Figures:
    """Make a dataset whose index names many equal shards. Only one of them is stored."""
    from mdsx.format import build_index, parse_index

    prepare("mdsx", data, samples, shard_size)
    path = place(data) / "index.json"
    index = parse_index(path.read_bytes(), file=str(path))
    entries = [index.entry(0)._replace(name=f"shard.{number:05}.mdsx") for number in range(shards)]
    path.write_bytes(build_index(index.schema, None, entries))
    return {}


def cold_epoch(
    loader: str, data: str, scratch: str, samples: int, batch_size: int, rtt: float, rate: float | None, **how: Any
) -> Figures:
    """The first epoch into an empty cache that holds all of it. MB/s are of the stored bytes."""
    peer, reading = ready(loader), _reading(scratch, batch_size, **how)

    def epoch() -> None:
        seen = sum(map(_rows, peer.loader(reading)))
        if seen != samples:
            raise ValueError(f"{seen} samples came, of {samples}")

    return _timed(data, rtt, rate, epoch)


def bare(data: str, scratch: str, rtt: float, rate: float | None, threads: int) -> Figures:
    """All objects of mdsx's dataset, `threads` at a time, one GET each, by a client like mdsx's own."""
    import boto3
    from botocore.config import Config

    names = sorted(path.name for path in place(data).iterdir())

    def epoch() -> None:
        config = Config(
            max_pool_connections=64,
            retries={"mode": "standard", "total_max_attempts": 5},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        client = boto3.session.Session().client("s3", config=config)

        def store(name: str) -> None:
            body = client.get_object(Bucket=_BUCKET, Key=f"{_PREFIX}/{name}")["Body"]
            with Path(scratch, name).open("wb", buffering=0) as file:
                while chunk := body.read(_CHUNK):
                    file.write(chunk)

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(store, names))

    return _timed(data, rtt, rate, epoch)


def first_batch(
    loader: str, data: str, scratch: str, batch_size: int, rtt: float, rate: float | None, **how: Any
) -> Figures:
    """The first batch with an empty cache and no connections, measured from creating the dataset."""
    peer, reading = ready(loader), _reading(scratch, batch_size, **how)
    return _timed(data, rtt, rate, lambda: _rows(next(iter(peer.loader(reading)))))


def _timed(data: str, rtt: float, rate: float | None, work: Callable[[], object]) -> Figures:
    size = size_of(place(data))
    with served(data, rtt=rtt, rate=rate) as link:
        processor, started = time.process_time(), time.perf_counter()
        work()
        took = time.perf_counter() - started
        counts = link.counts()
        return {
            "s": took,
            "MB/s": size / took / 1e6,
            "received": counts.received / size,
            "MB received": counts.received / 1e6,
            "round trips": counts.round_trips,
            "requests": counts.requests,
            "cpu s": time.process_time() - processor,
        }


def resume(data: str, scratch: str, batch_size: int, part: float) -> Figures:
    """New dataset and loader, the state loaded, the first batch at `part` of an epoch; its shards are in the cache."""
    peer, reading = ready("mdsx"), _reading(scratch, batch_size)
    with served(data):
        before = peer.loader(reading)
        before.dataset._data.view.fetch(0, needs={})  # if all shards are equal, this is all of them
        state: dict[str, Any] = before.state_dict()
        state["position"] = int(len(before) * part) * batch_size
        before.load_state_dict(state)
        batches: Iterable[Any] = list(islice(before, _READ_BEFORE))  # so that all shards come
        expected = next(iter(batches))["tokens"]
        del before, batches
        started = time.perf_counter()
        loader = peer.loader(reading)
        loader.load_state_dict(state)
        found = next(iter(loader))["tokens"]
        took = time.perf_counter() - started
        if not found.equal(expected):
            raise ValueError("another batch came")
        return {"s": took}


def _reading(scratch: str, batch_size: int, **how: Any) -> Reading:
    return Reading(URL, "tokens", batch_size, cache=str(Path(scratch, "cache")), **how)


def _rows(batch: Any) -> int:
    """The number of samples in a batch of tokens."""
    return len(batch["tokens"] if isinstance(batch, dict) else batch)
