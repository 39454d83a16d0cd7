"""mdsx over S3, with its defaults: a cold epoch, the first batch, a resume."""

from __future__ import annotations

import time
from itertools import islice
from pathlib import Path
from typing import Any

import boto3  # noqa: F401  mdsx imports it when it is first used

import mdsx
from mdsx.format import build_index, parse_index
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tools.bench import workloads
from tools.bench.contestants import s3_link
from tools.bench.contestants.s3_link import URL, place, served
from tools.bench.measure import Figures

_AT_ONCE = 4096
_LIMIT = "1TB"  # holds all
_READ_BEFORE = 1000  # batches


def prepare(data: str, samples: int, shard_size: str | int, compression: str | None = None) -> Figures:
    """Write tokens."""
    columns = workloads.MDSX_COLUMNS["tokens"]
    with mdsx.Writer(place(data), columns, shard_size=shard_size, compression=compression) as out:
        for first in range(0, samples, _AT_ONCE):
            out.write_batch(workloads.columns("tokens", first, min(first + _AT_ONCE, samples)))
    return {}


def prepare_repeated(data: str, samples: int, shard_size: str, shards: int) -> Figures:
    """A dataset whose index names so many shards, which are all equal: so one of them is all that is stored."""
    prepare(data, samples, shard_size)
    path = place(data) / "index.json"
    index = parse_index(path.read_bytes(), file=str(path))
    entry = index.entry(0)
    entries = [entry._replace(name=f"shard.{number:05}.mdsx") for number in range(shards)]
    path.write_bytes(build_index(index.schema, None, entries))
    return {}


def _loader(scratch: str, batch_size: int, workers: int = 0) -> StreamingDataLoader:
    dataset = StreamingDataset(URL, seed=7, cache=mdsx.Cache(Path(scratch, "cache"), limit=_LIMIT))
    return StreamingDataLoader(dataset, batch_size=batch_size, num_workers=workers, drop_last=False)


def cold_epoch(data: str, scratch: str, samples: int, batch_size: int, rtt: float, rate: float | None) -> Figures:
    """Into an empty cache that holds all of it."""
    return s3_link.cold_epoch(data, rtt, rate, samples, lambda: _loader(scratch, batch_size))


def first_batch(data: str, scratch: str, batch_size: int, rtt: float, rate: float | None, workers: int = 0) -> Figures:
    """With an empty cache."""
    return s3_link.first_batch(data, rtt, rate, lambda: _loader(scratch, batch_size, workers))


def resume(data: str, scratch: str, batch_size: int, part: float) -> Figures:
    """New dataset and loader, the state loaded, the first batch at `part` of an epoch; its shards are in the cache."""
    with served(data):
        before = _loader(scratch, batch_size)
        before.dataset.view.fetch(0)  # where all shards are equal, it is all of them
        state: dict[str, Any] = before.state_dict()
        state["position"] = int(len(before) * part) * batch_size
        before.load_state_dict(state)
        expected = list(islice(before, _READ_BEFORE))[0]["tokens"]  # noqa: RUF015  all are read, so that all shards come
        del before
        started = time.perf_counter()
        loader = _loader(scratch, batch_size)
        loader.load_state_dict(state)
        found = next(iter(loader))["tokens"]
        took = time.perf_counter() - started
        if not found.equal(expected):
            raise ValueError("another batch came")
        return {"s": took}
