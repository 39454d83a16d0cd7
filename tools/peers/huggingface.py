"""Hugging Face datasets, streaming from Parquet: split_dataset_by_node and torchdata's StatefulDataLoader.

Parquet is written by pyarrow with its defaults, in batches: files of about 64 MiB with row groups of 1,000 samples. Its
shuffle buffer is not used, since its documentation says that "examples from shuffle buffers are lost when resuming";
set_epoch changes the order of the files from epoch to epoch.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tools.conformance.matrix import Cell
from tools.conformance.task import Task, checked
from tools.peers import Layout, Make, Peer
from tools.peers.torchdata import StatefulLoader, unsupported_by_stateful_dataloader

_AT_ONCE = 1000


class _Loader(StatefulLoader):
    def __init__(self, task: Task, states: list[Any]) -> None:
        import datasets
        from datasets.distributed import split_dataset_by_node
        from torchdata.stateful_dataloader import StatefulDataLoader

        parts = [
            datasets.load_dataset(
                "parquet",
                data_files=sorted(map(str, path.glob("*.parquet"))),
                split="train",
                streaming=True,
                cache_dir=str(Path(task.directory, "cache")),
            )
            for path in task.paths()
        ]
        dataset: Any = parts[0]
        if len(parts) > 1:
            dataset = datasets.interleave_datasets(
                parts, probabilities=list(task.weights), seed=task.seed, stopping_strategy="first_exhausted"
            )
        self._by_epoch = split_dataset_by_node(dataset, rank=task.rank, world_size=task.shape.world)
        self._loader = StatefulDataLoader(self._by_epoch, batch_size=task.shape.batch, num_workers=task.shape.workers)
        self.resume(task, states)

    def ids_of(self, batch: Any) -> list[int]:
        return checked(batch["id"].tolist(), batch["text"])


class HuggingFace(Peer):
    name = environment = "huggingface"
    title = "HF datasets"
    packages = ("datasets", "torchdata", "pyarrow")
    rank_loader = _Loader

    def unsupported(self, cell: Cell) -> str | None:
        return unsupported_by_stateful_dataloader(cell)

    def warm(self) -> None:
        os.environ["HF_HUB_OFFLINE"] = "1"
        import datasets
        import torchdata.stateful_dataloader  # noqa: F401

        datasets.disable_progress_bars()

    def write(self, directory: Path, kind: str, ids: Sequence[int], make: Make, layout: Layout) -> None:
        samples = list(map(make, ids))
        columns = {name: [sample[name] for sample in samples] for name in samples[0]}
        _write_files(directory, columns, len(ids), layout.shard or len(ids))

    def write_batches(self, directory: Path, kind: str, batch: dict[str, Any], samples: int) -> None:
        """Write columns, some samples at a time."""
        from tools.workloads import size_of

        _write_files(directory, batch, samples, max(Layout.size * samples // size_of(batch), 1))


def _write_files(directory: Path, batch: dict[str, Any], samples: int, each: int) -> None:
    import pyarrow
    from pyarrow import parquet

    directory.mkdir(parents=True, exist_ok=True)
    for first in range(0, samples, each):
        stop, out = min(first + each, samples), None
        for start in range(first, stop, _AT_ONCE):
            part = {name: _column(values[start : min(start + _AT_ONCE, stop)]) for name, values in batch.items()}
            table = pyarrow.table(part)
            out = out or parquet.ParquetWriter(directory / f"{first:09}.parquet", table.schema)
            out.write_table(table)
        if out is not None:
            out.close()


def _column(values: Any) -> Any:
    import pyarrow

    if isinstance(values, np.ndarray) and values.ndim == 2:
        return pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(values.reshape(-1)), values.shape[1])
    return values


PEER = HuggingFace()
