"""What the machine allows: memory, hashing, disk, by the bytes of a workload. NumPy and xxhash alone.

Rates are of samples, to be compared with those of the loaders.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from tools import workloads
from tools.bench.measure import Figures, rate_of_calls, timed

_PIECE = 2**26  # as large as a shard


def _bytes_of(workload: str, samples: int) -> NDArray[np.uint64]:
    """As many bytes as the values of all samples have, row by row, of the same length each."""
    size = sum(workloads.size_of(workloads.sample(workload, number)) for number in range(32)) // 32
    return np.random.default_rng(7).integers(2**64, size=(samples, size // 8), dtype=np.uint64)


def memory(workload: str, samples: int, work: str) -> Figures:
    """A pass over all the bytes: a copy, a copy in a random order, or XXH3-128."""
    source, order = _bytes_of(workload, samples), workloads.permutation(samples)
    target = np.zeros_like(source)
    works: dict[str, Callable[[int], object]] = {
        "copy": lambda call: np.copyto(target, source),
        "gather": lambda call: np.take(source, order, axis=0, out=target, mode="clip"),
        "checksum": lambda call: xxhash.xxh3_128_digest(source.data),
    }
    return rate_of_calls(works[work], samples)


def write(workload: str, samples: int) -> Figures:
    """write() of all the bytes, 64 MiB a file, each with fsync, as mdsx does."""
    source, directory = _bytes_of(workload, samples).reshape(-1).view(np.uint8).data, tempfile.mkdtemp()

    def run() -> None:
        for first in range(0, len(source), _PIECE):
            with Path(directory, str(first)).open("wb") as file:
                file.write(source[first : first + _PIECE])
                file.flush()
                os.fsync(file.fileno())

    _, took = timed(run)
    return {"samples/s": samples / took}


def decoder(samples: int) -> Figures:
    """JPEGs from memory to pixels, in a process for each core, and nothing else."""
    cores = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(cores) as pool:
        return {"samples/s": sum(pool.map(_decode, [min(samples, 256)] * cores))}


def _decode(samples: int) -> float:
    images = [workloads.jpeg(number) for number in range(samples)]
    return float(rate_of_calls(lambda call: workloads.pixels(images[call % samples]), 1)["samples/s"])
