"""Writing: sample by sample, and in batches. mdsx alone writes checksums and syncs each shard to disk."""

from __future__ import annotations

import pickle
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tools.bench import limits
from tools.bench.measure import Figures, timed
from tools.bench.subject import Contestant, Subject
from tools.bench.subjects import PEERS, TOKENS_LOADER, Workload, alone, call, contestant, workloads
from tools.peers import Layout, Peer, peer
from tools.workloads import FEW, arrow_of, columns_of, sample

_FORKS: dict[str, Any] = {"workers": 2}  # both cores, where writing starts processes


def subjects(scale: float) -> list[Subject]:
    return [_subject(workload) for workload in workloads(scale)]


def _subject(workload: Workload) -> Subject:
    made = call(prepare_rows, **workload.arguments)

    def writes(loader: str, how: str = "", **arguments: Any) -> Contestant:
        return contestant(loader, write, how, made, **workload.arguments, **arguments)

    def parquet(how: str, **arguments: Any) -> Contestant:
        return replace(writes("huggingface", how, batches=True, **arguments), name=f"Parquet, {how}")

    mine = [writes("mdsx", "one by one"), writes("mdsx", "batches", batches=True)]
    mine.append(writes("mdsx", "Arrow", batches=True, arrow=True))
    by_one = [loader for loader in PEERS if loader != "lancedb"]
    peers = [writes(loader, **(_FORKS if peer(loader).forks_to_write else {})) for loader in by_one]
    if workload.name == "tokens":
        peers += [writes("litdata", "TokensLoader", **_FORKS, **TOKENS_LOADER), writes("levanter")]
    peers += [writes("lancedb", "batches", batches=True), parquet("batches"), parquet("Arrow", arrow=True)]
    disk = alone("limit", "write() and fsync", limits.write, **workload.arguments)
    return Subject(
        f"write-{workload.name}",
        f"{workload.name}: write",
        [*mine, *peers, disk],
        note="Batches are of arrays and lists, 1,000 samples each, or slices of Arrow arrays. LitData has 2 processes.",
    )


def prepare_rows(data: str, workload: str, samples: int) -> Figures:
    """All samples in a file, since making them takes longer than writing them."""
    Path(data, "rows").write_bytes(pickle.dumps(list(map(partial(sample, workload), range(samples)))))
    return {}


def write(
    peer: Peer, data: str, workload: str, samples: int, batches: bool = False, arrow: bool = False, **layout: Any
) -> Figures:
    """Write samples one by one, or columns in batches, after a warm-up. Starting processes counts."""
    rows = pickle.loads(Path(data, "rows").read_bytes())
    batch = columns_of(rows) if batches else {}
    if arrow:
        batch = {name: arrow_of(values) for name, values in batch.items()}

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
