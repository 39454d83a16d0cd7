"""An index of as many shards as there may be: written, opened, read to the first batch, and continued in the middle.

A process is one rank of 512, on a node of 8, as in the run that `plan` computes. The dataset has 10^10 samples.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

import mdsx
from mdsx.format import MAX_SHARDS, filenames, parse_index
from mdsx.sizes import format_size
from tools.pages import table
from tools.processes import free_port, torchrun_environment
from tools.scale.made import make
from tools.scale.measured import Figures, measured, own_bytes, peak
from tools.scale.server import MadeServer

SAMPLES = 10**10
NODES, RANKS, WORKERS, BATCH = 64, 8, 4, 16
SHARDS = (100_000, 931_359, MAX_SHARDS)
_BUILT = ["shards", "index", "build", "write", "parse", "memory"]
_OPENED = ["shards", "workers", "`Dataset`", "first batch", "continued in the middle", "state"]
_OPENED += ["most memory of the rank", "of a worker", "a worker's own", f"a node's {RANKS} ranks"]


def sections(share: float = 1.0, sizes: Sequence[int] = SHARDS) -> Iterator[tuple[str, str]]:
    built, opened = [], []
    for shards in (max(int(shards * share), 64) for shards in sizes):
        each = SAMPLES // MAX_SHARDS
        figures = measured("tools.scale.index:build", shards=shards, samples=each)
        built.append([f"{shards:,}", format_size(figures.result["bytes"]), *_times(figures)])
        yield "build", table(_BUILT, built, right=range(6))
        with MadeServer(1, shards, index=True, samples=each) as server:
            for workers in (0, WORKERS):
                found = measured("tools.scale.index:rank", server, url=server.url, workers=workers)
                opened.append([f"{shards:,}", f"{workers}", *_opened(found)])
                yield "open", table(_OPENED, opened, right=range(10))


def _times(figures: Figures) -> list[str]:
    found = figures.result
    return [*(f"{found[name]:.1f} s" for name in ("build", "write", "parse")), format_size(figures.memory)]


def _opened(figures: Figures) -> list[str]:
    found = figures.result
    times = [f"{found[name]:.1f} s" for name in ("open", "first", "resume")]
    workers = [format_size(found[name]) if found[name] else "" for name in ("worker", "own")]
    node = RANKS * (found["rank"] + WORKERS * found["own"])  # workers share the rest with their rank
    return [*times, f"{found['state']} bytes", format_size(found["rank"]), *workers, format_size(node)]


def build(shards: int, samples: int) -> dict[str, float]:
    """Build, write and parse an index of one writer; seconds of processor time, and bytes."""
    made = make(samples)
    with TemporaryDirectory() as directory:
        path = Path(directory, filenames.INDEX)
        began = time.process_time()
        data = made.part(shards)
        done = time.process_time()
        path.write_bytes(data)
        written = time.process_time()
        index = parse_index(data)
        parsed = time.process_time()
        assert len(index.counts) == shards
        return {"bytes": len(data), "build": done - began, "write": written - done, "parse": parsed - written}


def rank(url: str, workers: int) -> dict[str, Any]:
    """Read as a rank of the run does, up to the first batch; then continue in the middle of the epoch.

    Seconds are of processor time, of the rank and its workers."""
    os.environ.update(torchrun_environment(3, NODES * RANKS, free_port()), LOCAL_RANK="3", LOCAL_WORLD_SIZE=str(RANKS))
    from mdsx.torch import StreamingDataLoader, StreamingDataset

    with TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        began = _spent()
        data = StreamingDataset(
            url, seed=1, shuffle=mdsx.Shuffle(lanes=NODES * RANKS), cache=mdsx.Cache(cache, limit="1GB")
        )
        opened = _spent()
        loader = StreamingDataLoader(data, batch_size=BATCH, num_workers=workers)
        batches: Any = iter(loader)
        assert len(next(batches)["id"]) == BATCH
        first = _spent()
        found = {"open": opened - began, "first": first - opened, "state": len(json.dumps(loader.state_dict()))}
        children = psutil.Process().children()
        found |= {
            "worker": max((peak(child.pid) for child in children), default=0),
            "own": max(map(own_bytes, children), default=0),
        }
        state = loader.state_dict()
        middle = {**state, "position": state["epoch_samples"] // 2}
        batches.close()
        began = _spent()
        loader.load_state_dict(middle)
        batches = iter(loader)  # kept, so that its workers live and their time counts
        assert len(next(batches)["id"]) == BATCH
        return found | {"resume": _spent() - began, "rank": peak()}


def _spent() -> float:
    """Return the seconds of processor time that this process and its workers have taken."""
    this = psutil.Process()
    return sum(sum(process.cpu_times()[:2]) for process in (this, *this.children()))
