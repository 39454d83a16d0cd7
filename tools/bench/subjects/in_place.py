"""Datasets of other formats, read in place: the same files, by mdsx and by the loader that wrote them."""

from __future__ import annotations

from typing import Any

from tools.bench.subject import Contestant, Goal, Subject
from tools.bench.subjects import Measurement, Workload, call, contestant, names, prepare, workloads
from tools.bench.subjects.loader import BATCH, read
from tools.bench.subjects.read import random

_LOADER = {"tokens": 20, "images": 8, "text": 8}  # how many times as fast as mosaicml-streaming


def subjects(scale: float) -> list[Subject]:
    chosen = [each for each in workloads(scale) if each.name in _LOADER]
    return [*map(_random, chosen), *map(_loader, chosen)]


def _reads(loader: str, measurement: Measurement, how: str, workload: Workload, **arguments: Any) -> Contestant:
    """A loader that reads what mosaicml-streaming wrote: uncompressed MDS shards of 64 MiB without hashes."""
    written = call(prepare, "mosaicml", **workload.arguments)
    return contestant(loader, measurement, how, written, **workload.arguments, **arguments)


def _random(workload: Workload) -> Subject:
    found = [_reads(loader, random, "", workload) for loader in ("mdsx", "mosaicml")]
    text = f"MDS, {workload.name}, random ds[i]"
    goal = Goal(f"{text}: 3 x mosaicml-streaming", "mdsx", names(found, "mosaicml"), at_least=3)
    return Subject(f"mds-random-{workload.name}", f"{text}, the same files", found, [goal])


def _loader(workload: Workload) -> Subject:
    size: dict[str, Any] = {"batch_size": min(BATCH, workload.samples // 3)}
    loaders = [(loader, n) for loader in ("mdsx", "mosaicml") for n in (0, 2)]
    found = [_reads(loader, read, f"{n} workers", workload, workers=n, **size) for loader, n in loaders]
    text, times = f"MDS, {workload.name}, shuffled loader, batch {BATCH}", _LOADER[workload.name]
    best = names(found, "mosaicml")
    goal = Goal(f"{text}: {times} x mosaicml-streaming's best", found[0].name, best, at_least=times)
    return Subject(f"mds-loader-{workload.name}", f"{text}, the same files", found, [goal], more=("first batch s",))
