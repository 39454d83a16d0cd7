"""mosaicml-streaming: StreamingDataLoader.state_dict() on rank zero, load_state_dict() on every rank.

`batch_size` is given to dataset and loader, as its documentation asks; the order is py1e's, its default. Every leg runs
in new processes: its workers hang for ever once the process that starts them has iterated by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from tools.conformance.adaptors import Adaptor, Loader
from tools.conformance.matrix import Cell, Data
from tools.conformance.task import Task, checked, shards_of, text_of
from tools.peers.torchvision import declare_torchvision_operators

_HASH = "xxh64"
_SAMPLE_BYTES = 70
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
            with MDSWriter(out=str(directory / f"part{number:05}"), columns=columns, hashes=[_HASH]) as out:
                for each in ids:
                    out.write({"id": each, "text": text_of(each)})
        merge_index(str(directory), keep_local=True)

    def write(self, directory: Path, ids: Sequence[int], shard: int) -> None:
        from streaming import MDSWriter

        columns, size = {"id": "int", "text": "str"}, shard * _SAMPLE_BYTES
        with MDSWriter(out=str(directory), columns=columns, size_limit=size, hashes=[_HASH]) as out:
            for each in ids:
                out.write({"id": each, "text": text_of(each)})

    def open(self, task: Task, states: list[Any]) -> Loader:
        return _Loader(task, states)


class _Loader:
    def __init__(self, task: Task, states: list[Any]) -> None:
        from streaming import Stream, StreamingDataLoader, StreamingDataset

        which: dict[str, Any] = {"local": task.sources()[0]}
        if task.remote:
            local = str(Path(task.directory, "cache"))
            which = {"remote": task.sources()[0], "local": local, "validate_hash": _HASH}
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
            yield checked(batch["id"].tolist(), batch["text"])

    def state(self) -> Any:
        return json.loads(json.dumps(self._loader.state_dict()))


ADAPTOR = MosaicML()
