"""Datasets of other formats, read in place: the same files, by mdsx and by the loader that they were written for."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import mdsx
from tools import workloads
from tools.bench.measure import Figures, rate_of_epochs, timed
from tools.bench.subject import Contestant, Goal, Subject
from tools.bench.subjects import Measurement, Workload, call, contestant, names, prepare, reads
from tools.bench.subjects import workloads as sizes
from tools.bench.subjects.loader import BATCH, read
from tools.bench.subjects.read import random
from tools.peers import Peer, Reading, peer

_LOADER = {"tokens": 20, "images": 8, "text": 8}  # how many times as fast as mosaicml-streaming


def subjects(scale: float) -> list[Subject]:
    chosen = [each for each in sizes(scale) if each.name in _LOADER]
    images = [each for each in chosen if each.name == "images"]
    formats = [*map(_mds_random, chosen), *map(_mds_loader, chosen), *map(_parquet_loader, chosen)]
    return [*formats, *map(_tar_loader, images)]


def _mds(loader: str, measurement: Measurement, how: str, workload: Workload, **arguments: Any) -> Contestant:
    """A loader that reads what mosaicml-streaming wrote: uncompressed MDS shards of 64 MiB without hashes."""
    written = call(prepare, "mosaicml", **workload.arguments)
    return contestant(loader, measurement, how, written, **workload.arguments, **arguments)


def _mds_random(workload: Workload) -> Subject:
    found = [_mds(loader, random, "", workload) for loader in ("mdsx", "mosaicml")]
    text = f"MDS, {workload.name}, random ds[i]"
    goal = Goal(f"{text}: 3 x mosaicml-streaming", "mdsx", names(found, "mosaicml"), at_least=3)
    return Subject(f"mds-random-{workload.name}", f"{text}, the same files", found, [goal])


def _mds_loader(workload: Workload) -> Subject:
    loaders = [(loader, n) for loader in ("mdsx", "mosaicml") for n in (0, 2)]
    size = _batch_size(workload)
    found = [_mds(loader, read, f"{n} workers", workload, workers=n, batch_size=size) for loader, n in loaders]
    text, times = f"MDS, {workload.name}, shuffled loader, batch {BATCH}", _LOADER[workload.name]
    best = names(found, "mosaicml")
    goal = Goal(f"{text}: {times} x mosaicml-streaming's best", found[0].name, best, at_least=times)
    return Subject(f"mds-loader-{workload.name}", f"{text}, the same files", found, [goal], more=("first batch s",))


def _parquet_loader(workload: Workload) -> Subject:
    written, size = call(write_parquet, **workload.arguments), _batch_size(workload)

    def reads(loader: str, how: str, **arguments: Any) -> Contestant:
        made = contestant(loader, read_parquet, how, written, **workload.arguments, batch_size=size, **arguments)
        return made if loader == "mdsx" else replace(made, name=f"HF datasets, {how}")

    return Subject(
        name=f"parquet-loader-{workload.name}",
        title=f"Parquet, {workload.name}, shuffled loader, batch {BATCH}, the same files",
        contestants=[
            reads("mdsx", "", workers=0),
            reads("mdsx", "first epoch", workers=0, first=True),
            reads("huggingface", "0 workers", workers=0),
            reads("huggingface", "2 workers", workers=2),
        ],
        more=("first batch s",),
        note="Row groups of 1,000 samples. mdsx decodes each row group once, in its first epoch, into its cache. HF "
        "datasets streams with a shuffle buffer of 1,000 samples, and decodes in each epoch.",
    )


def write_parquet(data: str, workload: str, samples: int) -> Figures:
    rows = list(map(partial(workloads.sample, workload), range(samples)))
    peer("huggingface").write_batches(Path(data), workload, workloads.columns_of(rows))
    mdsx.index_parquet(data)
    return {}


def read_parquet(
    peer: Peer, data: str, workload: str, samples: int, batch_size: int, workers: int, first: bool = False
) -> Figures:
    """The shuffled loader; `first`: the first epoch, with an empty cache."""
    batches = peer.loader(Reading(data, workload, batch_size, workers, cache=tempfile.mkdtemp()))
    if not first:
        return rate_of_epochs(lambda: batches, batch_size, samples)
    count, took = timed(lambda: sum(1 for _ in batches))
    return {"samples/s": count * batch_size / took}


def _tar_loader(workload: Workload) -> Subject:
    written, size = call(prepare, "webdataset", **workload.arguments), _batch_size(workload)

    def of_tars(loader: str, workers: int) -> Contestant:
        how: dict[str, Any] = {"batch_size": size, "workers": workers}
        return contestant(loader, read_tars, f"{workers} workers", written, **workload.arguments, **how)

    own = reads("mdsx", read, "own shards, 0 workers", workload, workers=0, batch_size=size)
    found, text = of_tars("mdsx", 0), f"tars, {workload.name}, shuffled loader, batch {BATCH}"
    return Subject(
        name=f"tar-loader-{workload.name}",
        title=f"{text}, the same files",
        contestants=[found, of_tars("mdsx", 2), own, of_tars("webdataset", 0), of_tars("webdataset", 2)],
        goals=[Goal(f"{text}: 0.8 of mdsx's own shards", found.name, (own.name,), at_least=0.8)],
        more=("first batch s",),
        note="Tars of 64 MiB that WebDataset wrote. mdsx has indexed them before the time is taken.",
    )


def read_tars(peer: Peer, data: str, workload: str, samples: int, batch_size: int, workers: int) -> Figures:
    if peer.name == "mdsx":
        mdsx.index_tars(data, columns={"image": "bytes", "label": "int64"})
    return read(peer, data, workload, samples, batch_size, workers=workers)


def _batch_size(workload: Workload) -> int:
    return min(BATCH, workload.samples // 3)  # several batches at any scale
