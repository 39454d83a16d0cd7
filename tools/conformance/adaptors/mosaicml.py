"""mosaicml-streaming: StreamingDataLoader.state_dict() on rank zero, load_state_dict() on every rank.

`batch_size` is given to dataset and loader, as its documentation asks; the order is py1e's, its default. Every leg runs
in new processes: its workers hang for ever once the process that starts them has iterated by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from tools.conformance.adaptors import Adaptor, Loader
from tools.conformance.matrix import Cell, Data
from tools.conformance.task import Task, shards_of, text_of
from tools.peers.torchvision import declare_torchvision_operators

_PADDED = (
    "Every rank gets equally many samples, and what is missing for that is filled up with repeated ones "
    "(`get_partitions_orig`: `ids = np.concatenate([ids, last], 1)`)."
)


class MosaicML(Adaptor):
    name = "mosaicml"
    title = "mosaicml-streaming"
    packages = ("mosaicml-streaming",)
    requirements = "mosaicml"
    shares_memory = True

    findings: ClassVar[Mapping[str, str]] = {
        "uneven": _PADDED,
        "uneven-resume": _PADDED,
        "few": _PADDED,
        "few-resume": f"{_PADDED} The resumed run draws them from what is left, so that another sample comes twice.",
    }

    def unsupported(self, cell: Cell) -> str | None:
        if cell.phases:
            return (
                '"Checkpoints are represented in JSON as follows": epoch, sample_in_epoch, shuffle_seed, '
                "num_canonical_nodes; no proportions."
            )
        return None

    def warm(self) -> None:
        declare_torchvision_operators()
        import streaming  # noqa: F401

    def prepare(self, directory: Path, data: Data) -> None:
        from streaming import MDSWriter
        from streaming.base.util import merge_index

        columns = {"id": "int", "text": "str"}
        for number, ids in enumerate(shards_of(data)):  # one shard each
            with MDSWriter(out=str(directory / f"part{number:05}"), columns=columns) as out:
                for each in ids:
                    out.write({"id": each, "text": text_of(each)})
        merge_index(str(directory), keep_local=True)

    def open(self, task: Task, states: list[Any]) -> Loader:
        return _Loader(task, states)


class _Loader:
    def __init__(self, task: Task, states: list[Any]) -> None:
        from streaming import Stream, StreamingDataLoader, StreamingDataset

        which: dict[str, Any] = {"local": str(task.paths()[0])}
        if task.nodes:  # each has its own disk; canonical nodes as advised, a multiple of all numbers of nodes to come
            copy = Path(task.directory, f"node{task.rank}")
            which = {"remote": str(task.paths()[0]), "local": str(copy), "num_canonical_nodes": 12}
        if len(task.data) > 1:
            pairs = zip(task.paths(), task.weights, strict=True)
            which = {
                "streams": [Stream(local=str(path), proportion=weight) for path, weight in pairs],
                "epoch_size": sum(data.samples for data in task.data),
            }
        dataset = StreamingDataset(shuffle=True, shuffle_seed=task.seed, batch_size=task.shape.batch, **which)
        self._loader = StreamingDataLoader(
            dataset, batch_size=task.shape.batch, num_workers=task.shape.workers, drop_last=False
        )
        self.epoch = 0
        if states:
            self._loader.load_state_dict(states[0])
            self.epoch = states[0]["epoch"]

    def batches(self, epoch: int) -> Iterator[list[int]]:
        for batch in self._loader:
            yield batch["id"].tolist()

    def state(self) -> Any:
        return json.loads(json.dumps(self._loader.state_dict()))


ADAPTOR = MosaicML()
