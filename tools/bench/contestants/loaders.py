"""Any loader on a local disk: writing, reading sample by sample and at random, the shuffled loader.

The loader is imported first, before NumPy starts threads: see peers.ready.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

from tools.bench.measure import Figures, PeakMemory, idle_cpu, rate_of_calls, rate_of_epochs, stopwatch
from tools.peers import Layout, Reading, ready

_LISTS = 256


def prepare(loader: str, data: str, workload: str, samples: int, **how: Any) -> Figures:
    """Write the dataset that is read."""
    ready(loader, torch=False).store(Path(data), workload, samples, Layout(**how))
    return {}


def write(loader: str, scratch: str, workload: str, samples: int, **how: Any) -> Figures:
    """Write samples one by one, after a warm-up. Starting processes counts."""
    peer = ready(loader, torch=False)
    from tools import workloads

    batch = workloads.columns(workload, 0, samples)
    rows = workloads.rows(batch)
    warm = range(0 if peer.forks_to_write else min(workloads.FEW, samples))
    if warm:
        peer.write(_new(scratch, "warm"), workload, warm, rows.__getitem__, Layout(**how))
    figures: Figures = {}
    directory = _new(scratch, "out")
    with stopwatch(figures, samples, workloads.size_of(batch)):
        peer.write(directory, workload, range(samples), rows.__getitem__, Layout(**how))
    return figures


def write_batches(loader: str, scratch: str, workload: str, samples: int) -> Figures:
    """Write samples in batches, column by column, after a warm-up."""
    peer = ready(loader, torch=False)
    from tools import workloads

    batch = workloads.columns(workload, 0, samples)
    few = min(workloads.FEW, samples)
    peer.write_batches(_new(scratch, "warm"), workload, {name: each[:few] for name, each in batch.items()}, few)
    figures: Figures = {}
    directory = _new(scratch, "out")
    with stopwatch(figures, samples, workloads.size_of(batch)):
        peer.write_batches(directory, workload, batch, samples)
    return figures


def iterate(loader: str, data: str, workload: str, samples: int, **how: Any) -> Figures:
    """Read sample by sample, without a loader."""
    dataset = ready(loader).samples(Reading(data, workload, **how))
    return rate_of_epochs(lambda: dataset, 1, samples)


def random_one(loader: str, data: str, workload: str, samples: int) -> Figures:
    """`ds[i]`"""
    item = ready(loader, torch=False).item(Reading(data, workload))
    from tools import workloads

    numbers = workloads.random_numbers(samples, 1 << 20).tolist()
    return rate_of_calls(lambda call: item(numbers[call % len(numbers)]), 1)


def random_many(loader: str, data: str, workload: str, samples: int, each: int, **how: Any) -> Figures:
    """`ds[[...]]`"""
    items = ready(loader, torch=False).items(Reading(data, workload, **how))
    from tools import workloads

    lists = workloads.random_numbers(samples, each * _LISTS).reshape(_LISTS, each).tolist()
    return rate_of_calls(lambda call: items(lists[call % _LISTS]), each)


def read(
    loader: str, data: str, workload: str, samples: int, batch_size: int, watch: bool = False, **how: Any
) -> Figures:
    """The shuffled loader; with `watch`, also its peak memory."""
    peer = ready(loader)
    with PeakMemory() if watch else nullcontext() as memory:
        batches = peer.loader(Reading(data, workload, batch_size, **how))
        figures = rate_of_epochs(lambda: batches, batch_size, samples)
    return figures | (memory.figures() if memory else {})


def idle(loader: str, data: str, workload: str, samples: int, workers: int) -> Figures:
    """Processor time of a loader without a reader."""
    return idle_cpu(ready(loader).loader(Reading(data, workload, 32, workers)))


def order(loader: str, samples: int, shards: int) -> Figures:
    """The order of an epoch, made as a whole."""
    peer = ready(loader)
    figures: Figures = {}
    with stopwatch(figures, samples):
        peer.make_order(samples, shards)
    return {"construct s": samples / figures["samples/s"], "ns/sample": 1e9 / figures["samples/s"]}


def prepare_lorem(loader: str, data: str, records: int) -> Figures:
    """The dataset of ArrayRecord's performance guide."""
    peer = ready(loader, torch=False)
    from tools import workloads

    peer.write_records(Path(data), [workloads.lorem(number).encode() for number in range(records)])
    return {}


def lorem_one(loader: str, data: str, records: int, **how: Any) -> Figures:
    """Individual access in a random permutation."""
    one, _ = ready(loader, torch=False).records(data, **how)
    from tools import workloads

    order = workloads.permutation(records)
    return rate_of_calls(lambda call: one(order[call % records]), 1)


def lorem_all(loader: str, data: str, records: int, **how: Any) -> Figures:
    """Batch access: the whole permutation in one call."""
    _, many = ready(loader, torch=False).records(data, **how)
    from tools import workloads

    order = workloads.permutation(records)
    return rate_of_calls(lambda call: many(order), records)


def _new(directory: str, name: str) -> Path:
    path = Path(directory, name)
    path.mkdir()
    return path
