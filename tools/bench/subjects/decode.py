"""JPEGs decoded in the shuffled loader, at full size and at 224 x 224: the loader by its decoder, and by others."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import mdsx
from tools import workloads
from tools.bench.measure import Figures, rate_of_calls, rate_of_epochs
from tools.bench.subject import Contestant, Subject
from tools.bench.subjects import Workload, alone, call, contestant, reads
from tools.bench.subjects import workloads as sizes
from tools.bench.subjects.loader import BATCH, read
from tools.peers import Lazy, Peer, Reading

torch_data = Lazy("torch.utils.data")

_CORES = len(os.sched_getaffinity(0))
_PICTURES = 256  # that the decoder alone has in memory


def subjects(scale: float) -> list[Subject]:
    (workload,) = (each for each in sizes(scale) if each.name == "images")
    return [_decoding(workload, size) for size in (None, 224)]


def _decoding(workload: Workload, size: int | None) -> Subject:
    how: dict[str, Any] = {"decoded": True, "size": size}
    counted: dict[str, Any] = {"samples": workload.samples, "size": size}
    files = call(write_files, samples=workload.samples)
    peers = ("litdata", "mosaicml", "webdataset", "energon")
    found: list[Contestant] = [
        reads("mdsx", read, "threads", workload, threads=_CORES, **how),
        reads("mdsx", read, f"{_CORES} workers", workload, workers=_CORES, **how),
        alone("peer", f"PyTorch DataLoader, Pillow, {_CORES} workers", dataloader, files, **counted),
        *(reads(loader, read, f"{_CORES} workers", workload, workers=_CORES, **how) for loader in peers),
        contestant("spdl", read_files, f"{_CORES} threads", files, **counted),
        alone("limit", "decoder", decoder, **counted),
    ]
    words = "" if size is None else f" to {size} x {size}"
    return Subject(
        name="decode-images" if size is None else f"decode-images-{size}",
        title=f"images: JPEGs decoded{words} in the shuffled loader, batch {BATCH}",
        unit="images/s",
        contestants=found,
        note="The decoder alone is that of mdsx, from memory, in a process for each core. PyTorch's DataLoader and "
        "SPDL read a file for each JPEG; SPDL decodes with FFmpeg, the other loaders with Pillow.",
    )


def write_files(data: str, samples: int) -> Figures:
    """Write a file for each JPEG."""
    for number in range(samples):
        _file(data, number).write_bytes(workloads.jpeg(number))
    return {}


def _file(data: str, number: int) -> Path:
    return Path(data, f"{number:06}.jpg")


class _Files:
    """A dataset as PyTorch's tutorials write it."""

    def __init__(self, data: str, samples: int, size: int | None) -> None:
        self._data, self._samples, self._size = data, samples, size

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, number: int) -> dict[str, Any]:
        sample = {"image": _file(self._data, number).read_bytes(), "label": number % 1000}
        return workloads.decode(sample, self._size)


def dataloader(data: str, samples: int, size: int | None) -> Figures:
    """PyTorch's DataLoader with Pillow, shuffled."""
    files = _Files(data, samples, size)
    batches = torch_data.DataLoader(files, BATCH, shuffle=True, num_workers=_CORES, persistent_workers=True)
    return rate_of_epochs(lambda: batches, BATCH, samples)


def read_files(peer: Peer, data: str, samples: int, size: int | None) -> Figures:
    """The rate of a loader that reads files."""
    batches = peer.loader(Reading(data, "images", BATCH, decoded=True, size=size, threads=_CORES))
    return rate_of_epochs(lambda: batches, BATCH, samples)


def decoder(samples: int, size: int | None) -> Figures:
    """JPEGs from memory to pixels, in a process for each core, and nothing else."""
    with ProcessPoolExecutor(_CORES) as pool:
        return {"samples/s": sum(pool.map(_decode, [min(samples, _PICTURES)] * _CORES, [size] * _CORES))}


def _decode(samples: int, size: int | None) -> float:
    images, image = [workloads.jpeg(number) for number in range(samples)], mdsx.Image(size=size)
    return float(rate_of_calls(lambda call: image.decode(images[call % samples], call), 1)["samples/s"])
