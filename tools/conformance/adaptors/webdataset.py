"""WebDataset: split_by_node, split_by_worker, detshuffle of shards and samples, WebLoader.

It has no state that could be saved, so only uninterrupted runs are made.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.conformance.adaptors import Adaptor, Loader
from tools.conformance.matrix import Cell, Data
from tools.conformance.task import Task, shards_of, text_of

_NO_STATE = (
    "\"If you really do want to keep track of epochs and samples, you'll have to keep track of the shards and samples "
    "you have already read. [...] WebDataset can't really do this for you.\" (its author, webdataset issue 271)"
)


class WebDataset(Adaptor):
    name = "webdataset"
    title = "WebDataset"
    packages = ("webdataset",)
    requirements = "webdataset"

    def unsupported(self, cell: Cell) -> str | None:
        return _NO_STATE if cell.resumes or cell.phases else None

    def warm(self) -> None:
        import webdataset  # noqa: F401

    def prepare(self, directory: Path, data: Data) -> None:
        import webdataset

        directory.mkdir(parents=True)
        for number, ids in enumerate(shards_of(data)):
            with webdataset.TarWriter(str(directory / f"{number:05}.tar")) as out:
                for each in ids:
                    out.write({"__key__": f"{each:08}", "json": {"id": each, "text": text_of(each)}})

    def open(self, task: Task, states: list[Any]) -> Loader:
        return _Loader(task)


class _Loader:
    epoch = 0

    def __init__(self, task: Task) -> None:
        import webdataset

        self._seed = task.seed
        parts = [
            webdataset.WebDataset(
                sorted(map(str, path.glob("*.tar"))),
                nodesplitter=webdataset.split_by_node,
                workersplitter=webdataset.split_by_worker,
                shardshuffle=100,
                detshuffle=True,
                seed=task.seed,
                empty_check=False,  # fewer shards than ranks x workers: some have nothing to do
            )
            for path in task.paths()
        ]
        dataset: Any = parts[0]
        if len(parts) > 1:
            dataset = webdataset.DataPipeline(webdataset.RandomMix(parts, list(task.weights)))
        dataset = dataset.compose(
            webdataset.detshuffle(100, seed=task.seed),
            webdataset.map(_id_of),
            webdataset.batched(task.shape.batch, collation_fn=list, partial=True),
        )
        self._loader = webdataset.WebLoader(
            dataset, batch_size=None, num_workers=task.shape.workers, persistent_workers=task.shape.workers > 0
        )

    def batches(self, epoch: int) -> Iterator[list[int]]:
        random.seed(self._seed + epoch)  # RandomMix draws from the global generator; workers fork with it
        yield from self._loader

    def state(self) -> Any:
        raise NotImplementedError(_NO_STATE)


def _id_of(sample: dict[str, Any]) -> int:
    return int(json.loads(sample["json"])["id"])


ADAPTOR = WebDataset()
