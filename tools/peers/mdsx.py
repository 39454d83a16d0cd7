"""mdsx with its defaults: checksums written and checked, fsync of each shard; one state for all ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import mdsx
from tools.account import Id
from tools.conformance.matrix import CAPACITY, PART, WINDOW
from tools.conformance.task import Task, checked, row_of
from tools.peers import Layout, Lazy, Loader, Make, Peer, Reading

loaders = Lazy("mdsx.torch")

_SAMPLE_BYTES = 100  # of the matrix's samples, about
_AT_ONCE = 1000
_COLUMNS = {
    "tokens": {"tokens": "uint16[2048]"},
    "low-tokens": {"tokens": "uint16[2048]"},
    "rows": {"tokens": "uint16[4096]"},
    "texts": {"tokens": "uint16[*]"},
    "images": {"image": "bytes", "label": "int64"},
    "text": {"text": "str", "id": "int64"},
}


class _Loader(Loader):
    def __init__(self, loader: Any, task: Task, states: list[Any]) -> None:
        super().__init__(loader, task, states)
        self.epoch = loader.epoch
        self._phases = [phase for phase in task.phases if phase[0] >= self._position()]  # the state has earlier ones

    def resume(self, states: list[Any]) -> None:
        self._loader.load_state_dict(states[-1])  # any rank's

    def batches(self, epoch: int) -> Iterator[Sequence[Id]]:
        iterator = iter(self._loader)
        while True:
            while self._phases and self._phases[0][0] <= self._position():
                self._loader.reweight(self._phases.pop(0)[1])
            batch = next(iterator, None)
            if batch is None:
                return
            if self._task.packed:
                yield list(map(row_of, batch["id"], batch["text"]))
            else:
                yield checked(batch["id"].tolist(), batch["text"])

    def _position(self) -> int:
        state = self._loader.state_dict()
        return int(state["epoch"] * state["epoch_samples"] + state["position"])


class Mdsx(Peer):
    name = "mdsx"
    title = "mdsx"
    remote = True
    packages = ("mdsx",)
    imports = ("boto3", "mdsx.torch")  # mdsx imports boto3 on first use
    rank_loader = _Loader
    total_order = packs = packs_by_order = True

    def write(self, directory: Path, kind: str, ids: Sequence[int], make: Make, layout: Layout) -> None:
        with _writer(directory, kind, layout) as out:
            for sample in map(make, ids[out.samples :]):
                out.write(sample)

    def merge(self, directory: str) -> None:
        mdsx.merge(directory)

    def write_batches(self, directory: Path, kind: str, batch: dict[str, Any]) -> None:
        with _writer(directory, kind, Layout()) as out:
            for first in range(0, len(next(iter(batch.values()))), _AT_ONCE):
                out.write_batch({name: values[first : first + _AT_ONCE] for name, values in batch.items()})

    def random(self, reading: Reading) -> tuple[Callable[[int], Any], Callable[[list[int]], Any]]:
        dataset = mdsx.Dataset(reading.source)
        return dataset.__getitem__, dataset.__getitem__ if reading.dicts else dataset.take

    def loader(self, reading: Reading) -> Any:
        transform: Any = _identity if reading.dicts else None
        collate: Any = list if reading.dicts else None
        pictures = {"image": mdsx.Image(size=reading.size)} if reading.decoded else None
        source: Any = reading.source
        if reading.weights:
            source = mdsx.Mixture(list(zip(reading.sources, reading.weights, strict=True)))
        if reading.leg and reading.leg.part:
            source = mdsx.Dataset(source, cache=reading.cache).select(*PART)
        how: dict[str, Any] = {"cache": reading.cache, "zero_copy": reading.views, "transform": transform}
        how["decode"] = pictures
        dataset = loaders.StreamingDataset(source, seed=reading.seed, shuffle=reading.shuffle, **how)
        leg = reading.leg
        how = {"num_workers": reading.workers, "num_threads": reading.threads, "collate_fn": collate}
        how["persistent_workers"] = reading.persistent
        how["drop_last"] = bool(leg and leg.drop_last)
        if leg and leg.packed:
            how["batching"] = mdsx.Pack(CAPACITY, length="text", window=WINDOW)
        return loaders.StreamingDataLoader(dataset, reading.batch_size, **how)


def _writer(directory: Path, kind: str, layout: Layout) -> Any:
    size = layout.shard * _SAMPLE_BYTES if layout.shard else layout.size
    resume = layout.shard is not None
    return mdsx.Writer(directory, _COLUMNS[kind], shard_size=size, compression=layout.compression, resume=resume)


def _identity(sample: dict[str, Any]) -> dict[str, Any]:
    return sample


PEER = Mdsx()
