"""Grain over ArrayRecord: files of 64 MiB written with `group_size:1`, as its guide advises for random access.

Benchmarks use MapDataset.source().shuffle().map().batch(). A record is a value, or several in MessagePack. 0 workers
are its own reading threads, 16 by default; 2 workers are mp_prefetch. The matrix uses a repeated MapDataset in an
ElasticIterator, which can resume from any rank: "State of any shard can be used to restore the state of all of the
shards after changes in sharding and global batch size". It drops the run's last batch if it is not full. Epochs
follow one another, so a batch may contain samples of two epochs: here it is taken apart, to count each epoch by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgpack
import numpy as np

from tools.account import Id
from tools.conformance.matrix import CAPACITY, PART, Cell
from tools.conformance.task import Task, checked, row_of
from tools.peers import Layout, Lazy, Loader, Make, Peer, Reading
from tools.workloads import columns_of

grain, experimental = Lazy("grain"), Lazy("grain.experimental")
module = Lazy("array_record.python.array_record_module")
_BINS = 16  # rows that are packed together
_NOT_PACKED_ELASTIC = (
    '"This iterator explicitly disallows many-to-one transformations without a fixed ratio, like `filter` and generic '
    '`IterDataset` transformations." (ElasticIterator; packing is an IterDataset)'
)


class _Loader(Loader):
    def __init__(self, task: Task, states: list[Any]) -> None:
        self._samples = sum(data.samples for data in task.data)
        parts = [grain.MapDataset.source(_source(path)).shuffle(seed=task.seed).repeat() for path in task.sources()]
        dataset = grain.MapDataset.mix(parts, weights=task.weights) if task.weights else parts[0]
        dataset = dataset[: self._samples * task.epochs].map(_id_of)
        shard, workers = grain.sharding.ShardOptions(task.rank, task.shape.world), task.shape.workers
        how = {"multiprocessing_options": grain.multiprocessing.MultiprocessingOptions(workers)} if workers else {}
        elastic = experimental.ElasticIterator(dataset, task.shape.global_batch, shard, **how)
        super().__init__(iter(elastic), task, states)
        self.epoch = self._position() // self._samples
        self._rest: list[Id] | None = None  # of a batch that continues in the next epoch

    def resume(self, states: list[Any]) -> None:
        self._loader.set_state(states[-1])

    def batches(self, epoch: int) -> Iterator[Sequence[Id]]:
        end = (epoch + 1) * self._samples
        if self._rest is not None:
            yield self._rest
            self._rest = None
        while (start := self._position()) < end:
            batch = next(self._loader, None)
            if batch is None:
                return
            numbers: list[Id] = [int(number) for number in batch]
            here = len(range(start + self._task.rank, end, self._task.shape.world))  # samples before the epoch's end
            if here < len(numbers) or self._position() > end:
                self._rest = numbers[here:]
            yield numbers[:here]

    def state(self) -> Any:
        return self._loader.get_state()

    def _position(self) -> int:
        return int(self._loader.get_state()["global_next_index"])


class _Packing(Loader):
    """The packed rows of a rank's own samples, epoch by epoch; its state is that of an epoch's iterator."""

    def __init__(self, task: Task, states: list[Any]) -> None:
        super().__init__(None, task, states)
        if not states:
            self._begin(0)

    def resume(self, states: list[Any]) -> None:
        epoch, state = states[self._task.rank]
        self._begin(epoch)
        self._loader.set_state(state)

    def _begin(self, epoch: int) -> None:
        task, workers = self._task, self._task.shape.workers
        self.epoch = epoch
        source = grain.MapDataset.source(_source(task.sources()[0]))[slice(*PART) if task.part else slice(None)]
        rank = source.shuffle(seed=task.seed + epoch)[task.rank :: task.shape.world].map(_packable)
        rows = experimental.FirstFitPackIterDataset(
            rank.to_iter_dataset(),
            length_struct={"tokens": CAPACITY},
            num_packing_bins=_BINS,
            seed=task.seed,
            meta_features=("id", "text"),
        ).batch(task.shape.batch, drop_remainder=task.drop_last, batch_fn=list)
        if workers:
            rows = rows.mp_prefetch(grain.multiprocessing.MultiprocessingOptions(num_workers=workers))
        self._loader = iter(rows)

    def batches(self, epoch: int) -> Iterator[Sequence[Id]]:
        for batch in self._loader:
            yield [row_of(map(int, row["id"]), row["text"]) for row in batch]
        self._begin(epoch + 1)

    def state(self) -> Any:
        return self.epoch, self._loader.get_state()


class Grain(Peer):
    name = environment = "grain"
    title = "Grain"
    packages = ("grain", "array-record")
    imports = ("grain",)
    total_order = True
    crosses_epochs = True
    drops_tail = True
    packs = True
    no_phases = 'The state of ElasticIterator is "global_next_index" alone: no proportions in it.'
    findings: ClassVar[Mapping[str, str]] = {
        "large": (
            "`MapDataset.shuffle` is no permutation at this size: with each seed that was tried, a sample of an epoch "
            "comes twice and one never."
        )
    }

    def open(self, task: Task, states: list[Any]) -> Loader:
        return _Packing(task, states) if task.packed else _Loader(task, states)

    def unsupported(self, cell: Cell) -> str | None:
        if cell.packed and len({shape.world for shape in cell.shapes}) > 1:
            return _NOT_PACKED_ELASTIC
        return super().unsupported(cell)

    def write(self, directory: Path, kind: str, ids: Sequence[int], make: Make, layout: Layout) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        out, files, room = None, 0, 0  # room: samples or bytes that the open file still takes
        for record in map(_encode, map(make, ids)):
            needed = 1 if layout.shard else len(record)
            if out is None or room < needed:
                if out is not None:
                    out.close()
                out = module.ArrayRecordWriter(str(directory / f"{files:05}.array_record"), "group_size:1")
                files, room = files + 1, layout.shard or layout.size
            out.write(record)
            room -= needed
        if out is not None:
            out.close()

    def random(self, reading: Reading) -> tuple[Callable[[int], Any], Callable[[list[int]], Any]]:
        source, decode = _source(reading.source), _decoder(reading.kind)
        return lambda at: decode(source[at]), lambda numbers: [decode(each) for each in source.__getitems__(numbers)]

    def loader(self, reading: Reading) -> Any:
        if reading.packed:
            texts = _dataset(reading).to_iter_dataset()
            how = {"length_struct": {"tokens": reading.packed}, "num_packing_bins": _BINS, "seed": reading.seed}
            return experimental.FirstFitPackIterDataset(texts, **how).batch(reading.batch_size, drop_remainder=True)
        batches = _dataset(reading).batch(reading.batch_size, batch_fn=columns_of).to_iter_dataset()
        if reading.workers:
            batches = batches.mp_prefetch(grain.multiprocessing.MultiprocessingOptions(num_workers=reading.workers))
        return batches


def _encode(sample: dict[str, Any]) -> bytes:
    """A record: the only value itself, or all of them."""
    values = {name: value.tobytes() if isinstance(value, np.ndarray) else value for name, value in sample.items()}
    return bytes(msgpack.packb(values) if len(values) > 1 else next(iter(values.values())))


def _decode(record: bytes) -> dict[str, Any]:
    sample: dict[str, Any] = msgpack.unpackb(record)
    return sample


def _tokens(record: bytes) -> dict[str, Any]:
    return {"tokens": np.frombuffer(record, np.uint16)}


def _decoder(kind: str) -> Callable[[bytes], Any]:
    """A named function: a lambda would be pickled by value, which fails for workers."""
    return _tokens if kind in ("tokens", "texts") else _decode


def _id_of(record: bytes) -> int:
    sample = _decode(record)
    return checked([sample["id"]], [sample["text"]])[0]


def _packable(record: bytes) -> dict[str, Any]:
    sample = _decode(record)
    return {**sample, "tokens": np.zeros(len(sample["text"].encode()), np.uint8)}


def _source(directory: str) -> Any:
    return grain.sources.ArrayRecordDataSource(sorted(map(str, Path(directory).glob("*.array_record"))))


def _dataset(reading: Reading) -> Any:
    dataset = grain.MapDataset.source(_source(reading.source))
    return dataset.shuffle(seed=7).map(_decoder(reading.kind))


PEER = Grain()
