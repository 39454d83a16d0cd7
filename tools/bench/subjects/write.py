"""Writing, sample by sample and in batches; mdsx with checksums and an fsync of each shard, as no peer does."""

from __future__ import annotations

from tools.bench.subject import Goal, Subject
from tools.bench.subjects.common import TOKENS_LOADER, Workload, limit, workloads, writes


def subjects(scale: float) -> tuple[Subject, ...]:
    return tuple(_write(workload) for workload in workloads(scale))


def _write(workload: Workload) -> Subject:
    one = [writes("litdata", "write", f"{n} process{'es' * (n > 1)}", workload, workers=n) for n in (1, 2)]
    one += [writes(loader, "write", "", workload) for loader in ("mosaicml", "webdataset")]
    one.append(writes("grain", "write", "ArrayRecord", workload))
    if workload.name == "tokens":
        for n in (1, 2):
            how = f"TokensLoader, {n} process{'es' * (n > 1)}"
            one.append(writes("litdata", "write", how, workload, workers=n, **TOKENS_LOADER))
    batches = [writes("huggingface", "write_batches", "batches", workload)]
    ours = [
        writes("mdsx", "write", "one by one", workload),
        writes("mdsx", "write_batches", "batches", workload),
    ]
    limits = [limit("write() and fsync", "write", **workload.arguments)]
    limits.append(limit("XXH3-128", "checksum", **workload.arguments))
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
