"""Any loader on a local disk: writing, reading sample by sample and at random, the shuffled loader.

The loader is imported first, before NumPy starts threads: see peers.ready.
"""

from __future__ import annotations

from collections.abc import Callable
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

    def run(directory: Path, count: int) -> None:
        peer.write(directory, workload, range(count), rows.__getitem__, Layout(**how))

    few = 0 if peer.forks_to_write else workloads.FEW
    return _timed_write(run, scratch, few, samples, workloads.size_of(batch))


def write_batches(loader: str, scratch: str, workload: str, samples: int) -> Figures:
    """Write samples in batches, column by column, after a warm-up."""
    peer = ready(loader, torch=False)
    from tools import workloads

    batch = workloads.columns(workload, 0, samples)

    def run(directory: Path, count: int) -> None:
        peer.write_batches(directory, workload, {name: each[:count] for name, each in batch.items()}, count)

    return _timed_write(run, scratch, workloads.FEW, samples, workloads.size_of(batch))


def _timed_write(run: Callable[[Path, int], None], scratch: str, few: int, samples: int, size: int) -> Figures:
    warm, out = Path(scratch, "warm"), Path(scratch, "out")
    warm.mkdir()
    out.mkdir()
    if few:
        run(warm, min(few, samples))
    figures: Figures = {}
    with stopwatch(figures, samples, size):
        run(out, samples)
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


def lorem(loader: str, data: str, records: int, at_once: bool, **how: Any) -> Figures:
    """A random permutation, one record after the other or in one call."""
    one, many = ready(loader, torch=False).records(data, **how)
    from tools import workloads

    order = workloads.permutation(records)
    if at_once:
        return rate_of_calls(lambda call: many(order), records)
    return rate_of_calls(lambda call: one(order[call % records]), 1)
