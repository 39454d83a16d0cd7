"""The shuffled loader: 0 and 2 workers, batches of 32 and 512; JPEGs decoded in it; its memory, its idle CPU."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Any

from tools.bench import limits
from tools.bench.measure import Figures, PeakMemory, cpu_seconds, rate_of_epochs
from tools.bench.subject import Contestant, Goal, Subject
from tools.bench.subjects import PEERS, TOKENS_LOADER, Measurement, Workload, alone, names, reads, workloads
from tools.peers import Peer, Reading

BATCH = 32
_NONE, _TWO = "mdsx, 0 workers", "mdsx, 2 workers"


def subjects(scale: float) -> list[Subject]:
    sizes = {each.name: each for each in workloads(scale)}
    return [
        *(_loader(workload, batch_size) for workload in sizes.values() for batch_size in (BATCH, 512)),
        _decoding(sizes["images"]),
        *(_memory(sizes[name]) for name in ("tokens", "images")),
        _idle(sizes["text"]),
    ]


def read(
    peer: Peer, data: str, workload: str, samples: int, batch_size: int = BATCH, watch: bool = False, **how: Any
) -> Figures:
    """The shuffled loader; with `watch`, also its peak memory."""
    with PeakMemory() if watch else nullcontext() as memory:
        batches = peer.loader(Reading(data, workload, batch_size, **how))
        figures = rate_of_epochs(lambda: batches, batch_size, samples)
    return figures | (memory.figures() if memory else {})


def idle(peer: Peer, data: str, workload: str, samples: int, workers: int) -> Figures:  # noqa: ARG001  as `read`
    """Processor seconds of a loader in 5 s without a reader, from two seconds after its first batches on."""
    batches = iter(peer.loader(Reading(data, workload, BATCH, workers)))
    for _ in range(3):
        next(batches, None)
    time.sleep(2.0)  # until prefetching is done
    before = cpu_seconds()
    time.sleep(5.0)
    return {"CPU s": cpu_seconds() - before}


def _workers(
    loader: str, workload: Workload, words: str = "", measurement: Measurement = read, **how: Any
) -> list[Contestant]:
    return [reads(loader, measurement, f"{words}{n} workers", workload, workers=n, **how) for n in (0, 2)]


def _loader(workload: Workload, batch_size: int) -> Subject:
    size: dict[str, Any] = {"batch_size": min(batch_size, workload.samples // 3)}  # several batches at any scale
    found = _workers("mdsx", workload, **size)
    if workload.name == "text":
        found.append(reads("mdsx", read, "dicts, 0 workers", workload, dicts=True, **size))
    if workload.name == "images":
        found += [reads(each, read, "views, 0 workers", workload, views=True, **size) for each in ("mdsx", "litdata")]
    for loader in PEERS:
        found += _workers(loader, workload, **size)
        if (loader, workload.name) == ("litdata", "tokens"):
            found += _workers(loader, workload, "TokensLoader, ", written=TOKENS_LOADER, **size)
    found.append(alone("limit", "memcpy", limits.memory, work="copy", **workload.arguments))
    found.append(alone("limit", "memcpy, gather", limits.memory, work="gather", **workload.arguments))
    return Subject(
        name=f"loader-{workload.name}-{batch_size}",
        title=f"{workload.name}: shuffled loader, batch {batch_size}",
        more=("first batch s",),
        contestants=found,
        goals=_goals(workload.name, f"{workload.name}, shuffled loader, batch {batch_size}", found),
    )


def _goals(workload: str, text: str, found: list[Contestant]) -> list[Goal]:
    litdata, mosaicml = names(found, "litdata"), names(found, "mosaicml")
    as_bytes = tuple(name for name in litdata if "views" not in name)
    with_workers = tuple(name for name in litdata + mosaicml if name.endswith("2 workers"))
    return {
        "tokens": [
            Goal(f"{text}, 0 workers: 8 x LitData's best", _NONE, litdata, at_least=8),
            Goal(f"{text}, 0 workers: 60 x mosaicml-streaming's best", _NONE, mosaicml, at_least=60),
            Goal(f"{text}, 2 workers: 8 x either with 2 workers", _TWO, with_workers, at_least=8),
            Goal(f"{text}: 2 workers at least 1/1.5 of 0 workers", _TWO, (_NONE,), at_least=1 / 1.5),
        ],
        "text": [
            Goal(f"{text}, columns: 3 x LitData", _NONE, litdata, at_least=3),
            Goal(f"{text}, a dict per sample: 1.5 x LitData", "mdsx, dicts, 0 workers", litdata, at_least=1.5),
        ],
        "images": [
            Goal(f"{text}, as bytes: 2.5 x LitData as bytes", _NONE, as_bytes, at_least=2.5),
            Goal(f"{text}, as views: 10 x LitData", "mdsx, views, 0 workers", litdata, at_least=10),
        ],
    }.get(workload, [])


def _decoding(workload: Workload) -> Subject:
    threads = reads("mdsx", read, "0 workers, threads", workload, decoded=True)
    loaders = ("mdsx", "litdata", "mosaicml")
    processes = [reads(loader, read, "2 workers", workload, workers=2, decoded=True) for loader in loaders]
    limit = alone("limit", "decoder", limits.decoder, samples=workload.samples)
    goal = "JPEGs decoded in the loader: the decoder alone on all cores, less 5 %"
    return Subject(
        name="decode-images",
        title="images: JPEGs decoded in the shuffled loader, batch 32",
        unit="images/s",
        contestants=(threads, *processes, limit),
        goals=(Goal(goal, threads.name, (limit.name,), at_least=0.95),),
    )


def _memory(workload: Workload) -> Subject:
    return Subject(
        name=f"memory-{workload.name}",
        title=f"{workload.name}: peak memory of the shuffled loader and its workers, batch {BATCH}",
        figure="peak rss MiB",
        unit="RSS, MiB",
        more=("peak pss MiB", "peak anonymous MiB"),
        contestants=[each for loader in ("mdsx", *PEERS) for each in _workers(loader, workload, watch=True)],
        note="RSS counts what processes share in each of them, and mapped files; PSS counts it once; anonymous is "
        "without mapped files. Python and PyTorch are in it.",
    )


def _idle(workload: Workload) -> Subject:
    return Subject(
        name="idle",
        title="CPU seconds of a loader in 5 s in which nobody reads from it",
        figure="CPU s",
        contestants=[each for loader in ("mdsx", *PEERS) for each in _workers(loader, workload, measurement=idle)],
        goals=[
            Goal(f"idle loader, {name.removeprefix('mdsx, ')}: no CPU", name, at_most=0.02) for name in (_NONE, _TWO)
        ],
    )
