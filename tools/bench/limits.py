"""What the machine allows: memory, hashing, disk, by the bytes of a workload. NumPy and xxhash alone.

Rates are of samples, to be compared with those of the loaders.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
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


def memory(workload: str, samples: int, figure: str = "samples/s") -> Figures:
    """All the bytes copied in a random order, sample by sample."""
    source, order = _bytes_of(workload, samples), workloads.permutation(samples)
    target = np.zeros_like(source)
    found = rate_of_calls(lambda call: np.take(source, order, axis=0, out=target, mode="clip"), samples)
    return {figure: found["samples/s"]}


def hashed(data: str) -> Figures:
    """The files of a directory read and hashed with XXH3-128, by as many threads as there are cores."""
    files = [path for path in Path(data).rglob("*") if path.is_file()]

    def each(path: Path) -> None:
        buffer, found = bytearray(2**20), xxhash.xxh3_128()
        with path.open("rb", buffering=0) as file:
            while size := file.readinto(buffer):
                found.update(memoryview(buffer)[:size])
        found.digest()

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        _, took = timed(lambda: list(pool.map(each, files)))
    return {"MB/s": sum(path.stat().st_size for path in files) / took / 1e6}


def copied(data: str) -> Figures:
    """The files of a directory copied, each with fsync."""
    files, target = sorted(filter(Path.is_file, Path(data).iterdir())), Path(tempfile.mkdtemp())

    def copy() -> None:
        for path in files:
            with path.open("rb") as source, (target / path.name).open("wb") as file:
                shutil.copyfileobj(source, file, 2**20)
                file.flush()
                os.fsync(file.fileno())

    _, took = timed(copy)
    return {"MB/s": sum(path.stat().st_size for path in files) / took / 1e6}


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
