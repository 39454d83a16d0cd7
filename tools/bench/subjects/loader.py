"""The shuffled loader: its rate, on 1 and 2 ranks; its first epochs, its memory, its idle CPU."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import median
from typing import Any

import psutil

from tools.bench import limits
from tools.bench.measure import Figures, PeakAnonymous, cpu_seconds, rate_of_epochs
from tools.bench.subject import Contestant, Subject
from tools.bench.subjects import PEERS, TOKENS_LOADER, Measurement, Workload, alone, best_workers, reads, workloads
from tools.peers import Peer, Reading, ready
from tools.processes import free_port, torchrun_environment

BATCH = 32
_EPOCHS = 5
_IDLE = 3.0  # seconds
_barrier: Any  # of the ranks


def subjects(scale: float) -> list[Subject]:
    sizes = {each.name: each for each in workloads(scale)}
    return [
        *(_loader(workload, BATCH) for workload in sizes.values()),
        _loader(sizes["tokens"], 512),
        _ranks(sizes["tokens"]),
        *(_epochs(sizes[name]) for name in ("tokens", "text")),
        _memory(sizes["tokens"]),
        _idle(sizes["text"]),
    ]


def read(peer: Peer, data: str, workload: str, samples: int, batch_size: int = BATCH, **how: Any) -> Figures:
    """The rate of the shuffled loader."""
    batches = peer.loader(Reading(data, workload, batch_size, **how))
    return rate_of_epochs(lambda: batches, batch_size, samples)


def ranks(peer: Peer, data: str, workload: str, samples: int, world: int) -> Figures:
    """The samples a second of all ranks together, each in a process of its own."""
    context, port = get_context("spawn"), free_port()
    barrier = context.Barrier(world)
    with ProcessPoolExecutor(world, context, _meet_at, (barrier,)) as pool:
        found = [pool.submit(_rank, peer.name, rank, world, port, data, workload, samples) for rank in range(world)]
        return {"samples/s": sum(each.result() for each in found)}


def _meet_at(barrier: Any) -> None:
    global _barrier
    _barrier = barrier


def _rank(loader: str, rank: int, world: int, port: int, data: str, workload: str, samples: int) -> float:
    os.environ.update(torchrun_environment(rank, world, port))
    batches = ready(loader).loader(Reading(data, workload, BATCH))
    _barrier.wait()
    return float(rate_of_epochs(lambda: batches, BATCH, samples // world)["samples/s"])


def epochs(peer: Peer, data: str, workload: str, samples: int, **how: Any) -> Figures:
    """The first epochs of a fresh process, from creating the dataset on."""
    before, seconds = time.perf_counter(), list[float]()
    batches = peer.loader(Reading(data, workload, BATCH, **how))
    for _ in range(_EPOCHS):
        for _ in batches:
            pass
        seconds.append(time.perf_counter() - before)
        before = time.perf_counter()
    return {"samples/s": _EPOCHS * samples / sum(seconds), "first epoch x": seconds[0] / median(seconds[2:])}


def memory(peer: Peer, data: str, workload: str, samples: int, workers: int) -> Figures:
    """The most anonymous memory of the process, or of its largest worker, beyond that of a process with PyTorch."""
    batches = peer.loader(Reading(data, workload, BATCH, workers))
    with PeakAnonymous(children=workers > 0) as found:
        rate_of_epochs(lambda: batches, BATCH, samples)
    return {"MB": (found.peak - _anonymous_with("torch")) / 1e6}


def _anonymous_with(module: str) -> int:
    """Bytes of anonymous memory of a process that has imported a module."""
    program = f"import {module}; print('ready', flush=True); input()"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = psutil.Process(process.pid).memory_info()
        process.communicate("\n")
    return int(found.rss - found.shared)


def idle(peer: Peer, data: str, workload: str, samples: int, workers: int) -> Figures:  # noqa: ARG001  as `read`
    """Processor seconds of a loader without a reader, from a second after its first batches on."""
    batches = iter(peer.loader(Reading(data, workload, BATCH, workers)))
    for _ in range(3):
        next(batches, None)
    time.sleep(1.0)  # until prefetching is done
    before = cpu_seconds()
    time.sleep(_IDLE)
    return {"CPU s": cpu_seconds() - before}


def _best(loader: str, workload: Workload, measurement: Measurement = read, words: str = "", **how: Any) -> Contestant:
    """A peer with as many workers as are best for it."""
    workers = best_workers(loader, workload)
    return reads(loader, measurement, f"{words}{workers} workers", workload, workers=workers, **how)


def _mine(workload: Workload, measurement: Measurement = read, **how: Any) -> list[Contestant]:
    return [reads("mdsx", measurement, f"{n} workers", workload, workers=n, **how) for n in (0, 2)]


def _loader(workload: Workload, batch_size: int) -> Subject:
    size: dict[str, Any] = {"batch_size": min(batch_size, workload.samples // 3)}  # several batches at any scale
    found = _mine(workload, **size)
    if (workload.name, batch_size) == ("tokens", BATCH):
        found.append(reads("mdsx", read, "2 persistent workers", workload, workers=2, persistent=True, **size))
    if workload.name == "text":
        found.append(reads("mdsx", read, "dicts, 0 workers", workload, dicts=True, **size))
    if workload.name == "images":
        found += [reads(each, read, "views, 0 workers", workload, views=True, **size) for each in ("mdsx", "litdata")]
    found += [_best(loader, workload, **size) for loader in PEERS]
    if (workload.name, batch_size) == ("tokens", BATCH):  # shows what is best for them
        others = (each for each in PEERS if each not in ("litdata", "lancedb"))
        found += [reads(each, read, f"{n} workers", workload, workers=n, **size)
                  for each in others for n in (0, 2) if n != best_workers(each, workload)]  # fmt: skip
    if workload.name == "tokens":
        found.append(_best("litdata", workload, words="TokensLoader, ", written=TOKENS_LOADER, **size))
        found.append(_best("levanter", workload, **size))
    found.append(alone("limit", "memcpy, gather", limits.memory, **workload.arguments))
    return Subject(
        name=f"loader-{workload.name}-{batch_size}",
        title=f"{workload.name}: shuffled loader, batch {batch_size}",
        more=("first batch s", "next epoch ms"),
        contestants=found,
        note="`next epoch ms`: from the last batch of an epoch to the first one of the next.",
    )


def _ranks(workload: Workload) -> Subject:
    found = [reads("mdsx", ranks, f"{n} rank{'s' * (n > 1)}", workload, world=n) for n in (1, 2)]
    return Subject("ranks-tokens", f"tokens: ranks on one machine, batch {BATCH} each", found)


def _epochs(workload: Workload) -> Subject:
    found = [reads(loader, epochs, "", workload) for loader in ("mdsx", "litdata")]
    if workload.name == "tokens":
        found.append(reads("litdata", epochs, "TokensLoader", workload, TOKENS_LOADER))
    return Subject(
        name=f"epochs-{workload.name}",
        title=f"{workload.name}: the first {_EPOCHS} epochs of a process, batch {BATCH}",
        contestants=found,
        more=("first epoch x",),
        note="From creating the dataset on, after all imports. `first epoch x`: its seconds, by the median of the last "
        "three epochs.",
    )


def _memory(workload: Workload) -> Subject:
    found = [reads("mdsx", memory, name, workload, workers=n) for n, name in enumerate(("0 workers", "a worker"))]
    return Subject(
        name="memory-tokens",
        title=f"tokens: anonymous memory of the shuffled loader beyond that of `import torch`, batch {BATCH}",
        figure="MB",
        contestants=[*found, *(reads(each, memory, "0 workers", workload, workers=0) for each in PEERS)],
        note="The peak of a process, without what is mapped from files. Modules of the benchmark itself are in it.",
    )


def _idle(workload: Workload) -> Subject:
    return Subject(
        name="idle",
        title=f"CPU seconds of a loader in {_IDLE:g} s in which nobody reads from it",
        figure="CPU s",
        contestants=[*_mine(workload, idle), *(_best(loader, workload, idle) for loader in PEERS)],
    )
