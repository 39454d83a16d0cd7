"""LanceDB: StreamingDataset in PyTorch's DataLoader, as its documentation shows; random access by Permutation.

Rows are written as Arrow batches of 1,000 ("iterator ingestion"). A `transform` takes the values of a whole Arrow batch
as NumPy or Python lists: the default, a dict of Python objects for each row, is a hundred times slower for tokens. It
reads 1,024 rows at once and shuffles clumps of 32, which is nearly twice as fast as its defaults of 64 rows and of
single ones. A dataset is of one epoch. `pack_sequences` packs texts. It cannot read from the local S3 server, which
answers a range over a whole object with status 200.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from tools.peers import Layout, Lazy, Make, Peer, Reading
from tools.workloads import columns_of, decode

lancedb, streaming, permutation = Lazy("lancedb"), Lazy("lancedb.streaming"), Lazy("lancedb.permutation")
pyarrow, torch, torch_data = Lazy("pyarrow"), Lazy("torch"), Lazy("torch.utils.data")
_AT_ONCE = 1000
_READ: dict[str, Any] = {"read_batch_size": 1024}
_END, _PAD = 65534, 65535  # tokens that no text has


class LanceDB(Peer):
    name = environment = "lancedb"
    title = "LanceDB"
    packages = ("lancedb",)
    imports = ("lancedb.streaming", "torch.utils.data")
    in_conformance = in_faults = False

    def write(self, directory: Path, kind: str, ids: Sequence[int], make: Make, layout: Layout) -> None:
        samples = map(make, ids)
        batches = iter(lambda: list(islice(samples, _AT_ONCE)), [])
        columns = _lists_of if kind == "texts" else columns_of
        _write(directory, (_arrow(columns(rows)) for rows in batches))

    def write_batches(self, directory: Path, kind: str, batch: dict[str, Any]) -> None:
        samples = len(next(iter(batch.values())))
        parts = range(0, samples, _AT_ONCE)
        _write(directory, (_arrow({name: its[at : at + _AT_ONCE] for name, its in batch.items()}) for at in parts))

    def random(self, reading: Reading) -> tuple[Callable[[int], Any], Callable[[list[int]], Any]]:
        rows = permutation.Permutation.identity(_table(reading)).with_transform(_rows)
        return lambda number: rows[number][0], rows.__getitems__

    def loader(self, reading: Reading) -> Any:
        return _Epochs(reading)


class _Epochs:
    """A loader that makes a dataset for each epoch."""

    def __init__(self, reading: Reading) -> None:
        self._reading, self._table, self._epochs = reading, _table(reading), count()

    def __iter__(self) -> Iterator[Any]:
        reading, epoch = self._reading, next(self._epochs)
        how: dict[str, Any] = {"transform": _decoded if reading.decoded else _rows, "shuffle_clump_size": 32}
        if reading.packed:
            tokens = pyarrow.compute.sum(pyarrow.compute.list_value_length(self._table.to_arrow()["tokens"])).as_py()
            how = {"columns": ["tokens"], "pack_sequences": reading.packed, "eos_id": _END, "pad_id": _PAD}
            how["blocks_per_epoch"] = tokens // reading.packed
        splits = max(reading.workers, 1)
        dataset = streaming.StreamingDataset(
            self._table, num_splits=splits, shuffle_seed=reading.seed, epoch=epoch, **_READ, **how
        )
        collate = None if reading.packed or reading.decoded else columns_of
        how = {"num_workers": reading.workers}
        if reading.workers:  # it advises against plain forks
            how["multiprocessing_context"] = context = get_context("forkserver")
            context.set_forkserver_preload(["lancedb.streaming", "torch.utils.data", __name__])
        return iter(torch_data.DataLoader(dataset, reading.batch_size, collate_fn=collate, **how))


def _table(reading: Reading) -> Any:
    return lancedb.connect(reading.source).open_table("samples")


def _write(directory: Path, batches: Iterator[Any]) -> None:
    first = next(batches)
    table = lancedb.connect(str(directory)).create_table("samples", schema=first.schema)
    table.add(
        pyarrow.RecordBatchReader.from_batches(first.schema, (each for part in ([first], batches) for each in part))
    )


def _arrow(columns: Mapping[str, Any]) -> Any:
    """A record batch; an array of numbers [n, width] is a column of lists of one length."""
    return pyarrow.record_batch({name: _values(values) for name, values in columns.items()})


def _lists_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def _values(values: Any) -> Any:
    if isinstance(values, np.ndarray) and values.ndim == 2:
        return pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(values.reshape(-1)), values.shape[1])
    return pyarrow.array(values)


def _rows(batch: Any) -> list[dict[str, Any]]:
    """Tokens as views of the Arrow batch, other values as Python objects."""
    columns = {name: _column(batch.column(name)) for name in batch.schema.names}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _column(values: Any) -> Any:
    if pyarrow.types.is_fixed_size_list(values.type):
        return values.flatten().to_numpy().reshape(len(values), -1)
    return values.to_pylist()


def _decoded(batch: Any) -> list[dict[str, Any]]:
    return [decode(row) for row in _rows(batch)]


PEER = LanceDB()
