"""Grain over ArrayRecord: files of 64 MiB written with `group_size:1`, as its guide has it for random access.

MapDataset.source().shuffle().map().batch(), the records decoded by the shortest code there is; 0 workers are its own
reading threads, 16 by default; 2 workers are mp_prefetch. ArrayRecord's own protocol is in arrayrecord functions here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grain
import msgpack
import numpy as np
from array_record.python.array_record_data_source import ArrayRecordDataSource
from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter

from tools.bench import workloads
from tools.bench.contestants import one_by_one
from tools.bench.contestants.collate import columns_of
from tools.bench.measure import Figures, idle_cpu, rate_of_calls, rate_of_epochs

_FILE = 2**26
_NUMBER = struct.Struct("<q")
_FOR_RANDOM_ACCESS = {"readahead_buffer_size": "0", "max_parallelism": "0", "index_storage_option": "in_memory"}


def _encode(workload: str, sample: dict[str, Any]) -> bytes:
    if workload == "tokens":
        return bytes(sample["tokens"])
    if workload == "images":
        return bytes(_NUMBER.pack(sample["label"]) + sample["image"])
    if workload == "text":
        return bytes(_NUMBER.pack(sample["id"]) + sample["text"].encode())
    packed: bytes = msgpack.packb({**sample, "vector": sample["vector"].tobytes()})
    return packed


def _tokens(record: bytes) -> Any:
    return np.frombuffer(record, np.uint16)


def _image(record: bytes) -> Any:
    return {"image": record[8:], "label": _NUMBER.unpack_from(record)[0]}


def _text(record: bytes) -> Any:
    return {"text": record[8:].decode(), "id": _NUMBER.unpack_from(record)[0]}


def _mixed(record: bytes) -> Any:
    sample = msgpack.unpackb(record)
    sample["vector"] = np.frombuffer(sample["vector"], np.float32)
    return sample


_DECODE: dict[str, Callable[[bytes], Any]] = {"tokens": _tokens, "images": _image, "text": _text, "mixed": _mixed}


def prepare(data: str, workload: str, samples: int) -> Figures:
    """Write the dataset that is read."""
    return one_by_one.prepare(_write, data, workload, samples)


def write(scratch: str, workload: str, samples: int) -> Figures:
    """One by one: it has no other way."""
    return one_by_one.rate(_write, scratch, workload, samples)


def _write(directory: str, workload: str, samples: list[dict[str, Any]]) -> None:
    files, size, out = 0, 0, None
    for sample in samples:
        record = _encode(workload, sample)
        if out is None or size + len(record) > _FILE:
            if out is not None:
                out.close()
            out, size, files = ArrayRecordWriter(f"{directory}/{files:05}.array_record", "group_size:1"), 0, files + 1
        out.write(record)
        size += len(record)
    if out is not None:
        out.close()


def _source(data: str) -> Any:
    return grain.sources.ArrayRecordDataSource(sorted(map(str, Path(data).glob("*.array_record"))))


def iterate(data: str, workload: str, samples: int, shuffle: bool) -> Figures:
    """Sample by sample, read by its threads."""
    dataset = grain.MapDataset.source(_source(data))
    dataset = (dataset.shuffle(seed=7) if shuffle else dataset).map(_DECODE[workload])
    return rate_of_epochs(dataset.to_iter_dataset, 1, samples)


def random_one(data: str, workload: str, samples: int) -> Figures:
    """`source[i]`, decoded; the source's own options are those for random access."""
    source, decode = _source(data), _DECODE[workload]
    numbers = workloads.random_numbers(samples, 1 << 20).tolist()
    return rate_of_calls(lambda call: decode(source[numbers[call % len(numbers)]]), 1)


def random_many(data: str, workload: str, samples: int, each: int = 512) -> Figures:
    """`source.__getitems__([...])`, decoded"""
    source, decode = _source(data), _DECODE[workload]
    lists = workloads.random_numbers(samples, each * 256).reshape(256, each).tolist()
    return rate_of_calls(lambda call: [decode(record) for record in source.__getitems__(lists[call % 256])], each)


def _loader(data: str, batch_size: int, workers: int, workload: str) -> Any:
    dataset = grain.MapDataset.source(_source(data)).shuffle(seed=7).map(_DECODE[workload])
    collate = np.stack if workload == "tokens" else columns_of
    batches = dataset.batch(batch_size, batch_fn=collate).to_iter_dataset()
    return (
        batches.mp_prefetch(grain.multiprocessing.MultiprocessingOptions(num_workers=workers)) if workers else batches
    )


def loader(data: str, workload: str, samples: int, batch_size: int, workers: int) -> Figures:
    """A shuffled MapDataset in batches."""
    batches = _loader(data, batch_size, workers, workload)
    return rate_of_epochs(lambda: batches, batch_size, samples)


def idle(data: str, workload: str, samples: int, workers: int) -> Figures:
    """Processor time while nobody reads."""
    return idle_cpu(_loader(data, 32, workers, workload))


def prepare_lorem(data: str, records: int) -> Figures:
    """The dataset of ArrayRecord's performance guide, uncompressed, its fastest."""
    out = ArrayRecordWriter(f"{data}/lorem.array_record", "group_size:1,uncompressed")
    for number in range(records):
        out.write(workloads.lorem(number).encode())
    out.close()
    return {}


def lorem_one(data: str, records: int, reader: bool) -> Figures:
    """Individual access in a random permutation, by ArrayRecordReader or ArrayRecordDataSource."""
    order, file = workloads.permutation(records), f"{data}/lorem.array_record"
    if reader:
        options = ",".join(f"{name}:{value}" for name, value in _FOR_RANDOM_ACCESS.items())
        source = ArrayRecordReader(file, options)
        return rate_of_calls(lambda call: source.read([order[call % records]]), 1)
    dataset = ArrayRecordDataSource(file)
    return rate_of_calls(lambda call: dataset[order[call % records]], 1)


def lorem_all(data: str, records: int, reader: bool) -> Figures:
    """Batch access: the whole permutation in one call."""
    order, file = workloads.permutation(records), f"{data}/lorem.array_record"
    if reader:
        source = ArrayRecordReader(file)
        return rate_of_calls(lambda call: source.read(order), records)
    dataset = ArrayRecordDataSource(file)
    return rate_of_calls(lambda call: dataset.__getitems__(order), records)
