"""An index of as many shards as there may be: written, opened, read to the first batch, and continued in the middle.

A process is one rank of 512, on a node of 8, as in the run that `plan` computes. The dataset has 10^10 samples.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

import mdsx
from mdsx.base.sizes import format_size
from mdsx.format import MAX_SHARDS, filenames, parse_index
from tools.bench.measure import cpu_seconds, memory_of, peak
from tools.pages import table
from tools.processes import Call, free_port, stream, torchrun_environment
from tools.scale.job import Job
from tools.scale.made import make, served

SHARDS = (100_000, 931_359, MAX_SHARDS)
_JOB, _WORKERS = Job(), 4
_LIMIT = 3600.0  # seconds
_BUILT = ["shards", "index", "build", "write", "parse", "memory"]
_OPENED = ["shards", "workers", "`Dataset`", "first batch", "continued in the middle", "state"]
_OPENED += ["most memory of the rank", "of a worker", "a worker's own", f"a node's {_JOB.ranks} ranks"]


def sections(sizes: Sequence[int] = SHARDS) -> Iterator[tuple[str, str]]:
    """Yield the names of the tables and the tables: once more with each new row."""
    built, opened = [], []
    for shards in sizes:
        made = make(_JOB.samples // MAX_SHARDS)
        with tempfile.TemporaryDirectory(prefix="mdsx-scale-") as scratch:
            found = _measured(scratch, "build", folder=scratch, shards=shards)
            times = (f"{found[name]:.1f} s" for name in ("build", "write", "parse"))
            built.append([f"{shards:,}", format_size(found["bytes"]), *times, format_size(found["memory"])])
            yield "build", table(_BUILT, built, right=range(6))
            Path(scratch, filenames.shard(0, compressed=False)).write_bytes(made.shard)
            with served(Path(scratch)) as url:
                for workers in (0, _WORKERS):
                    opened.append(
                        [f"{shards:,}", f"{workers}", *_opened(_measured(scratch, "rank", url=url, workers=workers))]
                    )
                    yield "open", table(_OPENED, opened, right=range(10))


def _measured(scratch: str, function: str, **arguments: Any) -> dict[str, Any]:
    """Call a function of this module in a fresh process. Raise CallFailed."""
    *_, found = stream(Call(f"{__name__}:{function}", arguments), scratch=Path(scratch), limit=_LIMIT)
    return dict(found)


def _opened(found: dict[str, Any]) -> list[str]:
    times = [f"{found[name]:.1f} s" for name in ("open", "first", "resume")]
    workers = [format_size(found[name]) if found[name] else "" for name in ("worker", "own")]
    node = _JOB.ranks * (found["rank"] + _WORKERS * found["own"])  # workers share the rest with their rank
    return [*times, f"{found['state']} bytes", format_size(found["rank"]), *workers, format_size(node)]


def build(folder: str, shards: int) -> dict[str, float]:
    """Build, write and parse an index of one writer; seconds of processor time, and bytes."""
    made, path = make(_JOB.samples // MAX_SHARDS), Path(folder, filenames.INDEX)
    began = time.process_time()
    data = made.part(shards)
    done = time.process_time()
    path.write_bytes(data)
    written = time.process_time()
    index = parse_index(data)
    parsed = time.process_time()
    assert len(index.counts) == shards
    times = {"build": done - began, "write": written - done, "parse": parsed - written}
    return {"bytes": len(data), "memory": peak(), **times}


def rank(url: str, workers: int) -> dict[str, Any]:
    """Read as a rank of the run does, up to the first batch; then continue in the middle of the epoch.

    Seconds are of processor time, of the rank and its workers."""
    os.environ.update(torchrun_environment(3, _JOB.world, free_port()), LOCAL_WORLD_SIZE=str(_JOB.ranks))
    from mdsx.torch import StreamingDataLoader, StreamingDataset

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        began, limited = cpu_seconds(), mdsx.Cache(cache, limit="1GB")
        data = StreamingDataset(url, seed=1, shuffle=mdsx.Shuffle(lanes=_JOB.world), cache=limited)
        opened = cpu_seconds()
        loader = StreamingDataLoader(data, batch_size=_JOB.batch, num_workers=workers)
        batches: Any = iter(loader)
        assert len(next(batches)["id"]) == _JOB.batch
        first, state = cpu_seconds(), loader.state_dict()
        found = {"open": opened - began, "first": first - opened, "state": len(json.dumps(state))}
        children = psutil.Process().children()
        found["worker"] = max((peak(child.pid) for child in children), default=0)
        found["own"] = max((memory_of(child)["private"] for child in children), default=0)
        batches.close()
        began = cpu_seconds()
        loader.load_state_dict({**state, "position": state["epoch_samples"] // 2})
        batches = iter(loader)  # kept, so that its workers live and their time counts
        assert len(next(batches)["id"]) == _JOB.batch
        return found | {"resume": cpu_seconds() - began, "rank": peak()}
