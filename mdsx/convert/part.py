"""One part of a conversion: a run of tars -> one dataset. A rerun continues where an earlier run died.

The tars that were finished are not read again (`tallies.py`). In the tar where a rerun continues, it reads the samples
that are durable without writing them.
"""

from __future__ import annotations

import time
from contextlib import closing

from mdsx.convert.plan import Plan
from mdsx.convert.reports import Reporter
from mdsx.convert.sources import Source, read_chunks
from mdsx.convert.tallies import PartTallies, Tally
from mdsx.convert.tar_members import read_members
from mdsx.convert.values import SampleReader
from mdsx.convert.webdataset import TarSample, group_samples
from mdsx.errors import MdsxError, SampleError, UsageError
from mdsx.format import Encoder, Schema, filenames
from mdsx.storage import open_storage
from mdsx.writer import Writer

_REPORT_EVERY = 0.1  # seconds


def convert_part(plan: Plan, part: int, reporter: Reporter) -> Tally:
    """Convert the tars of one part that are left. Unless the plan skips errors, raise the first one."""
    url, sources, done = plan.part_url(part), plan.part_sources(part), PartTallies(plan.out, part)
    if is_finished(url):
        if len(done.tallies) < len(sources):
            raise UsageError("holds a dataset of something else", file=url, hint="give another output")
        tally = done.total(len(sources))
        reporter.advance(sum(source.size for source in sources), tally.samples)
        return tally
    schema = Schema.from_columns(plan.columns)
    with Writer(
        url,
        plan.columns,
        shard_size=plan.shard_size,
        compression=plan.compression,
        resume=True,
        metadata={"converted": {"from": "tar", "digest": plan.digest}},
    ) as out:
        first, samples = done.durable(out.samples)
        reporter.advance(sum(source.size for source in sources[:first]), out.samples)
        intake = _Intake(plan, out, Encoder(schema), reporter, durable=out.samples - samples)
        for place, source in enumerate(sources[first:], first):
            tally = intake.convert(source)
            done.put(place, tally, last=place + 1 == len(sources))
        if intake.durable:
            hint = "the sources have changed: remove the output and convert them again"
            raise UsageError("holds more samples than its sources", file=url, found=out.samples, hint=hint)
    return done.total(len(sources))


def is_finished(url: str, connect_timeout: float | None = None) -> bool:
    """Whether there is an index at `url`."""
    storage = open_storage(url, connect_timeout=connect_timeout)
    return any(entry.key == filenames.INDEX for entry in storage.list(filenames.INDEX))


class _Intake:
    """Writes tars' samples, except for the next `durable` ones, which the writer already has."""

    def __init__(self, plan: Plan, out: Writer, encoder: Encoder, reporter: Reporter, *, durable: int) -> None:
        self.durable = durable
        self._plan, self._out, self._encoder, self._reporter = plan, out, encoder, reporter
        self._bytes, self._samples, self._reported = 0, 0, time.monotonic()

    def convert(self, source: Source) -> Tally:
        """Convert a whole tar."""
        plan, tally = self._plan, Tally()
        reader = SampleReader(plan.columns, file=source.url, stored=source.size, nan_null=plan.nan == "null")
        with closing(read_chunks(source, self._count)) as chunks:
            for item in group_samples(read_members(chunks, file=source.url), file=source.url, names=plan.names):
                error = self._take(item, reader) if isinstance(item, TarSample) else item
                if error is None:
                    tally.samples += 1
                elif plan.on_error == "skip":
                    tally.skip(error)
                    self._reporter.skip(error)
                else:
                    raise error
        self._report()
        return tally

    def _take(self, sample: TarSample, reader: SampleReader) -> MdsxError | None:
        try:
            values = reader.read(sample)
        except SampleError as error:
            return error
        try:
            if self.durable:
                self._encoder.sample(values)
                self.durable -= 1
            else:
                self._out.write(values)
                self._samples += 1
        except SampleError as error:
            return reader.misfit(sample, error)
        if time.monotonic() - self._reported > _REPORT_EVERY:
            self._report()
        return None

    def _count(self, size: int) -> None:
        self._bytes += size

    def _report(self) -> None:
        self._reporter.advance(self._bytes, self._samples)
        self._bytes, self._samples, self._reported = 0, 0, time.monotonic()
