"""Hugging Face datasets, streaming from Parquet: split_dataset_by_node and torchdata's StatefulDataLoader.

Samples are not shuffled in a buffer, as its documentation says that "examples from shuffle buffers are lost when
resuming"; the order of the files changes from epoch to epoch by set_epoch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.conformance.adaptors import Adaptor, Loader
from tools.conformance.adaptors.torchdata import unsupported_by_stateful_dataloader
from tools.conformance.matrix import Cell, Data
from tools.conformance.task import Task, checked, shards_of, text_of


class HuggingFace(Adaptor):
    name = "huggingface"
    title = "HF datasets"
    packages = ("datasets", "torchdata")
    requirements = "huggingface"

    def unsupported(self, cell: Cell) -> str | None:
        return unsupported_by_stateful_dataloader(cell)

    def warm(self) -> None:
        os.environ["HF_HUB_OFFLINE"] = "1"
        import datasets
        import torchdata.stateful_dataloader  # noqa: F401

        datasets.disable_progress_bars()

    def prepare(self, directory: Path, data: Data) -> None:
        import pyarrow
        from pyarrow import parquet

        directory.mkdir(parents=True)
        for number, ids in enumerate(shards_of(data)):
            table = pyarrow.table({"id": list(ids), "text": [text_of(each) for each in ids]})
            parquet.write_table(table, directory / f"{number:05}.parquet")

    def open(self, task: Task, states: list[Any]) -> Loader:
        return _Loader(task, states)


class _Loader:
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
        self._dataset = split_dataset_by_node(dataset, rank=task.rank, world_size=task.shape.world)
        self._loader = StatefulDataLoader(self._dataset, batch_size=task.shape.batch, num_workers=task.shape.workers)
        self.epoch = 0
        if states:
            self.epoch = states[task.rank]["epoch"]
            self._loader.load_state_dict(states[task.rank]["loader"])

    def batches(self, epoch: int) -> Iterator[list[int]]:
        self.epoch = epoch
        self._dataset.set_epoch(epoch)
        for batch in self._loader:
            yield checked(batch["id"].tolist(), batch["text"])
        self.epoch = epoch + 1

    def state(self) -> Any:
        return {"loader": self._loader.state_dict(), "epoch": self.epoch}


ADAPTOR = HuggingFace()
