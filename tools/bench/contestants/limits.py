"""What the machine allows: memory, hashing, disk, by the bytes of a workload. NumPy and xxhash alone.

Rates are of samples, to be compared with those of the loaders.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from tools import workloads
from tools.bench import measure
from tools.bench.measure import Figures, rate_of_calls, stopwatch

_PIECE = 2**26  # as large as a shard


def _bytes_of(workload: str, samples: int) -> NDArray[np.uint8]:
    """The values of all samples, row by row, cut to the same length each."""
    if workload == "tokens":
        return workloads.tokens(np.arange(samples, dtype=np.uint64)).view(np.uint8)
    size = workloads.size_of(workloads.columns(workload, 0, min(samples, 100))) // min(samples, 100)
    words = np.arange(samples * (size // 8 + 1), dtype=np.uint64)
    return np.ascontiguousarray(workloads.mix(words).view(np.uint8).reshape(samples, -1)[:, : size // 8 * 8])


def copy(workload: str, samples: int) -> Figures:
    """memcpy: all the bytes, from one array to another."""
    source = _bytes_of(workload, samples)
    target = np.zeros_like(source)
    return rate_of_calls(lambda call: np.copyto(target, source), samples)


def gather(workload: str, samples: int) -> Figures:
    """The same in a random order: one NumPy take of all rows."""
    source = _bytes_of(workload, samples)
    target = np.zeros_like(source)
    order = np.argsort(workloads.mix(np.arange(samples, dtype=np.uint64)))
    return rate_of_calls(lambda call: np.take(source, order, axis=0, out=target, mode="clip"), samples)


def checksum(workload: str, samples: int) -> Figures:
    """XXH3-128 of all the bytes."""
    source = _bytes_of(workload, samples)
    return rate_of_calls(lambda call: xxhash.xxh3_128_digest(source.data), samples)


def write(scratch: str, workload: str, samples: int) -> Figures:
    """write() of all the bytes, 64 MiB a file, each with fsync, as mdsx does."""
    source = _bytes_of(workload, samples).reshape(-1).data
    figures: Figures = {}
    with stopwatch(figures, samples, len(source)):
        for number, first in enumerate(range(0, len(source), _PIECE)):
            with Path(scratch, f"{number:05}").open("wb", buffering=0) as file:
                rest = source[first : first + _PIECE]
                while rest:
                    rest = rest[file.write(rest) :]
                os.fsync(file.fileno())
    return figures


def decoder(samples: int, processes: bool) -> Figures:
    """JPEGs from memory to pixels on all cores, by processes or threads, and nothing else."""
    from tools.peers.torch_helpers import pixels

    cores = len(os.sched_getaffinity(0))
    images = [workloads.jpeg(number) for number in range(min(samples, 256))]
    pixels(images[0])
    begun = time.perf_counter()

    def decode(core: int) -> int:
        done = 0
        while time.perf_counter() - begun < measure.SECONDS:
            pixels(images[(core + done) % len(images)])
            done += 1
        return done

    if processes:
        pipes = [measure.in_child(decode, core) for core in range(cores)]
        done = sum(int(os.fdopen(pipe).read()) for pipe in pipes)
    else:
        with ThreadPoolExecutor(cores) as pool:
            done = sum(pool.map(decode, range(cores)))
    return {"samples/s": done / (time.perf_counter() - begun)}
