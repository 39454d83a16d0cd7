"""Convert the parts of a conversion, each a run of units.

A rerun continues where an earlier run ended. It does not read finished units again (`record.py`). In the unit where it
continues, it reads the durable samples without writing them. Two processes never write the same part: each worker gets
one part after another, and ends with its parent.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

from mdsx.base.process import Report, deliver
from mdsx.errors import MdsxError, SampleError, UsageError
from mdsx.foreign.arrow import encode_batch
from mdsx.format import Codec, Encoder, Schema, filenames
from mdsx.storage import StorageOptions, believe, open_storage
from mdsx.transfer.converting.plan import ConversionPlan
from mdsx.transfer.converting.record import PartTallies, Tally, added
from mdsx.transfer.converting.source import Block, Counted, Lost, Row, SampleSource, Unit
from mdsx.writer import Writer

_REPORT_EVERY = 0.1  # seconds


class Advance(NamedTuple):
    """A message about the progress of a part: `size` bytes read, `samples` converted and `skipped` so far. `error`: the
    error just skipped, if any. `amounts`: see `SampleSource.amounts`."""

    part: int
    size: int
    samples: int
    skipped: int
    amounts: tuple[int, ...] = ()
    error: MdsxError | None = None


@dataclass(frozen=True, slots=True)
class PartWork:
    """Converts parts of `plan`, in any process. `options`: for the output's storage; `known`: see `mdsx.storage`;
    `codecs`: those of other packages' types."""

    plan: ConversionPlan
    source: SampleSource
    options: StorageOptions | None
    known: tuple[str, ...] = ()
    codecs: tuple[Codec, ...] = ()

    def __call__(self, task: int, report: Report) -> Tally:
        """Convert the unfinished units of a part. Raise the first error, unless the plan skips errors."""
        believe(self.known)
        plan, source, options = self.plan, self.source, self.options
        url, units = plan.part_url(task), plan.part_units(task)
        done = PartTallies(open_storage(plan.records_url(task), options), task)
        finished = is_finished(url, options)
        if finished and len(done.tallies) < len(units):
            raise UsageError("holds another dataset", file=url, hint="give another output")
        with Writer(  # if the part is finished, it removes the leftovers of a killed writer
            url,
            plan.columns,
            shard_size=plan.shard_size,
            compression=plan.compression,
            resume=True,
            metadata=metadata_of(plan, source),
            lengths=source.lengths,
            storage_options=options,
        ) as out:
            if finished:
                tally = done.total(len(units))
                size = sum(unit.size for unit in units)
                report(Advance(task, size, tally.samples, tally.skipped, tuple(tally.amounts)))
                return tally
            first, samples = done.durable(out.samples)
            known, size = done.total(first), sum(unit.size for unit in units[:first])
            before = Advance(task, size, out.samples, known.skipped, tuple(known.amounts))
            report(before)
            intake = _Intake(plan, source, out, report, before, durable=out.samples - samples)
            for place, unit in enumerate(units[first:], first):
                tally = intake.convert(unit)
                if tally.skipped:
                    deliver(report)  # before the unit is stored: it is not read again, so its errors would be lost
                done.put(place, tally, last=place + 1 == len(units))
            if intake.durable:
                hint = "the sources have changed: remove the output and convert them again"
                raise UsageError("holds more samples than its sources", file=url, found=out.samples, hint=hint)
        return done.total(len(units))


def metadata_of(plan: ConversionPlan, source: SampleSource) -> dict[str, Any]:
    """Return the metadata of the converted dataset."""
    return {**source.metadata(plan.columns), "converted": {"from": plan.kind, "digest": plan.digest}}


def is_finished(url: str, options: StorageOptions | None) -> bool:
    """Return whether there is an index at `url`."""
    storage = open_storage(url, options)
    return any(entry.key == filenames.INDEX for entry in storage.list(filenames.INDEX))


class _Intake:
    """Writes the samples of units, except the next `durable` ones, which are written already."""

    def __init__(
        self, plan: ConversionPlan, source: SampleSource, out: Writer, report: Report, before: Advance, *, durable: int
    ) -> None:
        self.durable = durable
        self._plan, self._source, self._out, self._report = plan, source, out, report
        self._encoder = Encoder(Schema.from_columns(plan.columns))
        self._part, self._size, self._skipped = before.part, before.size, before.skipped
        self._amounts = list(before.amounts)
        self._reported = time.monotonic()

    def convert(self, unit: Unit) -> Tally:
        """Convert a whole unit."""
        tally, left = Tally(), unit.size

        def count(size: int) -> None:
            nonlocal left
            self._size += min(size, left)
            left -= min(size, left)

        with closing(self._source.read(unit, self._plan.columns, count)) as items:
            for item in items:
                if isinstance(item, Block):
                    self._take_block(unit, item, 0, item.samples, tally)
                elif isinstance(item, Counted):
                    tally.count(item.amounts)
                    self._amounts = added(self._amounts, item.amounts)
                else:
                    self._take(unit, item, tally)
                if time.monotonic() - self._reported > _REPORT_EVERY:
                    self._sum_up()
        count(left)
        self._sum_up()
        return tally

    def _take_block(self, unit: Unit, block: Block, start: int, stop: int, tally: Tally) -> None:
        """Write samples `start` to `stop` of a block. If some are invalid, bisect down to these."""
        if 0 < self.durable < stop - start:
            cut = start + self.durable
            self._take_block(unit, block, start, cut, tally)
            self._take_block(unit, block, cut, stop, tally)
            return
        count = stop - start
        try:
            part = _part(block.columns, start, stop)
            if self.durable:
                encode_batch(self._encoder, part)
                self.durable -= count
            else:
                self._out.write_batch(part)
        except SampleError as error:
            if count > 1:
                middle = start + count // 2
                self._take_block(unit, block, start, middle, tally)
                self._take_block(unit, block, middle, stop, tally)
                return
            self._take(unit, self._source.refused(unit, block.place(start), error), tally)
        else:
            tally.samples += count

    def _take(self, unit: Unit, item: Row | Lost | MdsxError, tally: Tally) -> None:
        found, samples = item if isinstance(item, Lost) else (item, 1)
        error = self._write(unit, found) if isinstance(found, Row) else found
        if error is None:
            tally.samples += 1
        elif self._plan.on_error == "skip":
            tally.skip(error, samples)
            self._skipped += samples
            self._sum_up(error)
        else:
            raise error

    def _write(self, unit: Unit, found: Row) -> MdsxError | None:
        try:
            if self.durable:
                self._encoder.sample(found.values)
                self.durable -= 1
            else:
                self._out.write(found.values)
        except SampleError as error:
            return self._source.refused(unit, found.place, error)
        return None

    def _sum_up(self, error: MdsxError | None = None) -> None:
        self._report(Advance(self._part, self._size, self._out.samples, self._skipped, tuple(self._amounts), error))
        self._reported = time.monotonic()


def _part(columns: Any, start: int, stop: int) -> Any:
    """Return samples of Arrow data, or of columns by name."""
    if isinstance(columns, Mapping):
        return {name: values[start:stop] for name, values in columns.items()}
    return columns.slice(start, stop - start)
