"""mdsx, with its defaults: checksums of every sample written and checked, shards of 64 MiB, fsync of every shard."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mdsx
from tools.bench import workloads
from tools.bench.contestants.collate import decode, pixels
from tools.bench.measure import Figures, idle_cpu, rate_of_calls, rate_of_epochs, stopwatch

_PREPARED_AT_ONCE = 1000


def prepare(data: str, workload: str, samples: int) -> Figures:
    """Write the dataset that is read."""
    with mdsx.Writer(data, workloads.MDSX_COLUMNS[workload]) as out:
        for first in range(0, samples, _PREPARED_AT_ONCE):
            out.write_batch(workloads.columns(workload, first, min(first + _PREPARED_AT_ONCE, samples)))
    return {}


def write(scratch: str, workload: str, samples: int) -> Figures:
    """One by one."""
    batch = workloads.columns(workload, 0, samples)
    figures: Figures = {}
    each_sample = workloads.rows(batch)
    with _writer(scratch, "warm", workload) as out:
        for sample in each_sample[: workloads.FEW]:
            out.write(sample)
    with stopwatch(figures, samples, workloads.size_of(batch)), _writer(scratch, "out", workload) as out:
        for sample in each_sample:
            out.write(sample)
    return figures


def write_batches(scratch: str, workload: str, samples: int, at_once: int = 1000) -> Figures:
    """In batches, column by column."""
    batch = workloads.columns(workload, 0, samples)
    figures: Figures = {}
    with _writer(scratch, "warm", workload) as out:
        out.write_batch({name: values[: workloads.FEW] for name, values in batch.items()})
    with stopwatch(figures, samples, workloads.size_of(batch)), _writer(scratch, "out", workload) as out:
        for first in range(0, samples, at_once):
            out.write_batch({name: values[first : first + at_once] for name, values in batch.items()})
    return figures


def _writer(scratch: str, name: str, workload: str) -> mdsx.Writer:
    return mdsx.Writer(Path(scratch, name), workloads.MDSX_COLUMNS[workload])


def iterate(data: str, workload: str, samples: int, shuffle: bool) -> Figures:
    """Sample by sample, without a loader."""
    from mdsx.torch import StreamingDataset

    dataset = StreamingDataset(data, shuffle=shuffle, seed=7)
    return rate_of_epochs(lambda: dataset, 1, samples)


def iterate_dataset(data: str, workload: str, samples: int) -> Figures:
    """`for sample in mdsx.Dataset(...)`: as written."""
    dataset = mdsx.Dataset(data)
    return rate_of_epochs(lambda: dataset, 1, samples)


def random_one(data: str, workload: str, samples: int) -> Figures:
    """`ds[i]`"""
    dataset, numbers = mdsx.Dataset(data), workloads.random_numbers(samples, 1 << 20).tolist()
    return rate_of_calls(lambda call: dataset[numbers[call % len(numbers)]], 1)


def random_many(data: str, workload: str, samples: int, each: int = 512, columns: bool = False) -> Figures:
    """`ds[[...]]`, or `ds.take([...])`: the same as columns."""
    dataset, numbers = mdsx.Dataset(data), workloads.random_numbers(samples, each * 256).reshape(256, each)
    lists = numbers.tolist()
    if columns:
        return rate_of_calls(lambda call: dataset.take(lists[call % 256]), each)
    return rate_of_calls(lambda call: dataset[lists[call % 256]], each)


def loader(
    data: str,
    workload: str,
    samples: int,
    batch_size: int,
    workers: int,
    dicts: bool = False,
    views: bool = False,
) -> Figures:
    """StreamingDataLoader, shuffled: batches of columns, or with `dicts` a list of dicts, one for each sample.

    `views`: encoded bytes are not copied.
    """
    from mdsx.torch import StreamingDataLoader, StreamingDataset

    dataset = StreamingDataset(data, seed=7, transform=_identity if dicts else None, zero_copy=views)
    collate = list if dicts else None
    batches = StreamingDataLoader(dataset, batch_size, num_workers=workers, drop_last=False, collate_fn=collate)
    return rate_of_epochs(lambda: batches, batch_size, samples)


def _identity(sample: dict[str, Any]) -> dict[str, Any]:
    return sample


def idle(data: str, workload: str, samples: int, workers: int) -> Figures:
    """Processor time while nobody reads."""
    from mdsx.torch import StreamingDataLoader, StreamingDataset

    return idle_cpu(StreamingDataLoader(StreamingDataset(data, seed=7), 32, num_workers=workers))


def decode_in_workers(data: str, workload: str, samples: int, batch_size: int, workers: int) -> Figures:
    """JPEGs decoded by `transform`, in worker processes."""
    from mdsx.torch import StreamingDataLoader, StreamingDataset

    dataset = StreamingDataset(data, seed=7, transform=decode)
    batches = StreamingDataLoader(dataset, batch_size, num_workers=workers, drop_last=False)
    return rate_of_epochs(lambda: batches, batch_size, samples)


def decode_in_threads(data: str, workload: str, samples: int, batch_size: int) -> Figures:
    """JPEGs decoded by threads in `collate_fn`, straight into the batch: Pillow decodes beside Python's lock."""
    import torch

    from mdsx.torch import StreamingDataLoader, StreamingDataset

    pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))

    def collate(batch: list[Any]) -> dict[str, Any]:
        images = torch.empty((len(batch), *workloads.PIXELS), dtype=torch.uint8)

        def place(number: int) -> None:
            images[number] = torch.from_numpy(pixels(batch[number]["image"]))

        list(pool.map(place, range(len(batch))))
        return {"image": images, "label": torch.tensor([sample["label"] for sample in batch])}

    batches = StreamingDataLoader(StreamingDataset(data, seed=7), batch_size, drop_last=False, collate_fn=collate)
    return rate_of_epochs(lambda: batches, batch_size, samples)


def prepare_lorem(data: str, records: int) -> Figures:
    """The dataset of ArrayRecord's performance guide."""
    with mdsx.Writer(data, {"record": "bytes"}) as out:
        for first in range(0, records, _PREPARED_AT_ONCE):
            stop = min(first + _PREPARED_AT_ONCE, records)
            out.write_batch({"record": [workloads.lorem(number).encode() for number in range(first, stop)]})
    return {}


def lorem_one(data: str, records: int) -> Figures:
    """Individual access in a random permutation."""
    dataset, order = mdsx.Dataset(data), workloads.permutation(records)
    return rate_of_calls(lambda call: dataset[order[call % records]], 1)


def lorem_all(data: str, records: int, columns: bool) -> Figures:
    """Batch access: the whole permutation in one call."""
    dataset, order = mdsx.Dataset(data), workloads.permutation(records)
    if columns:
        return rate_of_calls(lambda call: dataset.take(order), records)
    return rate_of_calls(lambda call: dataset[order], records)
