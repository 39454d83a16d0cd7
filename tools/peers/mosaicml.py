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

from tools.conformance.task import Task
from tools.peers import Layout, Loader, Make, Peer, Reading

_HASH = "xxh64"
_SAMPLE_BYTES = 70  # of the matrix's samples, about
_COLUMNS = {
    "tokens": {"tokens": "ndarray:uint16:2048"},
    "images": {"image": "bytes", "label": "int"},
    "text": {"text": "str", "id": "int"},
    "mixed": {"text": "str", "id": "int", "vector": "ndarray:float32", "meta": "json"},
}
_OPERATORS = {
    "torchvision::nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "torchvision::qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
_PADDED = (
    "Every rank gets equally many samples, and what is missing for that is filled up with repeated ones "
    "(`get_partitions_orig`: `ids = np.concatenate([ids, last], 1)`)."
)


class _Loader(Loader):
    def __init__(self, task: Task, states: list[Any]) -> None:
        from streaming import Stream, StreamingDataset

        source = task.sources()[0]
        which: dict[str, Any] = {"local": source}
        if task.remote:
            which = {"remote": source, "local": str(Path(task.directory, "cache")), "validate_hash": _HASH}
        if task.nodes:  # each has its own disk; canonical nodes as advised: a multiple of all later numbers of nodes
            which = {"remote": source, "local": f"{task.directory}/node{task.rank}", "num_canonical_nodes": 12}
        if task.weights:
            pairs = zip(task.sources(), task.weights, strict=True)
            which = {
                "streams": [Stream(local=path, proportion=weight) for path, weight in pairs],
                "epoch_size": sum(data.samples for data in task.data),
            }
        dataset = StreamingDataset(shuffle=True, shuffle_seed=task.seed, batch_size=task.shape.batch, **which)
        self._loader = _loader(dataset, task.shape.workers)
        if states:
            self._loader.load_state_dict(states[0])
            self.epoch = states[0]["epoch"]

    def state(self) -> Any:
        return json.loads(json.dumps(self._loader.state_dict()))


class MosaicML(Peer):
    name = environment = "mosaicml"
    title = "mosaicml-streaming"
    packages = ("mosaicml-streaming",)
    imports = ("streaming",)
    open = _Loader
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
        """Import it, and with it torchvision.

        PyPI's torchvision is compiled for CUDA. With a CPU's PyTorch it lacks operators, which its import needs.
        """
        import torch

        if torch.version.cuda is None:
            for name, signature in _OPERATORS.items():
                torch.library.define(name, signature)
        super().warm()

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

    def merge(self, directory: str) -> None:
        from streaming.base.util import merge_index

        merge_index(directory, keep_local=True)

    def samples(self, reading: Reading) -> Any:
        from streaming import StreamingDataset

        from tools.workloads import decoding

        where = {"remote": reading.source, "local": reading.cache} if reading.cache else {"local": reading.source}
        return (decoding(StreamingDataset) if reading.decoded else StreamingDataset)(
            shuffle=reading.shuffle, shuffle_seed=7, batch_size=reading.batch_size, **where
        )

    def random(self, reading: Reading) -> tuple[Callable[[int], Any], Callable[[list[int]], Any]]:
        dataset = self.samples(reading)
        return dataset.__getitem__, dataset.__getitem__  # which takes a list too

    def loader(self, reading: Reading) -> Any:
        from tools.workloads import columns_of

        more = {"collate_fn": columns_of} if reading.kind == "mixed" else {}  # vectors of several lengths
        return _loader(self.samples(reading), reading.workers, **more)


def _loader(dataset: Any, workers: int, **more: Any) -> Any:
    from streaming import StreamingDataLoader

    return StreamingDataLoader(dataset, batch_size=dataset.batch_size, num_workers=workers, drop_last=False, **more)


def make_order(samples: int, shards: int) -> None:
    """Make the order of an epoch, as it does at each epoch's start, for one node of one rank and worker."""
    import numpy as np
    from streaming.base.partition import get_partitions
    from streaming.base.shuffle import get_shuffle

    partition = get_partitions("relaxed", samples, 1, 1, 1, 1, 32, 0)  # one node, rank and worker, batch 32
    shuffled = get_shuffle("py1e", np.full(shards, samples // shards, np.int64), 1, 7, 0, 262144)
    np.where(partition != -1, shuffled[partition], -1)


PEER = MosaicML()
