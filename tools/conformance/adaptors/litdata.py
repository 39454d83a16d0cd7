"""LitData: StreamingDataLoader.state_dict() on each rank, load_state_dict() before iterating.

It learns its rank from torch.distributed only. `drop_last=False` is given, as its default is True among several ranks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from tools.conformance.adaptors import Adaptor, Loader, join_gloo
from tools.conformance.matrix import Cell, Data
from tools.conformance.task import Task, checked, text_of

_MIXTURES = (
    '"CombinedStreamingDataset and ParallelStreamingDataset resume only with the same world_size, num_workers, and '
    'batch_size" (README, Pause and resume)'
)


_ROUNDED = (
    "What was done is rounded down to a multiple of the new ranks x batch (`_round_down_drop_first`), and what lies "
    'between is read again; the README says "never duplicates".'
)
_DEALT_ANEW = (
    "The epoch that was killed goes on exactly. The next one is dealt out by ranks, workers and batch size, so its "
    "batches are not those of a run that was left alone."
)


class LitData(Adaptor):
    name = "litdata"
    title = "LitData"
    packages = ("litdata",)
    requirements = "litdata"

    findings: ClassVar[Mapping[str, str]] = {
        "more-ranks": (
            "`_validate_state_dict` compares what each rank of the old run had yielded with what each rank of the new "
            "one has in all, and refuses. Killed earlier in the epoch, it goes on, as on fewer ranks."
        ),
        "4-to-3-batch": _ROUNDED,
        "batch-odd": _ROUNDED,
        "all": _ROUNDED,
        **dict.fromkeys(("fewer-ranks", "4-to-3", "nodes", "workers", "no-workers", "twice-changed"), _DEALT_ANEW),
    }

    def unsupported(self, cell: Cell) -> str | None:
        if cell.mixture and not cell.one_shape:
            return _MIXTURES
        return None

    def warm(self) -> None:
        os.environ["LITDATA_DISABLE_VERSION_CHECK"] = "1"  # it asks PyPI otherwise
        import litdata  # noqa: F401

    def prepare(self, directory: Path, data: Data) -> None:
        import litdata

        litdata.optimize(
            fn=partial(_sample),
            inputs=list(data.ids),
            output_dir=str(directory),
            chunk_size=max(data.shards),
            num_workers=1,
            start_method="fork",
            verbose=False,
        )

    def write(self, directory: Path, ids: Sequence[int], shard: int) -> None:
        self.prepare(directory, Data(directory.name, (shard,) * -(-len(ids) // shard)))

    def open(self, task: Task, states: list[Any]) -> Loader:
        return _Loader(task, states)


def _sample(number: int) -> dict[str, Any]:
    return {"id": number, "text": text_of(number)}


def _allow_http() -> None:
    """Its own S3 client insists on TLS otherwise."""
    import boto3  # noqa: F401  it imports it when it is first used
    from litdata.streaming import downloader

    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = "true"


class _Loader:
    def __init__(self, task: Task, states: list[Any]) -> None:
        from litdata import CombinedStreamingDataset, StreamingDataLoader, StreamingDataset

        join_gloo()
        more: dict[str, Any] = {}
        if task.remote:
            _allow_http()
            more = {
                "cache_dir": str(Path(task.directory, "cache")),
                "storage_options": {"endpoint_url": os.environ["AWS_ENDPOINT_URL"]},
            }
        parts = [
            StreamingDataset(path, shuffle=True, drop_last=False, seed=task.seed, max_cache_size="30GB", **more)
            for path in task.sources()
        ]
        dataset = parts[0]
        if len(parts) > 1:
            dataset = CombinedStreamingDataset(
                parts, seed=task.seed, weights=list(task.weights), iterate_over_all=False
            )
        self._loader = StreamingDataLoader(dataset, batch_size=task.shape.batch, num_workers=task.shape.workers)
        self.epoch = 0
        if states:
            self._loader.load_state_dict(states[min(task.rank, len(states) - 1)])
            # It counts epochs from 1; a state at an epoch's end goes on with the next one.
            self.epoch = self._loader.current_epoch - (1 if self._loader.restore else 0)

    def batches(self, epoch: int) -> Iterator[list[int]]:
        for batch in self._loader:
            yield checked(batch["id"].tolist(), batch["text"])

    def state(self) -> Any:
        return self._loader.state_dict()


ADAPTOR = LitData()
