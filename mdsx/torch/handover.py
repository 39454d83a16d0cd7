"""Batches that a background thread makes ahead of `next()`.

A handover costs some 20 us between threads and 200 us between processes, more than making a small batch. So several
batches are handed over together.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from mdsx.stream import Background, Batching, RankReader, Task
from mdsx.torch.rank_data import RankData

_READY_BYTES = 2**23  # batches kept ready by the thread, at about this many bytes
_READY_BATCHES = 64
_TOGETHER_BYTES = 2**21
_TOGETHER = 16


def together(data: RankData, batching: Batching) -> int:
    """Return how many batches to hand over together: each handover costs as much as copying 100 kB."""
    if data.one_by_one:
        return 1
    return min(max(_TOGETHER_BYTES // data.batch_bytes(batching), 1), _TOGETHER)


def batches_of_thread(data: RankData, batching: Batching, epoch: int, position: int) -> Generator[Any, None, None]:
    """Yield the batches from there to the epoch's end."""
    data.warn_of_costs(batching)
    count = together(data, batching)
    reader = data.reader(batching, stand_in=data.one_by_one)
    depth = min(max(_READY_BYTES // data.batch_bytes(batching), 2), _READY_BATCHES)
    background = Background(_Produce(data, reader, batching.tasks(epoch, position), count), max(depth // count, 1))
    try:
        for batches in background:
            yield from batches
    finally:
        background.close()


class _Produce:
    """Makes the batches of `tasks`, in lists of up to `count`. It must not hold the loader, whose end stops the
    thread."""

    def __init__(self, data: RankData, reader: RankReader, tasks: Iterator[Task], count: int) -> None:
        self._data, self._reader, self._tasks, self._count = data, reader, tasks, count

    def __call__(self) -> Iterator[list[Any]]:
        try:
            for run in self._reader.runs(self._tasks):
                yield from self._lists(self._data.assembled(self._reader, run))
        finally:
            self._reader.close()

    def _lists(self, batches: Iterator[Any]) -> Iterator[list[Any]]:
        made: list[Any] = []
        try:
            for batch in batches:
                made.append(batch)
                if len(made) == self._count:
                    yield made
                    made = []
        except Exception:
            if made:
                yield made  # those before the error
            raise
        if made:
            yield made
