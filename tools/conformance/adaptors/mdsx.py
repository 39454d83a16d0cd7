"""mdsx: a StreamingDataLoader over a StreamingDataset; one state for all ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tools.conformance.adaptors import Adaptor, Loader
from tools.conformance.matrix import Data
from tools.conformance.task import Task, checked, shards_of, text_of

_SAMPLE_BYTES = 100


class Mdsx(Adaptor):
    name = "mdsx"
    title = "mdsx"
    packages = ("mdsx",)
    total_order = True

    def warm(self) -> None:
        import mdsx.torch  # noqa: F401

    def prepare(self, directory: Path, data: Data) -> None:
        import mdsx

        for number, ids in enumerate(shards_of(data)):  # a part for each shard, so that these are the matrix's
            with mdsx.Writer(directory / f"part-{number:05}", {"id": "int64", "text": "str"}) as out:
                out.write_batch({"id": list(ids), "text": [text_of(each) for each in ids]})
        mdsx.merge(directory)

    def write(self, directory: Path, ids: Sequence[int], shard: int) -> None:
        import mdsx

        columns = {"id": "int64", "text": "str"}
        with mdsx.Writer(directory, columns, shard_size=shard * _SAMPLE_BYTES, resume=True) as out:
            for each in ids[out.samples :]:
                out.write({"id": each, "text": text_of(each)})

    def open(self, task: Task, states: list[Any]) -> Loader:
        return _Loader(task, states)


class _Loader:
    def __init__(self, task: Task, states: list[Any]) -> None:
        import mdsx
        from mdsx.torch import StreamingDataLoader, StreamingDataset

        source: Any = task.sources()[0]
        if len(task.data) > 1:
            source = mdsx.Mixture(list(zip(task.sources(), task.weights, strict=True)))
        data = StreamingDataset(source, seed=task.seed, cache=Path(task.directory, "cache"))
        self._loader = StreamingDataLoader(data, task.shape.batch, num_workers=task.shape.workers, drop_last=False)
        if states:
            self._loader.load_state_dict(states[-1])  # any rank's
        self._phases = [phase for phase in task.phases if phase[0] >= self._position()]  # the state has the others

    @property
    def epoch(self) -> int:
        return self._loader.epoch

    def batches(self, epoch: int) -> Iterator[list[int]]:
        iterator = iter(self._loader)
        while True:
            while self._phases and self._phases[0][0] <= self._position():
                self._loader.reweight(self._phases.pop(0)[1])
            batch = next(iterator, None)
            if batch is None:
                return
            yield checked(batch["id"].tolist(), batch["text"])

    def state(self) -> Any:
        return self._loader.state_dict()

    def _position(self) -> int:
        """Samples since the run began."""
        state = self._loader.state_dict()
        return int(state["epoch"] * state["epoch_samples"] + state["position"])


ADAPTOR = Mdsx()
