"""Make a rank's batches from what it has read: arrays and lists, samples through `transform` and `collate_fn`, or
groups. A maker knows no order or position, so worker processes use one too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

from mdsx.errors import CorruptError
from mdsx.format import Schema
from mdsx.loader.assembly import (
    ArrayBackend,
    Collate,
    OnError,
    PackedBatch,
    Transform,
    assemble,
    assemble_undamaged,
    pack_run,
    pack_transformed,
    presented_groups,
)
from mdsx.loader.collation import Uneven
from mdsx.stream import Batch, Packing, RankReader, Task


@dataclass(frozen=True, slots=True)
class BatchMaker:
    """Makes batches of samples with this schema. Without `collate`, `packing` makes batches of groups."""

    backend: ArrayBackend
    schema: Schema
    transform: Transform | None
    collate: Collate | None = None
    uneven: Uneven = "empty"
    on_error: OnError = "raise"
    packing: Packing | None = None
    buckets: Sequence[Any] | None = None
    """In batches of one shape: the value of "bucket" for each bucket."""

    @property
    def per_sample(self) -> bool:
        """Return whether it makes samples one by one, not columns."""
        return self.transform is not None or self.collate is not None

    @property
    def one_by_one(self) -> bool:
        """Return whether each batch is completed where it is read."""
        return self.per_sample or self.uneven == "repeat"

    @property
    def needs_stand_ins(self) -> bool:
        """Return whether a rank without samples needs a sample to make its batch."""
        return self.one_by_one and self.packing is None

    @property
    def takes_stored(self) -> bool:
        """Return whether it takes columns as they are stored."""
        return self.packing is not None and self.transform is None

    def assemble(self, batch: Batch, fill: int = 0) -> Any:
        """Return `batch` as a training loop gets it. `fill`: see `filled`."""
        return assemble(self.backend, self.schema, batch, self.transform, self.collate, fill)

    def filled(self, reader: RankReader, task: Task) -> int:
        """Return how many samples each rank's batch of `task` has, repeated ones included; 0 if none is repeated."""
        if self.uneven != "repeat":
            return 0
        samples = task.stop - task.start if task.groups is None else task.groups.step_samples
        return reader.steps.batch_samples or -(-samples // reader.steps.world_size)

    def _named(self, batch: Batch, task: Task) -> Batch:
        """Return a batch with its bucket, if it has one."""
        if self.buckets is None or task.groups is None or task.groups.bucket is None:
            return batch
        return batch._replace(bucket=self.buckets[task.groups.bucket])

    def assembled(self, reader: RankReader, chunk: list[Task]) -> Iterator[Any]:
        """Yield for each task of a chunk a batch, or a PartialBatch; None for a step that is skipped."""
        for skip, group in groupby(chunk, key=attrgetter("skip")):
            tasks = list(group)
            if skip:
                yield from [None] * len(tasks)
            else:
                yield from self._assembled(reader, tasks)

    def _assembled(self, reader: RankReader, chunk: list[Task]) -> Iterator[Any]:
        if self.packing is not None:
            yield from map(self.presented_groups, self.packed(reader, chunk))
            return
        if self.on_error == "raise":
            for task, batch in zip(chunk, reader.read_each(chunk), strict=True):
                yield self.assemble(self._named(batch, task), self.filled(reader, task))
            return
        for task, batch in zip(chunk, reader.read_each(chunk), strict=True):
            named, fill = self._named(batch, task), self.filled(reader, task)
            stand_ins = partial(self._stand_ins, reader, task)
            yield assemble_undamaged(self.backend, self.schema, named, self.transform, self.collate, fill, stand_ins)

    def _stand_ins(self, reader: RankReader, task: Task) -> Iterator[Batch]:
        return (self._named(batch, task) for batch in reader.stand_ins(task))

    def packed(self, reader: RankReader, chunk: list[Task]) -> Iterator[PackedBatch]:
        """Yield each task's batch of groups. Batches before a failing one are yielded before its error is raised."""
        assert self.packing is not None
        if self.transform is not None:
            skip = self.on_error == "skip"
            for task, batch in zip(chunk, reader.read_each(chunk), strict=True):
                stand_ins = partial(reader.stand_ins, task)
                yield pack_transformed(self.schema, batch, self.transform, self.packing, stand_ins, skip=skip)
            return
        done = 0
        try:
            for made in pack_run(next(reader.read(chunk, joined=True)), self.packing, reader.shares(chunk)):
                yield made  # one by one, while it is in the processor's cache
                done += 1
            return
        except Exception as error:
            damaged = self.on_error == "skip" and isinstance(error, CorruptError)
            if len(chunk) == 1 and not damaged:
                raise
        if len(chunk) == 1:
            batch = reader.read_undamaged(chunk[0])
            yield from pack_run(batch, self.packing, [len(batch.positions)])
            return
        for task in chunk[done:]:
            yield from self.packed(reader, [task])

    def presented_groups(self, batch: PackedBatch) -> Any:
        """Return a batch of groups as arrays and lists, or a PartialBatch."""
        assert self.packing is not None
        kinds = {} if self.transform else self.packing.kinds
        return presented_groups(self.backend, batch, kinds, nested=self.packing.layout.nested)
