"""Writing: sample by sample, and in batches. mdsx alone writes checksums and syncs each shard to disk."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tools.bench import limits
from tools.bench.measure import Figures, timed
from tools.bench.subject import Contestant, Goal, Subject
from tools.bench.subjects import PEERS, TOKENS_LOADER, Workload, alone, contestant, workloads
from tools.peers import Layout, Peer, peer
from tools.workloads import FEW, columns_of, sample


def subjects(scale: float) -> list[Subject]:
    return [_subject(workload) for workload in workloads(scale)]


def _subject(workload: Workload) -> Subject:
    def writes(loader: str, how: str = "", **arguments: Any) -> Contestant:
        return contestant(loader, write, how, **workload.arguments, **arguments)

    mine, my_batches = writes("mdsx", "one by one"), writes("mdsx", "batches", batches=True)
    one = [writes(loader) for loader in PEERS if not peer(loader).forks_to_write]
    for loader in (loader for loader in PEERS if peer(loader).forks_to_write):
        for n, how in {1: "1 process", 2: "2 processes"}.items():
            one.append(writes(loader, how, workers=n))
            if (loader, workload.name) == ("litdata", "tokens"):
                one.append(writes(loader, f"TokensLoader, {how}", workers=n, **TOKENS_LOADER))
    batches = replace(writes("huggingface", "batches", batches=True), name="Parquet, batches")
    disk = alone("limit", "write() and fsync", limits.write, **workload.arguments)
    checksum = alone("limit", "XXH3-128", limits.memory, work="checksum", **workload.arguments)
    by_one = tuple(each.name for each in one)
    text = f"{workload.name}, write"
    goals = [
        Goal(f"{text} one by one: 2 x the best peer that does", mine.name, by_one, at_least=2),
        Goal(f"{text} in batches: 5 x the best peer", my_batches.name, (*by_one, batches.name), at_least=5),
    ]
    if workload.name == "tokens":
        goals.append(Goal(f"{text} in batches: half of write() alone", my_batches.name, (disk.name,), at_least=0.5))
    contestants = (mine, my_batches, *one, batches, disk, checksum)
    return Subject(f"write-{workload.name}", f"{workload.name}: write", contestants, goals)


def write(peer: Peer, workload: str, samples: int, batches: bool = False, **layout: Any) -> Figures:
    """Write samples one by one, or columns in batches, after a warm-up. Starting processes counts."""
    rows = list(map(partial(sample, workload), range(samples)))
    batch = columns_of(rows) if batches else {}

    def run(count: int) -> None:
        directory = Path(tempfile.mkdtemp())
        if batches:
            peer.write_batches(directory, workload, {name: values[:count] for name, values in batch.items()})
        else:
            peer.write(directory, workload, range(count), rows.__getitem__, Layout(**layout))

    if not peer.forks_to_write:
        run(min(FEW, samples))
    _, took = timed(lambda: run(samples))
    return {"samples/s": samples / took}
