"""mosaicml-streaming: MDSWriter without compression and hashes, its defaults; shards of 64 MiB, its default too.

StreamingDataset(local=...) in the order py1e, its default, with `batch_size` as its documentation asks;
StreamingDataLoader. It has a /dev/shm of its own where the machine allows that, since it leaves things there. A process
either iterates or starts workers, never both: its workers hang once the process that starts them has iterated.
"""

from __future__ import annotations

from tools.peers.shared_memory import have_own_shared_memory

try:
    have_own_shared_memory()  # before any library has threads
    OWN_SHARED_MEMORY = True
except OSError:
    OWN_SHARED_MEMORY = False

from typing import Any

from tools.bench import workloads
from tools.bench.contestants import one_by_one
from tools.bench.contestants.collate import columns_of, decode
from tools.bench.measure import Figures, idle_cpu, rate_of_calls, rate_of_epochs, stopwatch
from tools.peers.torchvision import declare_torchvision_operators

declare_torchvision_operators()
import streaming  # noqa: E402
from streaming.base.util import clean_stale_shared_memory  # noqa: E402

if not OWN_SHARED_MEMORY:
    clean_stale_shared_memory()

_COLUMNS = {
    "tokens": {"tokens": f"ndarray:uint16:{workloads.WIDTH}"},
    "images": {"image": "bytes", "label": "int"},
    "text": {"text": "str", "id": "int"},
    "mixed": {"text": "str", "id": "int", "vector": "ndarray:float32", "meta": "json"},
}


def prepare(data: str, workload: str, samples: int) -> Figures:
    """Write the dataset that is read."""
    return one_by_one.prepare(_write, data, workload, samples)


def write(scratch: str, workload: str, samples: int) -> Figures:
    """One by one: it has no other way."""
    return one_by_one.rate(_write, scratch, workload, samples)


def _write(directory: str, workload: str, samples: list[dict[str, Any]]) -> None:
    with streaming.MDSWriter(out=directory, columns=_COLUMNS[workload]) as out:
        for sample in samples:
            out.write(sample)


def iterate(data: str, workload: str, samples: int, shuffle: bool) -> Figures:
    """Sample by sample, without a loader."""
    dataset = streaming.StreamingDataset(local=data, shuffle=shuffle, shuffle_seed=7, batch_size=1)
    return rate_of_epochs(lambda: dataset, 1, samples)


def random_one(data: str, workload: str, samples: int) -> Figures:
    """`ds[i]`"""
    dataset = streaming.StreamingDataset(local=data, shuffle=False, batch_size=1)
    numbers = workloads.random_numbers(samples, 1 << 20).tolist()
    return rate_of_calls(lambda call: dataset[numbers[call % len(numbers)]], 1)


def random_many(data: str, workload: str, samples: int, each: int = 512) -> Figures:
    """`ds[[...]]`"""
    dataset = streaming.StreamingDataset(local=data, shuffle=False, batch_size=1)
    lists = workloads.random_numbers(samples, each * 256).reshape(256, each).tolist()
    return rate_of_calls(lambda call: dataset[lists[call % 256]], each)


class _Decoded(streaming.StreamingDataset):  # type: ignore[misc]  # it ships no types
    def __getitem__(self, at: Any) -> Any:
        return decode(super().__getitem__(at))


def _loader(data: str, batch_size: int, workers: int, workload: str, decoded: bool = False) -> Any:
    kind = _Decoded if decoded else streaming.StreamingDataset
    dataset = kind(local=data, shuffle=True, shuffle_seed=7, batch_size=batch_size)
    collate = {"collate_fn": columns_of} if workload == "mixed" else {}  # vectors of several lengths
    return streaming.StreamingDataLoader(dataset, batch_size=batch_size, num_workers=workers, **collate)


def loader(data: str, workload: str, samples: int, batch_size: int, workers: int, decoded: bool = False) -> Figures:
    """StreamingDataLoader, shuffled; `decoded`: JPEGs, in the dataset's __getitem__."""
    batches = _loader(data, batch_size, workers, workload, decoded)
    return rate_of_epochs(lambda: batches, batch_size, samples)


def idle(data: str, workload: str, samples: int, workers: int) -> Figures:
    """Processor time while nobody reads."""
    return idle_cpu(_loader(data, 32, workers, workload))


def order(samples: int, shards: int) -> Figures:
    """What it makes at the start of each epoch: the order of all samples, for one node of one rank and worker."""
    import numpy as np
    from streaming.base.partition import get_partitions
    from streaming.base.shuffle import get_shuffle

    figures: Figures = {}
    sizes = np.full(shards, samples // shards, np.int64)
    with stopwatch(figures, samples):
        partition = get_partitions("relaxed", samples, 1, 1, 1, 1, 32, 0)  # one node, rank and worker, batch 32
        shuffled = get_shuffle("py1e", sizes, 1, 7, 0, 262144)
        np.where(partition != -1, shuffled[partition], -1)
    return {"construct s": samples / figures["samples/s"], "ns/sample": 1e9 / figures["samples/s"]}
