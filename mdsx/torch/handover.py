"""How batches come from where they are made, a thread or worker processes, to `next()`: several together.

Handing over costs some 20 us between threads and 200 us between processes, more than a small batch takes to make.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, count, islice, pairwise
from typing import Any

from torch.utils.data import Dataset as TorchDataset

from mdsx.stream import Batching, RankReader, Task
from mdsx.torch.batches import Collate
from mdsx.torch.dataset import StreamingDataset

Handover = tuple[Any, list[int]]
"""Batches joined into one, and the samples of each; or a list of batches as they are, and nothing."""


class Produce:
    """Makes the batches of `tasks` in the background thread, in lists of up to `together`.

    It must not hold the loader, whose end ends the thread.
    """

    def __init__(
        self,
        dataset: StreamingDataset,
        reader: RankReader,
        tasks: Iterator[Task],
        collate: Collate | None,
        together: int,
    ) -> None:
        self._dataset, self._reader, self._tasks, self._collate = dataset, reader, tasks, collate
        self._together = together

    def __call__(self) -> Iterator[list[Any]]:
        try:
            for run in self._reader.runs(self._tasks):
                yield from self._lists(self._dataset.assemble(batch, self._collate) for batch in self._reader.read(run))
        finally:
            self._reader.close()

    def _lists(self, batches: Iterator[Any]) -> Iterator[list[Any]]:
        made: list[Any] = []
        try:
            for batch in batches:
                made.append(batch)
                if len(made) == self._together:
                    yield made
                    made = []
        except Exception:
            if made:
                yield made  # the error comes in its place
            raise
        if made:
            yield made


class Worker(TorchDataset[Any]):
    """What a worker process reads: item = a run of tasks, value = (batches, whether all of them are there)."""

    def __init__(self, dataset: StreamingDataset, reader: RankReader, collate: Collate | None) -> None:
        self._dataset, self._reader, self._collate = dataset, reader, collate

    def __getitem__(self, run: list[Task]) -> tuple[Handover, bool]:
        if len(run) > 1:
            try:
                batch = next(self._reader.read(run, joined=True))
                return (self._dataset.assemble(batch, self._collate), self._reader.shares(run)), True
            except Exception:  # the batches before it shall come first, and the error in its place
                return ([self._make(run[0])], []), False
        return ([self._make(run[0])], []), True

    def _make(self, task: Task) -> Any:
        return self._dataset.assemble(next(self._reader.read([task])), self._collate)


class Runs:
    """The sampler of the workers: the tasks of the iteration that begins, in runs that grow from one task for each."""

    def __init__(self) -> None:
        self._tasks: Iterator[Task] = iter(())
        self._workers = self._together = 1

    def start(self, batching: Batching, epoch: int, position: int, workers: int, together: int) -> None:
        """From (epoch, position) to the epoch's end, up to `together` tasks in a run."""
        self._tasks = batching.tasks(epoch, position)
        self._workers, self._together = workers, together

    def __iter__(self) -> Iterator[list[Task]]:
        for number in count():
            run = list(islice(self._tasks, min(2 ** min(number // self._workers, 30), self._together)))
            if not run:
                return
            yield run


def split(handover: Handover) -> Iterator[Any]:
    """The batches, one by one."""
    batches, sizes = handover
    if not sizes:
        yield from batches
        return
    for start, stop in pairwise(accumulate(sizes, initial=0)):
        yield {name: values[start:stop] for name, values in batches.items()}
