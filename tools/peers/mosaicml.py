"""mosaicml-streaming: MDSWriter and StreamingDataset with their defaults, shards of 64 MiB, in the order py1e.

`batch_size` is given to dataset and loader, as its documentation asks. Its state comes from rank zero and is loaded on
every rank. A process either iterates or starts workers, never both: workers hang forever once the process that starts
them has iterated by itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from tools.conformance.matrix import Data
from tools.conformance.task import Task, sample_of, shards_of
from tools.peers import Layout, Loader, Make, Peer, Reading

_HASH = "xxh64"
_SAMPLE_BYTES = 70  # of the matrix's samples, about
_COLUMNS = {
    "tokens": {"tokens": "ndarray:uint16:2048"},
    "images": {"image": "bytes", "label": "int"},
    "text": {"text": "str", "id": "int"},
    "mixed": {"text": "str", "id": "int", "vector": "ndarray:float32", "meta": "json"},
}
_PADDED = (
    "Every rank gets equally many samples, and what is missing for that is filled up with repeated ones "
    "(`get_partitions_orig`: `ids = np.concatenate([ids, last], 1)`)."
)


class _Loader(Loader):
    def __init__(self, task: Task, states: list[Any]) -> None:
        from streaming import Stream, StreamingDataLoader, StreamingDataset

        which: dict[str, Any] = {"local": task.sources()[0]}
        if task.remote:
            local = str(Path(task.directory, "cache"))
            which = {"remote": task.sources()[0], "local": local, "validate_hash": _HASH}
        if task.nodes:  # each has its own disk; canonical nodes as advised: a multiple of all later numbers of nodes
            copy = Path(task.directory, f"node{task.rank}")
            which = {"remote": str(task.paths()[0]), "local": str(copy), "num_canonical_nodes": 12}
        if len(task.data) > 1:
            pairs = zip(task.paths(), task.weights, strict=True)
            which = {
                "streams": [Stream(local=str(path), proportion=weight) for path, weight in pairs],
                "epoch_size": sum(data.samples for data in task.data),
            }
        dataset = StreamingDataset(shuffle=True, shuffle_seed=task.seed, batch_size=task.shape.batch, **which)
        self._loader = StreamingDataLoader(
            dataset, batch_size=task.shape.batch, num_workers=task.shape.workers, drop_last=False
        )
        if states:
            self._loader.load_state_dict(states[0])
            self.epoch = states[0]["epoch"]

    def state(self) -> Any:
        return json.loads(json.dumps(self._loader.state_dict()))


class MosaicML(Peer):
    name = environment = "mosaicml"
    title = "mosaicml-streaming"
    packages = ("mosaicml-streaming",)
    rank_loader = _Loader
    shares_memory = True
    no_phases = (
        '"Checkpoints are represented in JSON as follows": epoch, sample_in_epoch, shuffle_seed, num_canonical_nodes; '
        "no proportions."
    )
    findings: ClassVar[Mapping[str, str]] = {
        "uneven": _PADDED,
        "uneven-resume": _PADDED,
        "few": _PADDED,
        "few-resume": f"{_PADDED} The resumed run draws them from what is left, so that another sample comes twice.",
    }

    def warm(self) -> None:
        from tools.peers.torch_helpers import declare_torchvision_operators

        declare_torchvision_operators()
        import streaming  # noqa: F401

    def clean(self) -> None:
        from streaming.base.util import clean_stale_shared_memory

        clean_stale_shared_memory()

    def write(self, directory: Path, kind: str, ids: Sequence[int], make: Make, layout: Layout) -> None:
        from streaming import MDSWriter

        how: dict[str, Any] = {"size_limit": layout.size, "compression": layout.compression}
        if layout.shard:  # the matrix and the faults have hashes, as benchmarks do not
            how = {"size_limit": layout.shard * _SAMPLE_BYTES, "hashes": [_HASH]}
        with MDSWriter(out=str(directory), columns=_COLUMNS[kind], **how) as out:
            for sample in map(make, ids):
                out.write(sample)

    def prepare(self, directory: Path, data: Data) -> None:
        from streaming.base.util import merge_index

        for number, ids in enumerate(shards_of(data)):  # one directory for each shard
            self.write(directory / f"part{number:05}", "text", ids, sample_of, Layout(shard=10 * len(ids)))
        merge_index(str(directory), keep_local=True)

    def samples(self, reading: Reading) -> Any:
        import streaming

        return streaming.StreamingDataset(
            local=reading.source, shuffle=reading.shuffle, shuffle_seed=7, batch_size=reading.batch_size
        )

    def item(self, reading: Reading) -> Callable[[int], Any]:
        import streaming

        dataset: Any = streaming.StreamingDataset(local=reading.source, shuffle=False, batch_size=1)
        return lambda at: dataset[at]

    def items(self, reading: Reading) -> Callable[[list[int]], Any]:
        item: Any = self.item(reading)  # which takes a list too
        return lambda numbers: item(numbers)

    def loader(self, reading: Reading) -> Any:
        import streaming

        from tools.peers.torch_helpers import columns_of, decoding

        where = {"remote": reading.source, "local": reading.cache} if reading.cache else {"local": reading.source}
        kind = decoding(streaming.StreamingDataset) if reading.decoded else streaming.StreamingDataset
        dataset = kind(shuffle=True, shuffle_seed=7, batch_size=reading.batch_size, **where)
        more = {"collate_fn": columns_of} if reading.kind == "mixed" else {}  # vectors of several lengths
        return streaming.StreamingDataLoader(
            dataset, batch_size=reading.batch_size, num_workers=reading.workers, drop_last=False, **more
        )

    def make_order(self, samples: int, shards: int) -> None:
        """Make the order of an epoch, as it does at each epoch's start, for one node of one rank and worker."""
        import numpy as np
        from streaming.base.partition import get_partitions
        from streaming.base.shuffle import get_shuffle

        partition = get_partitions("relaxed", samples, 1, 1, 1, 1, 32, 0)  # one node, rank and worker, batch 32
        shuffled = get_shuffle("py1e", np.full(shards, samples // shards, np.int64), 1, 7, 0, 262144)
        np.where(partition != -1, shuffled[partition], -1)


PEER = MosaicML()
