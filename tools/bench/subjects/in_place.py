"""Datasets of other formats, read in place: the same files, by mdsx and by the loader that they were written for."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import mdsx
from tools.bench.measure import Figures
from tools.bench.subject import Contestant, Goal, Subject
from tools.bench.subjects import Workload, call, contestant, names, prepare, workloads
from tools.bench.subjects.loader import BATCH, read
from tools.peers import Peer, peer
from tools.workloads import columns_of, sample

_FORMATS = {
    "mds": ("mosaicml", {"tokens": 20, "images": 8, "text": 8}),
    "parquet": ("huggingface", {"tokens": 0, "images": 0, "text": 0}),
    "tar": ("webdataset", {"images": 0}),
}
"""The loader that the files are written for, and how many times as fast mdsx is to be; 0: no goal."""


def subjects(scale: float) -> list[Subject]:
    sizes = {each.name: each for each in workloads(scale)}
    return [
        _subject(kind, loader, sizes[name], times)
        for kind, (loader, goals) in _FORMATS.items()
        for name, times in goals.items()
    ]


def _subject(kind: str, other: str, workload: Workload, times: int) -> Subject:
    written = call(prepare, other, **workload.arguments)
    if kind == "parquet":
        written = call(write_parquet, **workload.arguments)

    def reads(loader: str, workers: int) -> Contestant:
        how: dict[str, Any] = {"kind": kind, "batch_size": min(BATCH, workload.samples // 3), "workers": workers}
        return contestant(loader, read_in_place, f"{workers} workers", written, **workload.arguments, **how)

    found = [reads(loader, workers) for loader in ("mdsx", other) for workers in (0, 2)]
    text, best = f"{kind}, {workload.name}, shuffled loader, batch {BATCH}", names(found, other)
    goal = Goal(f"{text}: {times} x {peer(other).title}'s best", found[0].name, best, at_least=times)
    return Subject(
        name=f"{kind}-loader-{workload.name}",
        title=f"{text}, the same files",
        contestants=found,
        goals=[goal] if times else [],
        more=("first batch s",),
        note="mdsx has indexed the files before the time is taken. It decodes a row group of Parquet once, in its "
        "first epoch, into its cache. HF datasets decodes in each epoch, through a shuffle buffer of 1,000 samples.",
    )


def write_parquet(data: str, workload: str, samples: int) -> Figures:
    """Write and index row groups of 1,000 samples."""
    rows = list(map(partial(sample, workload), range(samples)))
    peer("huggingface").write_batches(Path(data), workload, columns_of(rows))
    mdsx.index_parquet(data)
    return {}


def read_in_place(peer: Peer, data: str, workload: str, samples: int, kind: str, **how: Any) -> Figures:
    if kind == "parquet":
        how["cache"] = tempfile.mkdtemp()
    if peer.name == "mdsx" and kind == "tar":
        mdsx.index_tars(data, columns={"image": "bytes", "label": "int64"})
    return read(peer, data, workload, samples, **how)
