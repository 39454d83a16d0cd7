"""torchdata: StatefulDataLoader over a map-style dataset, with its StatefulDistributedSampler; a state for each rank.

A mixture is its MultiNodeWeightedSampler over one such sampler for each dataset.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from tools.conformance.matrix import Cell
from tools.conformance.task import Task
from tools.peers import Layout, Loader, Make, Peer

_NOT_ACROSS_RANKS = (
    '"StatefulDataLoader handles aggregation and distribution of state across multiprocess workers (but not across '
    'ranks)." (its documentation)'
)
_SAME_WORKERS = '"assert self._num_workers == state_dict[self._NUM_WORKERS]" (stateful_dataloader.py)'
_PADDED = (
    "As documented, DistributedSampler adds indices that come twice, so that every rank has equally many; with "
    "drop_last=True it leaves out others instead."
)


class Torchdata(Peer):
    name = environment = "torchdata"
    title = "torchdata"
    packages = ("torchdata", "torch")
    findings: ClassVar[Mapping[str, str]] = dict.fromkeys(("uneven", "uneven-resume", "few", "few-resume"), _PADDED)

    def unsupported(self, cell: Cell) -> str | None:
        return unsupported_by_stateful_dataloader(cell)

    def warm(self) -> None:
        import torchdata.nodes
        import torchdata.stateful_dataloader  # noqa: F401

    def write(self, directory: Path, kind: str, ids: Sequence[int], make: Make, layout: Layout) -> None:
        directory.mkdir(parents=True)
        lines = [json.dumps(sample) + "\n" for sample in map(make, ids)]
        (directory / "samples.jsonl").write_text("".join(lines))

    def open(self, task: Task, states: list[Any]) -> Loader:
        return _Mixture(task, states) if len(task.data) > 1 else _Single(task, states)


def unsupported_by_stateful_dataloader(cell: Cell) -> str | None:
    """What StatefulDataLoader does not do, whatever it loads."""
    if cell.phases:
        return "Neither the loader's state nor that of its samplers has weights that could change."
    if len({shape.world for shape in cell.shapes}) > 1:
        return _NOT_ACROSS_RANKS
    if len({shape.workers for shape in cell.shapes}) > 1:
        return _SAME_WORKERS
    return None


class StatefulLoader(Loader):
    """A rank's loader with a state of its own; the epoch is saved beside it, and given to `_by_epoch`, if any."""

    _by_epoch: Any = None

    def resume(self, task: Task, states: list[Any]) -> None:
        """Continue from this rank's state; begin if there are no states."""
        if states:
            self.epoch = states[task.rank]["epoch"]
            self._loader.load_state_dict(states[task.rank]["loader"])

    def batches(self, epoch: int) -> Iterator[list[int]]:
        self.epoch = epoch
        if self._by_epoch is not None:
            self._by_epoch.set_epoch(epoch)
        for batch in self._loader:
            yield self.ids_of(batch)
        self.epoch = epoch + 1

    def ids_of(self, batch: Any) -> list[int]:
        return [int(number) for number in batch]

    def state(self) -> Any:
        return {"loader": self._loader.state_dict(), "epoch": self.epoch}


class _Samples:
    """A map-style dataset over lines of JSON."""

    def __init__(self, path: Path) -> None:
        self._lines = (path / "samples.jsonl").read_text().splitlines()

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, index: int) -> int:
        return int(json.loads(self._lines[index])["id"])


class _Single(StatefulLoader):
    def __init__(self, task: Task, states: list[Any]) -> None:
        from torchdata.stateful_dataloader import StatefulDataLoader
        from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

        dataset: Any = _Samples(task.paths()[0])
        self._by_epoch = StatefulDistributedSampler(dataset, task.shape.world, task.rank, shuffle=True, seed=task.seed)
        self._loader = StatefulDataLoader(
            dataset, task.shape.batch, sampler=self._by_epoch, num_workers=task.shape.workers
        )
        self.resume(task, states)


class _Mixture(StatefulLoader):
    def __init__(self, task: Task, states: list[Any]) -> None:
        from torchdata import nodes
        from torchdata.nodes.samplers.stop_criteria import StopCriteria
        from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

        sources: dict[str, Any] = {}
        for data, path in zip(task.data, task.paths(), strict=True):
            dataset: Any = _Samples(path)
            sampler = StatefulDistributedSampler(dataset, task.shape.world, task.rank, shuffle=True, seed=task.seed)
            sources[data.name] = nodes.Mapper(nodes.SamplerWrapper(sampler), dataset.__getitem__)
        weights = dict(zip(sources, task.weights, strict=True))
        node: Any = nodes.MultiNodeWeightedSampler(
            sources, weights, StopCriteria.FIRST_DATASET_EXHAUSTED, task.rank, task.shape.world, seed=task.seed
        )
        node = nodes.Prefetcher(nodes.Batcher(node, task.shape.batch, drop_last=False), prefetch_factor=2)
        self._loader = nodes.Loader(node, restart_on_stop_iteration=False)
        self.resume(task, states)


PEER = Torchdata()
