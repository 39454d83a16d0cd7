"""Datasets of other formats, read in place: the same files, by mdsx and by the loader that they were written for."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import mdsx
from tools.bench.measure import Figures
from tools.bench.subject import Contestant, Subject
from tools.bench.subjects import Workload, best_workers, call, contestant, prepare, workloads
from tools.bench.subjects.loader import BATCH, read
from tools.peers import Peer, peer
from tools.workloads import columns_of, sample

_FORMATS = {
    "mds": ("mosaicml", ("tokens", "images", "text")),
    "parquet": ("huggingface", ("tokens", "images", "text")),
    "tar": ("webdataset", ("images",)),
}
"""The loader that the files are written for, and the workloads."""


def subjects(scale: float) -> list[Subject]:
    sizes = {each.name: each for each in workloads(scale)}
    return [_subject(kind, loader, sizes[name]) for kind, (loader, names) in _FORMATS.items() for name in names]


def _subject(kind: str, other: str, workload: Workload) -> Subject:
    written = call(prepare, other, **workload.arguments)
    if kind == "parquet":
        written = call(write_parquet, **workload.arguments)

    def reads(loader: str, workers: int) -> Contestant:
        how: dict[str, Any] = {"kind": kind, "batch_size": min(BATCH, workload.samples // 3), "workers": workers}
        return contestant(loader, read_in_place, f"{workers} workers", written, **workload.arguments, **how)

    return Subject(
        name=f"{kind}-loader-{workload.name}",
        title=f"{kind}, {workload.name}, shuffled loader, batch {BATCH}, the same files",
        contestants=[reads("mdsx", 0), reads(other, best_workers(other, workload))],
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
