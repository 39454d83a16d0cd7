"""LitData: `optimize` with chunks of 64 MB; StreamingDataset and StreamingDataLoader.

For tokens, its TokensLoader, as its README has it for language models; its dataset is then one line of tokens, cut into
blocks. Images, and what is read at random, with `batch_decode=1`: its default windows are there for other uses, and
several times slower in these. It is not asked for the newest version of itself over the network.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["LITDATA_DISABLE_VERSION_CHECK"] = "1"

import litdata
import torch
from litdata.streaming.item_loader import TokensLoader

from tools.bench import workloads
from tools.bench.contestants.collate import columns_of, decode
from tools.bench.measure import Figures, idle_cpu, rate_of_calls, rate_of_epochs, stopwatch

_CHUNK = "64MB"
_samples: list[Any] = []  # what is written: its processes are forked, and find it here


def prepare(data: str, workload: str, samples: int, tokens_loader: bool = False) -> Figures:
    """Write the dataset that is read."""
    _make(workload, samples, tokens_loader)
    _optimize(data, tokens_loader, workers=1)
    return {}


def write(scratch: str, workload: str, samples: int, workers: int, tokens_loader: bool = False) -> Figures:
    """`optimize` with so many processes, which begins with their start."""
    size = _make(workload, samples, tokens_loader)
    figures: Figures = {}
    with stopwatch(figures, samples, size):
        _optimize(str(Path(scratch, "out")), tokens_loader, workers)
    return figures


def _make(workload: str, samples: int, tokens_loader: bool) -> int:
    batch = workloads.columns(workload, 0, samples)
    if tokens_loader:
        _samples.extend(torch.from_numpy(batch["tokens"]))
    else:
        _samples.extend(workloads.rows(batch))
    return workloads.size_of(batch)


def _optimize(directory: str, tokens_loader: bool, workers: int) -> None:
    how: dict[str, Any] = {"chunk_bytes": _CHUNK}
    if tokens_loader:
        how = {"chunk_size": workloads.WIDTH * (2**26 // (2 * workloads.WIDTH)), "item_loader": TokensLoader()}
    litdata.optimize(
        fn=_yield_tokens if tokens_loader else _sample,
        inputs=list(range(len(_samples))),
        output_dir=directory,
        num_workers=workers,
        start_method="fork",
        verbose=False,
        **how,
    )


def _sample(number: int) -> Any:
    return _samples[number]


def _yield_tokens(number: int) -> Iterator[Any]:
    yield _samples[number]


def _open(data: str, shuffle: bool, tokens_loader: bool = False, one_by_one: bool = False) -> Any:
    loader = TokensLoader(block_size=workloads.WIDTH) if tokens_loader else None
    return litdata.StreamingDataset(data, item_loader=loader, **_how(shuffle, one_by_one))


def _how(shuffle: bool, one_by_one: bool) -> dict[str, Any]:
    """`one_by_one`: by default it decodes windows of samples, many times each where they are not read in order."""
    decode = {"batch_decode": 1} if one_by_one else {}
    return {"shuffle": shuffle, "seed": 7, "max_cache_size": "100GB", **decode}


def iterate(data: str, workload: str, samples: int, shuffle: bool, tokens_loader: bool = False) -> Figures:
    """Sample by sample, without a loader."""
    dataset = _open(data, shuffle, tokens_loader, one_by_one=shuffle and workload == "images")
    return rate_of_epochs(lambda: dataset, 1, samples)


def random_one(data: str, workload: str, samples: int) -> Figures:
    """`ds[i]`"""
    dataset, numbers = _open(data, False, one_by_one=True), workloads.random_numbers(samples, 1 << 20).tolist()
    return rate_of_calls(lambda call: dataset[numbers[call % len(numbers)]], 1)


def random_many(data: str, workload: str, samples: int, each: int = 512) -> Figures:
    """`ds[i]` for each of many: it has no other way."""
    dataset = _open(data, False, one_by_one=True)
    lists = workloads.random_numbers(samples, each * 256).reshape(256, each).tolist()
    return rate_of_calls(lambda call: [dataset[number] for number in lists[call % 256]], each)


class _Decoded(litdata.StreamingDataset):  # type: ignore[misc]  # it ships no types
    def __getitem__(self, at: Any) -> Any:
        return decode(super().__getitem__(at))


def loader(
    data: str,
    workload: str,
    samples: int,
    batch_size: int,
    workers: int,
    tokens_loader: bool = False,
    decoded: bool = False,
    views: bool = False,
) -> Figures:
    """Its StreamingDataLoader, shuffled; `decoded`: JPEGs, in the dataset's __getitem__; `views`: bytes not copied."""
    if decoded:
        dataset = _Decoded(data, **_how(True, one_by_one=True))
    else:
        dataset = _open(data, True, tokens_loader, one_by_one=workload == "images")
    batches = _loader(dataset, batch_size, workers, workload, decoded, views)
    return rate_of_epochs(lambda: batches, batch_size, samples)


def _loader(
    dataset: Any, batch_size: int, workers: int, workload: str, decoded: bool = False, views: bool = False
) -> Any:
    collate: dict[str, Any] = {}
    if workload == "mixed" or views:
        collate["collate_fn"] = columns_of  # its own refuses vectors of several lengths, and memoryviews
    elif workload == "images" and not decoded:
        collate["collate_fn"] = _images_of
    return litdata.StreamingDataLoader(dataset, batch_size=batch_size, num_workers=workers, drop_last=False, **collate)


def _images_of(samples: list[Any]) -> Any:
    """It hands out memoryviews of its chunks, which go into no other process: a batch has bytes, as the others' do."""
    return columns_of([{"image": bytes(sample["image"]), "label": sample["label"]} for sample in samples])


def idle(data: str, workload: str, samples: int, workers: int) -> Figures:
    """Processor time while nobody reads."""
    return idle_cpu(_loader(_open(data, True), 32, workers, workload))
