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
        yield from super().batches(epoch)
        self.epoch = epoch + 1

    def state(self) -> Any:
        return {"loader": self._loader.state_dict(), "epoch": self.epoch}


class _Loader(StatefulLoader):
    def __init__(self, task: Task, states: list[Any]) -> None:
        from torch.utils.data import default_collate
        from torchdata import nodes
        from torchdata.nodes.samplers.stop_criteria import StopCriteria
        from torchdata.stateful_dataloader import StatefulDataLoader
        from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

        shape = task.shape
        parts: list[Any] = [_Samples(path) for path in task.paths()]
        samplers = [
            StatefulDistributedSampler(part, shape.world, task.rank, shuffle=True, seed=task.seed) for part in parts
        ]
        if task.weights:
            names = [data.name for data in task.data]
            pairs = zip(samplers, parts, strict=True)
            sources = [nodes.Mapper(nodes.SamplerWrapper(sampler), part.__getitem__) for sampler, part in pairs]
            node: Any = nodes.MultiNodeWeightedSampler(
                dict(zip(names, sources, strict=True)),
                dict(zip(names, task.weights, strict=True)),
                StopCriteria.FIRST_DATASET_EXHAUSTED,
                task.rank,
                shape.world,
                seed=task.seed,
            )
            node = nodes.Mapper(nodes.Batcher(node, shape.batch, drop_last=False), default_collate)
            self._loader = nodes.Loader(nodes.Prefetcher(node, prefetch_factor=2), restart_on_stop_iteration=False)
        else:
            self._by_epoch = samplers[0]
            self._loader = StatefulDataLoader(parts[0], shape.batch, sampler=samplers[0], num_workers=shape.workers)
        self.resume(task, states)


class Torchdata(Peer):
    name = environment = "torchdata"
    title = "torchdata"
    packages = ("torchdata", "torch")
    imports = ("torchdata.nodes", "torchdata.stateful_dataloader")
    open = _Loader
    findings: ClassVar[Mapping[str, str]] = dict.fromkeys(("uneven", "uneven-resume", "few", "few-resume"), _PADDED)

    def unsupported(self, cell: Cell) -> str | None:
        return unsupported_by_stateful_dataloader(cell)

    def write(self, directory: Path, kind: str, ids: Sequence[int], make: Make, layout: Layout) -> None:
        directory.mkdir(parents=True)
        (directory / "samples.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in map(make, ids)))


def unsupported_by_stateful_dataloader(cell: Cell) -> str | None:
    """What StatefulDataLoader does not do, whatever it loads."""
    if cell.phases:
        return "Neither the loader's state nor that of its samplers has weights that could change."
    if len({shape.world for shape in cell.shapes}) > 1:
        return _NOT_ACROSS_RANKS
    if len({shape.workers for shape in cell.shapes}) > 1:
        return _SAME_WORKERS
    return None


class _Samples:
    """A map-style dataset over lines of JSON."""

    def __init__(self, path: Path) -> None:
        self._lines = (path / "samples.jsonl").read_text().splitlines()

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, index: int) -> Any:
        return json.loads(self._lines[index])


PEER = Torchdata()
