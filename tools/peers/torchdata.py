"""torchdata: StatefulDataLoader over a map-style dataset, with its StatefulDistributedSampler; a state for each rank.

A mixture is its MultiNodeWeightedSampler over one such sampler for each dataset.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from tools.account import Id
from tools.conformance.matrix import Cell
from tools.peers import Layout, Lazy, Loader, Make, Peer, Reading

nodes, data = Lazy("torchdata.nodes"), Lazy("torch.utils.data")
stateful_dataloader = Lazy("torchdata.stateful_dataloader")

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
    """A rank's loader with a state of its own; the epoch is saved beside it, and set where its dataset needs it."""

    def resume(self, states: list[Any]) -> None:
        self.epoch = states[self._task.rank]["epoch"]
        self._loader.load_state_dict(states[self._task.rank]["loader"])

    def batches(self, epoch: int) -> Iterator[Sequence[Id]]:
        self.epoch = epoch
        for part in ("sampler", "dataset"):
            if set_epoch := getattr(getattr(self._loader, part, None), "set_epoch", None):
                set_epoch(epoch)
        yield from super().batches(epoch)
        self.epoch = epoch + 1

    def state(self) -> Any:
        return {"loader": self._loader.state_dict(), "epoch": self.epoch}


class StatefulPeer(Peer):
    rank_loader = StatefulLoader

    def unsupported(self, cell: Cell) -> str | None:
        if cell.phases:
            return "Neither the loader's state nor that of its samplers has weights that could change."
        if len({shape.world for shape in cell.shapes}) > 1:
            return _NOT_ACROSS_RANKS
        return _SAME_WORKERS if len({shape.workers for shape in cell.shapes}) > 1 else None


class Torchdata(StatefulPeer):
    name = environment = "torchdata"
    title = "torchdata"
    in_bench = in_faults = False  # it has no format of its own
    packages = ("torchdata", "torch")
    imports = ("torchdata.nodes", "torchdata.stateful_dataloader")
    findings: ClassVar[Mapping[str, str]] = dict.fromkeys(("uneven", "uneven-resume", "few", "few-resume"), _PADDED)

    def write(self, directory: Path, kind: str, ids: Sequence[int], make: Make, layout: Layout) -> None:
        directory.mkdir(parents=True)
        (directory / "samples.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in map(make, ids)))

    def loader(self, reading: Reading) -> Any:
        assert reading.leg is not None
        rank, world = reading.leg.rank, reading.leg.shape.world
        files = [Path(source, "samples.jsonl").read_text().splitlines() for source in reading.sources]
        parts = [list(map(json.loads, lines)) for lines in files]  # map-style datasets
        shuffled = partial(stateful_dataloader.sampler.StatefulDistributedSampler, shuffle=True, seed=reading.seed)
        samplers = [shuffled(part, world, rank) for part in parts]
        if not reading.weights:
            how = {"sampler": samplers[0], "num_workers": reading.workers}
            return stateful_dataloader.StatefulDataLoader(parts[0], reading.batch_size, **how)
        pairs = zip(samplers, parts, strict=True)
        sources = [nodes.Mapper(nodes.SamplerWrapper(sampler), part.__getitem__) for sampler, part in pairs]
        node: Any = nodes.MultiNodeWeightedSampler(
            dict(zip(reading.sources, sources, strict=True)),
            dict(zip(reading.sources, reading.weights, strict=True)),
            nodes.samplers.stop_criteria.StopCriteria.FIRST_DATASET_EXHAUSTED,
            rank,
            world,
            seed=reading.seed,
        )
        node = nodes.Mapper(nodes.Batcher(node, reading.batch_size, drop_last=False), data.default_collate)
        return nodes.Loader(nodes.Prefetcher(node, prefetch_factor=2), restart_on_stop_iteration=False)


PEER = Torchdata()
