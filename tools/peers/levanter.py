"""Levanter (marin-levanter): rows of tokens in a TreeCache, that is in Zarr, and its DataLoader.

The matrix shuffles as its configuration of language models does, in blocks of 256 within windows of 512 blocks.
Benchmarks shuffle with `perm_type="linear"`, an arithmetic progression, which takes a third of the processor time. It
has no epochs ("TODO: add epoch reshuffling"; its EpochDataset calls a method that no dataset has any more): each epoch
shuffles with its own key. Its state is the step, `iter_from_step`, with the schedule of batch sizes. Every rank is a
process of JAX, and takes its part of a global array. It has threads, no workers.

It reads rows of one width (TokenSeqDataset), without the masks and weights that its examples add; the matrix has its
texts as bytes, padded. The rows that it adds to an incomplete last batch do not count. Documents of many lengths are
only packed: its get_batch cannot read a shard's first document twice at once, as a mixture does that begins again. A
directory has the cache as `cache`, which must not exist before.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tools.account import Id
from tools.conformance.matrix import CAPACITY, Cell, Data
from tools.conformance.task import Task, checked, number_in, row_of, sample_of, shards_of
from tools.peers import Layout, Lazy, Loader, Make, Peer, Reading
from tools.workloads import WIDTH

jax = Lazy("jax")
data, store, text = Lazy("levanter.data"), Lazy("levanter.store.cache"), Lazy("levanter.data.text")
packing, schedule = Lazy("levanter.data.packing"), Lazy("levanter.schedule")
_BLOCKS = {"io_block_size": 256, "window_blocks": 512}
_ROW = 128  # bytes of the matrix's texts, at most
_MIXED, _MIXED_IN_PHASES = 2048, 24  # samples of a block of a mixture; phases begin with a block
_WHOLE_CACHES = (
    'GreedyPrepackedDataset packs whole caches: "dataset: A PyTree of JaggedArrayStore objects, each representing a '
    'leaf in the dataset."'
)


class _Loader(Loader):
    def __init__(self, task: Task, states: list[Any]) -> None:
        if task.shape.world > 1:
            jax.distributed.initialize(f"127.0.0.1:{os.environ['MASTER_PORT']}", task.shape.world, task.rank)
        self._step, self._sizes = 0, [(0, task.shape.global_batch)]  # the next step; from which step on, which size
        super().__init__(None, task, states)
        self._parts = [_rows(source, packed=task.packed) for source in task.sources()]
        self._samples = sum(len(part.as_sync_dataset()) for part in self._parts)

    def resume(self, states: list[Any]) -> None:
        self.epoch, self._step, sizes = states[-1]
        self._sizes = [*(each for each in sizes if each[0] < self._step), (self._step, self._task.shape.global_batch)]

    def batches(self, epoch: int) -> Iterator[Sequence[Id]]:
        sizes = [schedule.ScheduleStep(*each) for each in self._sizes]
        # Otherwise sizes of earlier runs would have to be divisible by the number of ranks too.
        how = {"pad_final_batch": not self._task.drop_last, "allow_nondivisible_batch_size": True}
        loader = _loader(self._dataset(epoch), sizes, **how)
        for step, batch in enumerate(loader.iter_from_step(self._step), self._step):
            start = loader.scheduler.global_data_offset_by_step(step)
            rows = [_local(leaf, start, self._samples) for leaf in jax.tree.leaves(batch)]
            self._step = step + 1
            if self._task.packed:
                yield list(map(_packed_row, *rows))
            else:
                texts = list(map(_text_of, *rows))
                yield checked(map(number_in, texts), texts)
        self.epoch, self._step, self._sizes = epoch + 1, 0, [(0, self._task.shape.global_batch)]

    def _dataset(self, epoch: int) -> Any:
        task = self._task
        if not task.weights:
            return _shuffled(self._parts[0], task.seed, epoch)
        stages = [(start, _named(weights)) for start, weights in [(0, task.weights), *task.phases]]
        parts = _named([_shuffled(part, task.seed, 0) for part in self._parts])
        block = _MIXED_IN_PHASES if task.phases else _MIXED
        mixture = data.MixtureDataset(parts, stages, block, key=task.seed)  # endless
        return mixture.slice_dataset(epoch * self._samples, (epoch + 1) * self._samples)

    def state(self) -> Any:
        return self.epoch, self._step, self._sizes


class _Epochs:
    """A loader of fixed rows of tokens, in another order in each iteration."""

    def __init__(self, reading: Reading) -> None:
        self._reading, self._epochs = reading, count()
        self._dataset = text.TokenSeqDataset(_cache(reading.source, reading.kind), WIDTH)

    def __iter__(self) -> Iterator[Any]:
        dataset = self._dataset.shuffle(_key(self._reading.seed, next(self._epochs)), perm_type="linear")
        return iter(_loader(dataset, self._reading.batch_size))


class Levanter(Peer):
    name = environment = "levanter"
    title = "Levanter"
    packages = ("marin-levanter",)
    imports = ("levanter.data.text",)
    settings: ClassVar[Mapping[str, str]] = {"JAX_PLATFORMS": "cpu"}
    in_bench = False  # tokens only
    remote = True
    caches = has_workers = False
    trailer = 512 * 16 + 4  # where the 512 chunks of a file of Zarr are, and a checksum of that
    packs = packs_by_order = True  # into a dataset of rows

    def open(self, task: Task, states: list[Any]) -> Loader:
        return _Loader(task, states)

    def unsupported(self, cell: Cell) -> str | None:
        return _WHOLE_CACHES if cell.packed and cell.part else None

    def write(self, directory: Path, kind: str, ids: Sequence[int], make: Make, layout: Layout) -> None:
        cache = directory / "cache"
        if layout.shard is None:
            _write(cache, kind, ids, make)
            return
        os.environ["MARIN_PREFIX"] = tempfile.gettempdir()  # for what its pipeline stores meanwhile
        parts = [ids[first : first + layout.shard] for first in range(0, len(ids), layout.shard)]
        source, processor = _job(kind, parts, make)
        store.build_or_load_cache(str(cache), source, processor)

    def prepare(self, directory: Path, data: Data) -> None:
        os.environ["MARIN_PREFIX"] = tempfile.gettempdir()
        cache = directory / "cache"
        shards = [cache / f"{number:05}" for number in range(len(data.shards))]
        for shard, ids in zip(shards, shards_of(data), strict=True):
            _write(shard, "text", ids, sample_of)
        store.consolidate_shard_cache_ledgers(list(map(str, shards)), str(cache), _exemplar("text"))

    def shards(self, directory: Path) -> list[Path]:
        found = sorted(directory.glob("cache/*/input_ids/data/**/*"))
        return [path for path in found if path.is_file() and path.suffix != ".json"]

    def loader(self, reading: Reading) -> Any:
        return _Epochs(reading)


def _write(cache: Path, kind: str, ids: Sequence[int], make: Make) -> None:
    store.write_levanter_cache((_record(kind, make(number)) for number in ids), str(cache), metadata={})


def _job(kind: str, parts: Sequence[Sequence[int]], make: Make) -> tuple[Any, Any]:
    """Return what a cache is built from, shard by shard: the source of samples, and their processor."""

    sources: Any = data.ShardedDataSource
    processors: Any = data.BatchProcessor

    class Source(sources):  # type: ignore[misc]  # it has no type, as it is imported lazily
        shard_names = tuple(map(str, range(len(parts))))

        def open_shard_at_row(self, shard_name: str, row: int) -> Iterator[dict[str, Any]]:
            return map(make, parts[int(shard_name)][row:])

    class Processor(processors):  # type: ignore[misc]
        output_exemplar = _exemplar(kind)
        num_cpus = 1
        metadata: ClassVar[dict[str, Any]] = {}

        def __call__(self, batch: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
            return [_record(kind, sample) for sample in batch]

    return Source(), Processor()


def _record(kind: str, sample: dict[str, Any]) -> dict[str, Any]:
    """A row of tokens. A text is one of bytes, and a document."""
    if kind == "tokens":
        return {"input_ids": sample["tokens"]}
    document = np.frombuffer(sample["text"].encode(), np.uint8)
    return {"input_ids": np.pad(document, (0, _ROW - len(document))), "document": document}


def _exemplar(kind: str) -> dict[str, Any]:
    if kind == "tokens":
        return {"input_ids": np.zeros(1, np.uint16)}
    return dict.fromkeys(("input_ids", "document"), np.zeros(1, np.uint8))


def _cache(source: str, kind: str) -> Any:
    return store.TreeCache.load(f"{source}/cache", _exemplar(kind))


def _rows(source: str, *, packed: bool) -> Any:
    """A dataset of the matrix's samples, or of rows into which they are packed."""
    cache = _cache(source, "text")
    if not packed:
        return text.TokenSeqDataset(cache, _ROW)
    return packing.GreedyPrepackedDataset({"document": cache.jagged_array_tree()["document"]}, CAPACITY)


def _shuffled(dataset: Any, seed: int, epoch: int) -> Any:
    return dataset.block_shuffle(**_BLOCKS, key=_key(seed, epoch))


def _key(seed: int, epoch: int) -> Any:
    return jax.random.fold_in(jax.random.PRNGKey(seed), epoch)


def _loader(dataset: Any, batch_size: Any, **how: Any) -> Any:
    """A loader of global arrays over all ranks."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
    return data.DataLoader(dataset, batch_size, mesh=mesh, axis_resources={"batch": "data"}, **how)


def _local(array: Any, start: int, samples: int) -> Any:
    """This rank's rows of a global batch that begins at `start`, without those after the epoch's end."""
    (shard,) = array.addressable_shards
    return np.asarray(shard.data)[: max(samples - start - (shard.index[0].start or 0), 0)]


def _text_of(tokens: Any) -> str:
    return str(tokens.tobytes().rstrip(b"\0").decode(errors="replace"))


def _packed_row(tokens: Any, segments: Any) -> str:
    """A row as it is logged; -1 is the segment of what pads it."""
    *documents, _ = np.split(tokens, np.flatnonzero(np.diff(segments, append=-1)) + 1)
    texts = list(map(_text_of, documents))
    return row_of(map(number_in, texts), texts)


def _named(values: Sequence[Any]) -> dict[str, Any]:
    return {str(number): value for number, value in enumerate(values)}


PEER = Levanter()
