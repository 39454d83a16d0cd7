"""Writing: sample by sample, in batches, and Arrow tables. mdsx alone writes checksums and syncs each shard to disk."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import mdsx
from tools.bench.measure import Figures, timed
from tools.bench.subject import Contestant, Goal, Subject
from tools.bench.subjects import TOKENS_LOADER, Workload, alone, contestant, limits, workloads
from tools.peers import Layout, Lazy, Peer
from tools.peers.huggingface import as_arrow
from tools.workloads import FEW, columns_of, sample

pyarrow, parquet = Lazy("pyarrow"), Lazy("pyarrow.parquet")


def subjects(scale: float) -> list[Subject]:
    found = [_subject(workload) for workload in workloads(scale)]
    return found + [_arrow(workload) for workload in workloads(scale) if workload.name in ("tokens", "text")]


def _subject(workload: Workload) -> Subject:
    def writes(loader: str, how: str = "", **arguments: Any) -> Contestant:
        return contestant(loader, write, how, **workload.arguments, **arguments)

    processes = {1: "1 process", 2: "2 processes"}
    mine, my_batches = writes("mdsx", "one by one"), writes("mdsx", "batches", batches=True)
    one = [writes("litdata", how, workers=n) for n, how in processes.items()]
    one += [writes("mosaicml"), writes("webdataset"), writes("grain", "ArrayRecord")]
    if workload.name == "tokens":
        one += [writes("litdata", f"TokensLoader, {how}", workers=n, **TOKENS_LOADER) for n, how in processes.items()]
    batches = writes("huggingface", "batches", batches=True)
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


def _arrow(workload: Workload) -> Subject:
    mine = alone("mdsx", "mdsx, Arrow table", write_table, **workload.arguments, to="mdsx")
    batches = contestant("mdsx", write, "batches", **workload.arguments, batches=True)
    parquet = alone("peer", "Parquet, Arrow table", write_table, **workload.arguments, to="parquet")
    disk = alone("limit", "write() and fsync", limits.write, **workload.arguments)
    text = f"{workload.name}, write an Arrow table"
    if workload.name == "text":
        goal = Goal(f"{text}: 4 x pyarrow.parquet", mine.name, (parquet.name,), at_least=4)
    else:
        goal = Goal(f"{text}: as fast as NumPy arrays, within 5 %", mine.name, (batches.name,), at_least=0.95)
    contestants = (mine, batches, parquet, disk)
    return Subject(f"arrow-{workload.name}", f"{workload.name}: write an Arrow table", contestants, [goal])


def write_table(workload: str, samples: int, to: str) -> Figures:
    """Write an Arrow table that is in memory: with one `write_batch`, or with Parquet's own writer and its defaults."""
    columns = columns_of(list(map(partial(sample, workload), range(samples))))
    table = pyarrow.table({name: as_arrow(values) for name, values in columns.items()})
    columns.clear()

    def run(count: int) -> None:
        directory = Path(tempfile.mkdtemp())
        if to == "parquet":
            parquet.write_table(table[:count], directory / "table.parquet")
            return
        with mdsx.Writer(directory, mdsx.arrow_columns(table)) as out:
            out.write_batch(table[:count])

    run(min(FEW, samples))
    _, took = timed(lambda: run(samples))
    return {"samples/s": samples / took}


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
