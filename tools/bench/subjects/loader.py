"""The shuffled loader: 0 and 2 workers, batches of 32 and 512; JPEGs decoded in it; its memory, its idle CPU."""

from __future__ import annotations

from tools.bench.subject import Contestant, Goal, Subject
from tools.bench.subjects.common import PEERS, TOKENS_LOADER, Workload, limit, names, reads, workloads

_BATCH = 32


def subjects(scale: float) -> tuple[Subject, ...]:
    sizes = {each.name: each for each in workloads(scale)}
    return (
        *(_loader(workload, batch_size) for workload in sizes.values() for batch_size in (_BATCH, 512)),
        _decoding(sizes["images"]),
        *(_memory(sizes[name]) for name in ("tokens", "images")),
        _idle(sizes["text"]),
    )


def _loader(workload: Workload, batch_size: int) -> Subject:
    def driven(
        loader: str, workers: int, words: str = "", prepare: dict[str, bool] | None = None, **more: bool
    ) -> Contestant:
        how = f"{words}{workers} workers"
        return reads(loader, "read", how, workload, prepare, batch_size=least, workers=workers, **more)

    least = min(batch_size, workload.samples // 3)  # several batches, however small the scale
    found = [driven("mdsx", workers) for workers in (0, 2)]
    if workload.name == "text":
        found.append(driven("mdsx", 0, "dicts, ", dicts=True))
    if workload.name == "images":
        found += [driven(loader, 0, "views, ", views=True) for loader in ("mdsx", "litdata")]
    for loader in PEERS:
        found += [driven(loader, workers) for workers in (0, 2)]
        if (loader, workload.name) == ("litdata", "tokens"):
            found += [driven(loader, workers, "TokensLoader, ", TOKENS_LOADER) for workers in (0, 2)]
    found.append(limit("memcpy", "copy", **workload.arguments))
    found.append(limit("memcpy, gather", "gather", **workload.arguments))
    return Subject(
        name=f"loader-{workload.name}-{batch_size}",
        title=f"{workload.name}: shuffled loader, batch {batch_size}",
        figure="samples/s",
        unit="samples/s",
        more=("first batch s",),
        contestants=tuple(found),
        goals=_goals(workload.name, batch_size, found),
    )


def _goals(workload: str, batch_size: int, found: list[Contestant]) -> tuple[Goal, ...]:
    none, two = "mdsx, 0 workers", "mdsx, 2 workers"
    litdata, mosaicml = names(found, "litdata"), names(found, "mosaicml")
    text = f"{workload}, shuffled loader, batch {batch_size}"
    if workload == "tokens":
        with_workers = tuple(name for name in litdata + mosaicml if name.endswith("2 workers"))
        return (
            Goal(f"{text}, 0 workers: 8 x LitData's best", none, litdata, at_least=8),
            Goal(f"{text}, 0 workers: 60 x mosaicml-streaming's best", none, mosaicml, at_least=60),
            Goal(f"{text}, 2 workers: 8 x either with 2 workers", two, with_workers, at_least=8),
            Goal(f"{text}: 2 workers at least 1/1.5 of 0 workers", two, (none,), at_least=1 / 1.5),
        )
    if workload == "text":
        return (
            Goal(f"{text}, columns: 3 x LitData", none, litdata, at_least=3),
            Goal(f"{text}, a dict per sample: 1.5 x LitData", "mdsx, dicts, 0 workers", litdata, at_least=1.5),
        )
    if workload == "images":
        as_bytes = tuple(name for name in litdata if "views" not in name)
        return (
            Goal(f"{text}, as bytes: 2.5 x LitData as bytes", none, as_bytes, at_least=2.5),
            Goal(f"{text}, as views: 10 x LitData", "mdsx, views, 0 workers", litdata, at_least=10),
        )
    return ()


def _decoding(workload: Workload) -> Subject:
    found = (
        reads("mdsx", "read", "0 workers, threads", workload, batch_size=_BATCH, decoded=True),
        *(
            reads(loader, "read", "2 workers", workload, batch_size=_BATCH, workers=2, decoded=True)
            for loader in ("mdsx", "litdata", "mosaicml")
        ),
        limit("decoder, processes", "decoder", samples=workload.samples, processes=True),
        limit("decoder, threads", "decoder", samples=workload.samples, processes=False),
    )
    goal = "JPEGs decoded in the loader: the decoder alone on all cores, less 5 %"
    return Subject(
        name="decode-images",
        title="images: JPEGs decoded in the shuffled loader, batch 32",
        figure="samples/s",
        unit="images/s",
        contestants=found,
        goals=(Goal(goal, "mdsx, 0 workers, threads", ("decoder, processes", "decoder, threads"), at_least=0.95),),
    )


def _memory(workload: Workload) -> Subject:
    found = [
        reads(loader, "read", f"{workers} workers", workload, batch_size=_BATCH, workers=workers, watch=True)
        for loader in ("mdsx", *PEERS)
        for workers in (0, 2)
    ]
    return Subject(
        name=f"memory-{workload.name}",
        title=f"{workload.name}: peak memory of the shuffled loader and its workers, batch {_BATCH}",
        figure="peak rss MiB",
        unit="RSS, MiB",
        more=("peak pss MiB", "peak anonymous MiB"),
        higher_is_better=False,
        contestants=tuple(found),
        note="RSS counts what processes share in each of them, and mapped files; PSS counts it once; anonymous is "
        "without mapped files. Python and PyTorch are in it.",
    )


def _idle(workload: Workload) -> Subject:
    found = [
        reads(loader, "idle", f"{workers} workers", workload, workers=workers)
        for loader in ("mdsx", *PEERS)
        for workers in (0, 2)
    ]
    return Subject(
        name="idle",
        title="CPU seconds of a loader in 5 s in which nobody reads from it",
        figure="cpu s",
        unit="CPU s",
        higher_is_better=False,
        contestants=tuple(found),
        goals=tuple(
            Goal(f"idle loader, {workers} workers: no CPU", f"mdsx, {workers} workers", at_most=0.02)
            for workers in (0, 2)
        ),
    )
