"""Writing, sample by sample and in batches; mdsx with checksums and an fsync of each shard, as no peer does."""

from __future__ import annotations

from tools.bench.subject import Goal, Subject
from tools.bench.subjects import TOKENS_LOADER, Workload, limit, workloads, writes


def subjects(scale: float) -> list[Subject]:
    return [_write(workload) for workload in workloads(scale)]


def _write(workload: Workload) -> Subject:
    processes = {1: "1 process", 2: "2 processes"}
    one = [writes("litdata", "write", how, workload, workers=n) for n, how in processes.items()]
    one += [writes(loader, "write", "", workload) for loader in ("mosaicml", "webdataset")]
    one.append(writes("grain", "write", "ArrayRecord", workload))
    if workload.name == "tokens":
        for n, how in processes.items():
            one.append(writes("litdata", "write", f"TokensLoader, {how}", workload, workers=n, **TOKENS_LOADER))
    batches = writes("huggingface", "write_batches", "batches", workload)
    mine = writes("mdsx", "write", "one by one", workload)
    my_batches = writes("mdsx", "write_batches", "batches", workload)
    disk = limit("write() and fsync", "write", **workload.arguments)
    checksum = limit("XXH3-128", "checksum", **workload.arguments)
    by_one = tuple(each.name for each in one)
    text = f"{workload.name}, write"
    goals = [
        Goal(f"{text} one by one: 2 x the best peer that does", mine.name, by_one, at_least=2),
        Goal(f"{text} in batches: 5 x the best peer", my_batches.name, (*by_one, batches.name), at_least=5),
    ]
    if workload.name == "tokens":
        goal = "tokens, write in batches: half of write() alone"
        goals.append(Goal(goal, my_batches.name, (disk.name,), at_least=0.5))
    contestants = (mine, my_batches, *one, batches, disk, checksum)
    return Subject(f"write-{workload.name}", f"{workload.name}: write", contestants, goals)
