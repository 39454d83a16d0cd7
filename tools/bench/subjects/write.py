"""Writing, sample by sample and in batches; checksums on, and every shard synced to disk, which no peer does."""

from __future__ import annotations

from tools.bench.subject import Goal, Subject
from tools.bench.subjects.common import TOKENS_LOADER, Workload, limit, workloads, writes


def subjects(scale: float) -> tuple[Subject, ...]:
    return tuple(_write(workload) for workload in workloads(scale))


def _write(workload: Workload) -> Subject:
    one = [
        writes("litdata", "write", "1 process", workload, workers=1),
        writes("litdata", "write", "2 processes", workload, workers=2),
        writes("mosaicml", "write", "", workload),
        writes("webdataset", "write", "", workload),
        writes("grain", "write", "ArrayRecord", workload),
    ]
    if workload.name == "tokens":
        one.append(writes("litdata", "write", "TokensLoader, 1 process", workload, workers=1, **TOKENS_LOADER))
        one.append(writes("litdata", "write", "TokensLoader, 2 processes", workload, workers=2, **TOKENS_LOADER))
    batches = [writes("huggingface", "write_batches", "batches", workload)]
    ours = [
        writes("mdsx", "write", "one by one", workload),
        writes("mdsx", "write_batches", "batches", workload),
    ]
    limits = [
        limit("write() and fsync", "write", **workload.arguments),
        limit("XXH3-128", "checksum", **workload.arguments),
    ]
    by_one = tuple(each.name for each in one)
    by_batch = by_one + tuple(each.name for each in batches)
    text = f"{workload.name}, write"
    goals = [
        Goal(f"{text} one by one: 2 x the best peer that does", ours[0].name, by_one, at_least=2),
        Goal(f"{text} in batches: 5 x the best peer", ours[1].name, by_batch, at_least=5),
    ]
    if workload.name == "tokens":
        goal = "tokens, write in batches: half of write() alone"
        goals.append(Goal(goal, ours[1].name, ("write() and fsync",), at_least=0.5))
    return Subject(
        name=f"write-{workload.name}",
        title=f"{workload.name}: write",
        figure="samples/s",
        unit="samples/s",
        contestants=(*ours, *one, *batches, *limits),
        goals=tuple(goals),
    )
