"""LanceDB: StreamingDataset, in a loader of PyTorch's kind; random access by Permutation.

Its fastest and its safest mode differ. Benchmarks use the fastest: PyTorch's DataLoader, 1,024 rows read at once, and a
shuffle of clumps of 32, which is nearly twice as fast as its defaults of 64 rows and of single ones. An empty table is
created first, and batches of 1,000 rows are added to it ("iterator ingestion"). The matrix and the faults use the
safest: its StreamingDataLoader, which alone can save a state with workers, its defaults, and a table that is created
with its rows, so that a writer that fails leaves none. Both have a `transform` that takes the values of a whole Arrow
batch as NumPy or Python lists: the default, a dict of Python objects for each row, is a hundred times slower for
tokens. Workers start from a fork server, as it advises.

A dataset is of one epoch. `num_splits` is the matrix's global batch, a multiple of all its ranks x workers: "For the
same samples to form each global training step across topologies, `global_batch_size` must be a multiple of
`num_splits`." A batch of PyTorch's kind has rows of one worker's splits alone. For a global step of all splits, a batch
of a rank is here one batch of each worker, together. The states of all ranks are merged. It packs rows of a column of
tokens, here of a second table. It cannot read from the local S3 server, which answers a range over a whole object with
status 200.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, count, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tools.account import Id
from tools.conformance.matrix import CAPACITY, FEW, PART, Cell, Data
from tools.conformance.task import Task, checked, number_in, row_of, sample_of, shards_of, text_of
from tools.peers import Layout, Lazy, Loader, Make, Peer, Reading
from tools.workloads import arrow_of, columns_of, decode

lancedb, streaming, permutation = Lazy("lancedb"), Lazy("lancedb.streaming"), Lazy("lancedb.permutation")
pyarrow, torch, torch_data = Lazy("pyarrow"), Lazy("torch"), Lazy("torch.utils.data")
_AT_ONCE = 1000
_READ: dict[str, Any] = {"read_batch_size": 1024}
_END, _PAD = 65534, 65535  # tokens that no text has
_END_BYTE, _PAD_BYTE = b"\0", b"\xff"  # the same, where tokens are the bytes of the matrix's texts
_SPLITS, _PACKED_SPLITS = 24, 8  # the global batches, in samples and in packed rows

_MIXTURES = "A dataset reads one table (`StreamingDataset(table)`); nothing in its documentation mixes several."
_FEW_ROWS = (
    '"The filtered row count must be at least `num_splits`" (its documentation), and that is a multiple of ranks x '
    "workers."
)
_DROP_LAST = (
    '"`drop_last=True` is not supported because worker replicas discard incomplete tails independently, which cannot '
    'produce a topology-independent checkpoint." (StreamingDataLoader)'
)
_WHOLE_STEPS = (
    '"Packed checkpoints require equal emitted-block counts across the rank\'s splits for any worker count" '
    "(StreamingDataLoader): 3 ranks x 2 workers need at least 6 splits, and 9 rows are no whole steps of these."
)
_DROPPED = (
    'As documented, "up to `num_splits - 1` surplus rows are dropped so that every split has the same length". Here '
    "there are 6 splits, as few as 3 ranks x 2 workers allow."
)


class _Loader(Loader):
    """A dataset for each epoch; a rank's batch is a batch of each worker."""

    _table = "samples"

    def __init__(self, task: Task, states: list[Any]) -> None:
        super().__init__(None, task, states)
        if not states:
            self._begin(0)

    def resume(self, states: list[Any]) -> None:
        state = streaming.StreamingDataset.merge_state_dicts(states)
        self._begin(state["epoch"])
        self._dataset.load_state_dict(state)

    def _begin(self, epoch: int) -> None:
        (source,), shape = self._task.sources(), self._task.shape
        self.epoch = epoch
        self._dataset = streaming.StreamingDataset(
            lancedb.connect(source).open_table(self._table),
            shuffle_seed=self._task.seed,
            epoch=epoch,
            rank=self._task.rank,
            world_size=shape.world,
            **self._how(),
        )

    def _how(self) -> dict[str, Any]:
        splits, shape = _SPLITS, self._task.shape
        if self._task.data[0].samples % splits:  # some would be dropped: as few as possible
            splits = shape.world * max(shape.workers, 1)
        return {"num_splits": splits, "transform": _rows}

    def batches(self, epoch: int) -> Iterator[Sequence[Id]]:
        workers = self._task.shape.workers
        each = max(workers, 1)
        loader = streaming.StreamingDataLoader(
            self._dataset, self._task.shape.batch // each, collate_fn=columns_of, **_workers(workers)
        )
        parts = iter(loader)
        while batch := list(islice(parts, each)):
            ids = chain.from_iterable(part["id"].tolist() for part in batch)
            yield checked(ids, chain.from_iterable(part["text"] for part in batch))
        self._begin(epoch + 1)

    def state(self) -> Any:
        return self._dataset.state_dict()


class _Packing(_Loader):
    """Packed rows, which cut texts: a sample counts in the row where it ends.

    A batch has a row of each split, so a text continues at its place in the next batch.
    """

    _table = "texts"

    def __init__(self, task: Task, states: list[Any]) -> None:
        self._begun = [b""] * task.shape.batch  # at each place of a batch, the text that has not ended
        super().__init__(task, states)

    def resume(self, states: list[Any]) -> None:
        super().resume([state for state, _ in states])
        _, self._begun = states[self._task.rank]

    def _how(self) -> dict[str, Any]:
        task = self._task
        ids = task.data[0].ids[slice(*PART)] if task.part else task.data[0].ids
        longest = sorted((len(text_of(number)) + 1 for number in ids), reverse=True)[: len(ids) // _PACKED_SPLITS]
        return {
            "num_splits": _PACKED_SPLITS,
            "columns": ["tokens"],
            "filter": f"id >= {ids.start} AND id < {ids.stop}",
            "pack_sequences": CAPACITY,
            "eos_id": ord(_END_BYTE),
            "pad_id": ord(_PAD_BYTE),
            # Enough for a split of the longest texts: what exceeds it would be left out.
            "blocks_per_epoch": -(-sum(longest) // CAPACITY) * _PACKED_SPLITS,
        }

    def batches(self, epoch: int) -> Iterator[Sequence[Id]]:
        shape = self._task.shape
        loader = streaming.StreamingDataLoader(self._dataset, shape.batch, **_workers(shape.workers))
        for batch in loader:
            rows = [self._ended(place, bytes(row)) for place, row in enumerate(batch["input_ids"].tolist())]
            yield [row_of(map(number_in, texts), texts) for texts in rows if texts]
        self._begin(epoch + 1)

    def _ended(self, place: int, row: bytes) -> list[str]:
        """Return the texts that end in a row."""
        *ended, self._begun[place] = (self._begun[place] + row.rstrip(_PAD_BYTE)).split(_END_BYTE)
        return [text.decode(errors="replace") for text in ended]

    def state(self) -> Any:
        return super().state(), self._begun


class LanceDB(Peer):
    name = environment = "lancedb"
    title = "LanceDB"
    packages = ("lancedb",)
    imports = ("lancedb.streaming", "torch.utils.data")
    packs = True
    findings: ClassVar[Mapping[str, str]] = dict.fromkeys(("uneven", "uneven-resume"), _DROPPED)

    def unsupported(self, cell: Cell) -> str | None:
        if cell.mixture:
            return _MIXTURES
        if cell.data == (FEW,):
            return _FEW_ROWS
        if cell.drop_last:
            return _DROP_LAST
        return _WHOLE_STEPS if cell.packed and len(set(cell.shapes)) > 1 else None

    def open(self, task: Task, states: list[Any]) -> Loader:
        return _Packing(task, states) if task.packed else _Loader(task, states)

    def prepare(self, directory: Path, data: Data) -> None:
        """A file for each shard; the texts a second time, as lists of their bytes."""
        database = lancedb.connect(str(directory))
        for ids in shards_of(data):
            rows = _lists_of(list(map(sample_of, ids)))
            tokens = [np.frombuffer(text.encode(), np.uint8) for text in rows["text"]]
            for name, columns in (("samples", rows), ("texts", {"id": rows["id"], "tokens": tokens})):
                table = pyarrow.table(columns)
                database.create_table(name, schema=table.schema, exist_ok=True).add(table)

    def shards(self, directory: Path) -> list[Path]:
        return sorted(directory.glob("samples.lance/data/*"))

    def write(self, directory: Path, kind: str, ids: Sequence[int], make: Make, layout: Layout) -> None:
        samples = map(make, ids)
        batches = iter(lambda: list(islice(samples, layout.shard or _AT_ONCE)), [])
        columns = _lists_of if kind == "texts" else columns_of
        _write(directory, (_arrow(columns(rows)) for rows in batches), at_once=layout.shard is not None)

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
        how = _workers(reading.workers)
        return iter(torch_data.DataLoader(dataset, reading.batch_size, collate_fn=collate, **how))


def _workers(count: int) -> dict[str, Any]:
    """A loader's arguments for that many workers. It advises against plain forks."""
    how: dict[str, Any] = {"num_workers": count}
    if count:
        how["multiprocessing_context"] = context = get_context("forkserver")
        context.set_forkserver_preload(["lancedb.streaming", "torch.utils.data", __name__])
    return how


def _table(reading: Reading) -> Any:
    return lancedb.connect(reading.source).open_table("samples")


def _write(directory: Path, batches: Iterator[Any], at_once: bool = False) -> None:
    """Write a table; if `at_once`, it is created with its rows, else empty."""
    first = next(batches)
    rows = pyarrow.RecordBatchReader.from_batches(first.schema, chain([first], batches))
    database = lancedb.connect(str(directory))
    if at_once:
        database.create_table("samples", rows)
    else:
        database.create_table("samples", schema=first.schema).add(rows)


def _arrow(columns: Mapping[str, Any]) -> Any:
    """A record batch; an array of numbers [n, width] is a column of lists of one length."""
    return pyarrow.record_batch({name: arrow_of(values) for name, values in columns.items()})


def _lists_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: [row[name] for row in rows] for name in rows[0]}


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
