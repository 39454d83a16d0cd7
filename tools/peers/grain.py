"""Grain over ArrayRecord: files of 64 MiB written with `group_size:1`, as its guide advises for random access.

Benchmarks use MapDataset.source().shuffle().map().batch(), and decode records by the shortest code possible; 0 workers
are its own reading threads, 16 by default; 2 workers are mp_prefetch. The matrix uses a repeated MapDataset in an
ElasticIterator, which can resume from any rank: "State of any shard can be used to restore the state of all of the
shards after changes in sharding and global batch size". It drops the run's last batch if it is not full. Epochs
follow one another, so a batch may contain samples of two epochs: here it is taken apart, to count each epoch by itself.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tools.conformance.task import Task, checked
from tools.peers import Layout, Loader, Make, Peer, Reading

_NUMBER = struct.Struct("<q")
_FOR_RANDOM_ACCESS = "readahead_buffer_size:0,max_parallelism:0,index_storage_option:in_memory"


class _Loader(Loader):
    def __init__(self, task: Task, states: list[Any]) -> None:
        import grain
        from grain.experimental import ElasticIterator

        parts = [grain.MapDataset.source(_source(path)).shuffle(seed=task.seed).repeat() for path in task.paths()]
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
        self.epoch = self._position() // self._samples
        self._first, self._stride = task.rank, task.shape.world
        self._rest: list[int] | None = None  # of a batch that continues in the next epoch

    def batches(self, epoch: int) -> Iterator[list[int]]:
        end = (epoch + 1) * self._samples
        if self._rest is not None:
            yield self._rest
            self._rest = None
        while self._position() < end:
            start = self._position()
            batch = next(self._iterator, None)
            if batch is None:
                return
            places = itertools.count(start + self._first, self._stride)
            here = [int(number) for number, place in zip(batch, places, strict=False) if place < end]
            if len(here) < len(batch) or self._position() > end:
                self._rest = [int(number) for number in batch[len(here) :]]
            yield here

    def state(self) -> Any:
        return self._iterator.get_state()

    def _position(self) -> int:
        return int(self._iterator.get_state()["global_next_index"])


class Grain(Peer):
    name = environment = "grain"
    title = "Grain"
    packages = ("grain", "array-record")
    rank_loader = _Loader
    total_order = True
    crosses_epochs = True
    drops_tail = True
    no_phases = 'The state of ElasticIterator is "global_next_index" alone: no proportions in it.'
    findings: ClassVar[Mapping[str, str]] = {
        "large": (
            "`MapDataset.shuffle` is no permutation at this size: with each seed that was tried, a sample of an epoch "
            "comes twice and one never."
        )
    }

    def warm(self) -> None:
        import grain  # noqa: F401

    def write(self, directory: Path, kind: str, ids: Sequence[int], make: Make, layout: Layout) -> None:
        from array_record.python.array_record_module import ArrayRecordWriter

        directory.mkdir(parents=True, exist_ok=True)
        out, files, size, count = None, 0, 0, 0
        for sample in map(make, ids):
            record = _encode(kind, sample)
            full = count == layout.shard if layout.shard else size + len(record) > layout.size
            if out is None or full:
                if out is not None:
                    out.close()
                out = ArrayRecordWriter(str(directory / f"{files:05}.array_record"), "group_size:1")
                files, size, count = files + 1, 0, 0
            out.write(record)
            size, count = size + len(record), count + 1
        if out is not None:
            out.close()

    def samples(self, reading: Reading) -> Any:
        return _dataset(reading).to_iter_dataset()

    def item(self, reading: Reading) -> Callable[[int], Any]:
        source, decode = _source(Path(reading.source)), _DECODE[reading.kind]
        return lambda at: decode(source[at])

    def items(self, reading: Reading) -> Callable[[list[int]], Any]:
        source, decode = _source(Path(reading.source)), _DECODE[reading.kind]
        return lambda numbers: [decode(record) for record in source.__getitems__(numbers)]

    def loader(self, reading: Reading) -> Any:
        import grain

        from tools.peers.torch_helpers import collate

        batches = _dataset(reading).batch(reading.batch_size, batch_fn=collate(reading.kind)).to_iter_dataset()
        if reading.workers:
            batches = batches.mp_prefetch(grain.multiprocessing.MultiprocessingOptions(num_workers=reading.workers))
        return batches

    def write_records(self, directory: Path, records: Sequence[bytes]) -> None:
        """Write opaque records, uncompressed, its fastest way."""
        from array_record.python.array_record_module import ArrayRecordWriter

        out = ArrayRecordWriter(str(directory / "records.array_record"), "group_size:1,uncompressed")
        for record in records:
            out.write(record)
        out.close()

    def records(self, directory: str, reader: bool) -> tuple[Callable[[int], Any], Callable[[list[int]], Any]]:
        """Random access to one record, and to many, by ArrayRecordReader or ArrayRecordDataSource."""
        from array_record.python.array_record_data_source import ArrayRecordDataSource
        from array_record.python.array_record_module import ArrayRecordReader

        file = f"{directory}/records.array_record"
        if reader:
            one, many = ArrayRecordReader(file, _FOR_RANDOM_ACCESS), ArrayRecordReader(file)
            return lambda at: one.read([at]), many.read
        source = ArrayRecordDataSource(file)
        return source.__getitem__, source.__getitems__


def _encode(kind: str, sample: dict[str, Any]) -> bytes:
    if kind == "tokens":
        return bytes(sample["tokens"])
    if kind == "images":
        return bytes(_NUMBER.pack(sample["label"]) + sample["image"])
    if kind == "text":
        return bytes(_NUMBER.pack(sample["id"]) + sample["text"].encode())
    import msgpack

    packed: bytes = msgpack.packb({**sample, "vector": sample["vector"].tobytes()})
    return packed


def _tokens(record: bytes) -> Any:
    return np.frombuffer(record, np.uint16)


def _image(record: bytes) -> dict[str, Any]:
    return {"image": record[8:], "label": _NUMBER.unpack_from(record)[0]}


def _text(record: bytes) -> dict[str, Any]:
    return {"text": record[8:].decode(), "id": _NUMBER.unpack_from(record)[0]}


def _mixed(record: bytes) -> Any:
    import msgpack

    sample = msgpack.unpackb(record)
    sample["vector"] = np.frombuffer(sample["vector"], np.float32)
    return sample


_DECODE: dict[str, Callable[[bytes], Any]] = {"tokens": _tokens, "images": _image, "text": _text, "mixed": _mixed}
"""Named functions: a lambda would be pickled by value, which fails for workers."""


def _id_of(record: bytes) -> int:
    found = _text(record)
    return checked([found["id"]], [found["text"]])[0]


def _source(directory: Path) -> Any:
    import grain

    return grain.sources.ArrayRecordDataSource(sorted(map(str, directory.glob("*.array_record"))))


def _dataset(reading: Reading) -> Any:
    import grain

    dataset = grain.MapDataset.source(_source(Path(reading.source)))
    return (dataset.shuffle(seed=7) if reading.shuffle else dataset).map(_DECODE[reading.kind])


PEER = Grain()
