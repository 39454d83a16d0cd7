"""A cache that holds half of what is read: what is downloaded, and the least that could be. Resuming among many shards.

The least is what eviction by true next use (Belady's MIN) downloads, of whole shards, for the same order of samples.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import mdsx
from mdsx.format import filenames, parse_index
from tools.bench.measure import Figures, timed
from tools.bench.subject import Contestant, Subject
from tools.bench.subjects import alone, call
from tools.bench.subjects.s3 import served, url_of
from tools.misses import least_misses
from tools.scale.made import SAMPLES, make

_SHARDS, _PER_SHARD, _EPOCHS = 50, 20_000, 4
_COLUMNS, _BYTES = {"number": "int64", "rest": "uint8[92]"}, 100
_BATCH = 256
_MANY = 100_000  # shards


def subjects(scale: float) -> list[Subject]:
    samples = max(int(_SHARDS * _PER_SHARD * scale), 50 * _BATCH)

    def half(name: str, weights: list[float]) -> Contestant:
        made = call(prepare_parts, parts=len(weights), samples=samples // len(weights))
        return alone("mdsx", f"mdsx, {name}", halved, made, weights=weights)

    shards = max(int(_MANY * scale), 100)
    resuming = alone("mdsx", "mdsx", resume, call(prepare_many, shards=shards))
    return [
        Subject(
            name="cache-half",
            title=f"{_SHARDS} shards in a cache of half of them: bytes downloaded in an epoch",
            figure="by the dataset",
            more=("the least", "by the least"),
            contestants=[half("one dataset", [1.0]), half("mixture", [0.7, 0.3])],
            limit=120.0,
            note=f"From the second epoch on, of {_EPOCHS}; full shuffle in default blocks, so that a shard is used at "
            "several times. The mixture draws 70 % and 30 % from two datasets. The least: by true next use.",
        ),
        Subject(
            name="resume",
            title=f"resume at 90 % of an epoch among {_MANY:,} shards, local",
            figure="s",
            contestants=[resuming],
            note="A new dataset and loader, the state loaded, until the first batch. All shards are alike.",
        ),
    ]


def prepare_parts(data: str, parts: int, samples: int) -> Figures:
    """Datasets of equal shards, whose samples are numbered through."""
    for part in range(parts):
        numbers = np.arange(part * samples, (part + 1) * samples)
        size = samples * parts // _SHARDS * _BYTES
        with mdsx.Writer(Path(data, str(part)), _COLUMNS, shard_size=size) as out:
            out.write_batch({"number": numbers, "rest": np.zeros((samples, _BYTES - 8), np.uint8)})
    return {}


def halved(data: str, weights: list[float]) -> Figures:
    """Epochs with an empty cache of half the bytes; the bytes of the link count."""
    from mdsx.torch import StreamingDataLoader, StreamingDataset

    indexes = [parse_index(Path(data, str(part), filenames.INDEX).read_bytes()) for part in range(len(weights))]
    sizes = np.concatenate([each.sizes for each in indexes])
    ends = np.cumsum(np.concatenate([each.counts for each in indexes]))
    whole, received, used = int(sizes.sum()), [0], list[list[NDArray[np.int64]]]()
    with served(data) as (_, link):
        urls = [f"{url_of(data)}/{part}" for part in range(len(weights))]
        source: Any = mdsx.Mixture(list(zip(urls, weights, strict=True))) if len(weights) > 1 else urls[0]
        cache = mdsx.Cache(f"{tempfile.mkdtemp()}/cache", limit=max(whole // 2, int(sizes.max())))
        loader = StreamingDataLoader(StreamingDataset(source, seed=7, cache=cache), batch_size=_BATCH)
        for _ in range(_EPOCHS):
            numbers = (batch["number"].numpy() for batch in loader)
            used.append([np.unique(np.searchsorted(ends, each, "right")) for each in numbers])
            received.append(link.counts().received)
    steps = [step.tolist() for epoch in used for step in epoch]
    misses = least_misses(steps, int(whole // 2 // sizes.max()))
    later = sum(misses[len(used[0]) :]) * sizes.mean()
    least, downloaded = (each / (_EPOCHS - 1) / whole for each in (later, received[-1] - received[1]))
    return {"by the dataset": downloaded, "the least": least, "by the least": downloaded / least if least else 1.0}


def prepare_many(data: str, shards: int) -> Figures:
    """A dataset of many equal shards; their files are links to a few."""
    made = make(SAMPLES)
    Path(data, filenames.INDEX).write_bytes(made.part(shards))
    first = Path()
    for number in range(shards):
        path = Path(data, filenames.shard(number, compressed=False))
        if number % 10_000:
            os.link(first, path)
        else:
            first = path
            path.write_bytes(made.shard)
    return {}


def resume(data: str) -> Figures:
    """New dataset and loader, the state loaded, the first batch at 90 % of an epoch."""
    from mdsx.torch import StreamingDataLoader, StreamingDataset

    def loader() -> Any:
        return StreamingDataLoader(StreamingDataset(data, seed=7), batch_size=32)

    before = loader()
    state = before.state_dict()
    state["position"] = int(len(before) * 0.9) * 32
    before.load_state_dict(state)
    expected = next(iter(before))["id"]
    del before

    def again() -> Any:
        after = loader()
        after.load_state_dict(state)
        return next(iter(after))["id"]

    found, took = timed(again)
    if not found.equal(expected):
        raise ValueError("another batch came")
    return {"s": took}
