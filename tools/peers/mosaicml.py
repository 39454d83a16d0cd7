"""mosaicml-streaming: MDSWriter and StreamingDataset with their defaults, shards of 64 MiB, in the order py1e.

`batch_size` is given to dataset and loader, as its documentation asks. Its state comes from rank zero and is loaded on
every rank. A process either iterates or starts workers, never both: workers hang forever once the process that starts
them has iterated by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from tools.peers import Layout, Lazy, Loader, Make, Peer, Reading
from tools.workloads import decoding

streaming, util, torch = Lazy("streaming"), Lazy("streaming.base.util"), Lazy("torch")
_HASH = "xxh64"
_SAMPLE_BYTES = 70  # of the matrix's samples, about
_COLUMNS = {
    "tokens": {"tokens": "ndarray:uint16:2048"},
    "low-tokens": {"tokens": "ndarray:uint16:2048"},
    "images": {"image": "bytes", "label": "int"},
    "text": {"text": "str", "id": "int"},
}
_PADDED = (
    "Every rank gets equally many samples, and what is missing for that is filled up with repeated ones "
    "(`get_partitions_orig`: `ids = np.concatenate([ids, last], 1)`)."
)


class _Loader(Loader):
    def resume(self, states: list[Any]) -> None:
        self._loader.load_state_dict(states[0])
        self.epoch = states[0]["epoch"]


class MosaicML(Peer):
    name = environment = "mosaicml"
    title = "mosaicml-streaming"
    remote = True
    packages = ("mosaicml-streaming",)
    imports = ("streaming",)
    rank_loader = _Loader
    shares_memory = True
    best_workers = 2
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
        """Import it, and with it torchvision."""
        declare_operators()
        super().warm()

    def clean(self) -> None:
        util.clean_stale_shared_memory()

    def write(self, directory: Path, kind: str, ids: Sequence[int], make: Make, layout: Layout) -> None:
        how: dict[str, Any] = {"size_limit": layout.size, "compression": layout.compression}
        if layout.shard:  # the matrix and the faults have hashes, as benchmarks do not
            how = {"size_limit": layout.shard * _SAMPLE_BYTES, "hashes": [_HASH]}
        with streaming.MDSWriter(out=str(directory), columns=_COLUMNS[kind], **how) as out:
            for sample in map(make, ids):
                out.write(sample)

    def merge(self, directory: str) -> None:
        util.merge_index(directory, keep_local=True)

    def _dataset(self, reading: Reading) -> Any:
        which: dict[str, Any] = {"local": reading.source}
        if reading.cache:
            which = {"remote": reading.source, "local": reading.cache, "validate_hash": _HASH if reading.leg else None}
        if reading.leg and reading.leg.nodes:  # each has its own disk
            local = f"{reading.leg.directory}/node{reading.leg.rank}"
            # Canonical nodes as advised: a multiple of all later numbers of nodes.
            which = {"remote": reading.source, "local": local, "num_canonical_nodes": 12}
        if reading.leg and reading.weights:
            pairs = zip(reading.sources, reading.weights, strict=True)
            which = {"streams": [streaming.Stream(local=source, proportion=weight) for source, weight in pairs]}
            which["epoch_size"] = sum(data.samples for data in reading.leg.data)
        kind = decoding(streaming.StreamingDataset, reading.size) if reading.decoded else streaming.StreamingDataset
        return kind(shuffle=True, shuffle_seed=reading.seed, batch_size=reading.batch_size, **which)

    def random(self, reading: Reading) -> tuple[Callable[[int], Any], Callable[[list[int]], Any]]:
        dataset = self._dataset(reading)
        return dataset.__getitem__, dataset.__getitem__  # which takes a list too

    def loader(self, reading: Reading) -> Any:
        how: dict[str, Any] = {"batch_size": reading.batch_size, "num_workers": reading.workers, "drop_last": False}
        return streaming.StreamingDataLoader(self._dataset(reading), **how)


def declare_operators() -> None:
    """Let PyPI's torchvision be imported. It is compiled for CUDA: with a CPU's PyTorch it lacks operators, which its
    import needs."""
    if torch.version.cuda is None:
        for name in ("torchvision::nms", "torchvision::qnms"):
            torch.library.define(name, "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


PEER = MosaicML()
