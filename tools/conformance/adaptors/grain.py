"""Grain: ArrayRecord files, a shuffled and repeated MapDataset, ElasticIterator; any rank's state for all.

"State of any shard can be used to restore the state of all of the shards after changes in sharding and global batch
size", says its ElasticIterator, which drops what does not fill the run's last batch. Epochs follow one another in one
line, so that a batch may lie in two of them: here it is taken apart, to count each epoch by itself.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from tools.conformance.adaptors import Adaptor, Loader
from tools.conformance.matrix import Cell, Data
from tools.conformance.task import Task, checked, shards_of, text_of


class Grain(Adaptor):
    name = "grain"
    title = "Grain"
    packages = ("grain", "array-record")
    requirements = "grain"
    total_order = True
    crosses_epochs = True
    drops_tail = True

    findings: ClassVar[Mapping[str, str]] = {
        "large": (
            "`MapDataset.shuffle` is no permutation at this size: with each seed that was tried, a sample of an epoch "
            "comes twice and one never."
        )
    }

    def unsupported(self, cell: Cell) -> str | None:
        if cell.phases:
            return 'The state of ElasticIterator is "global_next_index" alone: no proportions in it.'
        return None

    def warm(self) -> None:
        import grain  # noqa: F401

    def prepare(self, directory: Path, data: Data) -> None:
        from array_record.python.array_record_module import ArrayRecordWriter

        directory.mkdir(parents=True)
        for number, ids in enumerate(shards_of(data)):
            out = ArrayRecordWriter(str(directory / f"{number:05}.array_record"), "group_size:1")
            for each in ids:
                out.write(json.dumps({"id": each, "text": text_of(each)}).encode())
            out.close()

    def write(self, directory: Path, ids: Sequence[int], shard: int) -> None:
        from array_record.python.array_record_module import ArrayRecordWriter

        directory.mkdir(parents=True, exist_ok=True)
        for start in range(0, len(ids), shard):
            out = ArrayRecordWriter(str(directory / f"{start // shard:05}.array_record"), "group_size:1")
            for each in ids[start : start + shard]:
                out.write(json.dumps({"id": each, "text": text_of(each)}).encode())
            out.close()

    def open(self, task: Task, states: list[Any]) -> Loader:
        return _Loader(task, states)


class _Loader:
    def __init__(self, task: Task, states: list[Any]) -> None:
        import grain
        from grain.experimental import ElasticIterator

        parts = []
        for path in task.paths():
            source = grain.sources.ArrayRecordDataSource(sorted(map(str, path.glob("*.array_record"))))
            parts.append(grain.MapDataset.source(source).shuffle(seed=task.seed).repeat())
        dataset = parts[0] if len(parts) == 1 else grain.MapDataset.mix(parts, weights=task.weights)
        self._samples = sum(data.samples for data in task.data)
        dataset = dataset[: self._samples * task.epochs].map(_id_of)
        workers = task.shape.workers
        self._iterator: Any = iter(
            ElasticIterator(
                dataset,
                task.shape.global_batch,
                grain.sharding.ShardOptions(task.rank, task.shape.world),
                multiprocessing_options=grain.multiprocessing.MultiprocessingOptions(workers) if workers else None,
            )
        )
        if states:
            self._iterator.set_state(states[-1])
        self._first, self._stride = task.rank, task.shape.world
        self._rest: list[int] | None = None  # of a batch that goes on in the next epoch

    @property
    def epoch(self) -> int:
        return self._position() // self._samples

    def batches(self, epoch: int) -> Iterator[list[int]]:
        if self._rest is not None:
            yield self._rest
            self._rest = None
        while self._position() < (epoch + 1) * self._samples:
            start = self._position()
            batch = next(self._iterator, None)
            if batch is None:
                return
            places = itertools.count(start + self._first, self._stride)
            here = [
                int(number) for number, place in zip(batch, places, strict=False) if place < (epoch + 1) * self._samples
            ]
            if len(here) < len(batch) or self._position() > (epoch + 1) * self._samples:
                self._rest = [int(number) for number in batch[len(here) :]]
            yield here

    def state(self) -> Any:
        return self._iterator.get_state()

    def _position(self) -> int:
        return int(self._iterator.get_state()["global_next_index"])


def _id_of(record: bytes) -> int:
    value = json.loads(record)
    return checked([value["id"]], [value["text"]])[0]


ADAPTOR = Grain()
