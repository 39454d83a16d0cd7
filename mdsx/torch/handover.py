"""How batches come from where they are made, a thread or worker processes, to `next()`: several together.

Handing over costs some 20 us between threads and 200 us between processes, more than a small batch takes to make.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, count, islice, pairwise
from typing import Any, NamedTuple

from torch.utils.data import Dataset as TorchDataset

from mdsx.format import Schema
from mdsx.shards import Columns
from mdsx.stream import Batching, RankReader, Task
from mdsx.torch.batches import Collate, tensors
from mdsx.torch.dataset import StreamingDataset
from mdsx.torch.slots import Slots


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


class Ask(NamedTuple):
    """What a worker is to do: a run of batches, and where to put it."""

    run: list[Task]
    slot: int | None


class Answer(NamedTuple):
    """What a worker did: one batch; or the columns of a whole run, in storage form, of which the batches are cut."""

    batch: Any
    columns: Columns | None
    sizes: list[int]  # samples of the run's batches
    slot: int | None
    broken: bool  # only the first batch of the run is here, as there is an error in a later one


class Worker(TorchDataset[Answer]):
    """What a worker process reads: item = what is asked, value = the answer."""

    def __init__(
        self, dataset: StreamingDataset, reader: RankReader, collate: Collate | None, slots: Slots | None
    ) -> None:
        self._dataset, self._reader, self._collate, self._slots = dataset, reader, collate, slots

    def __getitem__(self, ask: Ask) -> Answer:
        broken = False
        if self._slots is not None:
            try:
                columns = next(self._reader.read(ask.run, joined=True)).columns
                sizes = self._reader.shares(ask.run)
                return Answer(None, self._slots.put(ask.slot, columns), sizes, ask.slot, False)
            except Exception:  # the batches before it shall come first, and the error in its place
                broken = len(ask.run) > 1
        batch = next(self._reader.read(ask.run[:1]))
        return Answer(self._dataset.assemble(batch, self._collate), None, [], ask.slot, broken)


class Asks:
    """The sampler of the workers: the batches of the iteration that begins, in runs that grow from one for each."""

    def __init__(self, workers: int, together: int, slots: Slots | None) -> None:
        self.slots = slots
        self._workers, self._together = workers, together
        self._tasks: Iterator[Task] = iter(())

    def start(self, batching: Batching, epoch: int, position: int) -> None:
        """From (epoch, position) to the epoch's end."""
        self._tasks = batching.tasks(epoch, position)

    def batches(self, answer: Answer, schema: Schema) -> Iterator[Any]:
        """What `next()` returns of an answer."""
        if answer.columns is None or self.slots is None:
            if self.slots is not None:
                self.slots.release(answer.slot)
            yield answer.batch
            return
        columns = tensors(schema, self.slots.take(answer.slot, answer.columns))
        for start, stop in pairwise(accumulate(answer.sizes, initial=0)):
            yield {name: values[start:stop] for name, values in columns.items()}

    def __iter__(self) -> Iterator[Ask]:
        if self.slots is not None:  # workers that persist have dropped what an iteration before asked of them
            self.slots.release_all()
        for number in count():
            run = list(islice(self._tasks, min(2 ** min(number // self._workers, 30), self._together)))
            if not run:
                return
            yield Ask(run, self.slots.reserve() if self.slots is not None else None)
