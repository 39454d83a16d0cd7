"""One part of a conversion: a run of tars -> one dataset, continued where a run that died left it.

What each finished tar gave (samples, and what was skipped) is kept in `_convert/part.NNNNN.json` below the output, so
that a rerun need not read those tars again; of the tar in which it goes on, it reads past the samples that are durable.
"""

from __future__ import annotations

import time
from contextlib import closing, suppress

from mdsx.convert.archive import read_members
from mdsx.convert.plan import Plan
from mdsx.convert.samples import TarSample, group_samples
from mdsx.convert.skips import Tally, decode_tallies, encode_tallies, total
from mdsx.convert.sources import Source, read_chunks
from mdsx.convert.values import SampleReader
from mdsx.convert.watcher import Watcher
from mdsx.errors import MdsxError, MissingError, SampleError, UsageError
from mdsx.format import Encoder, Schema, filenames
from mdsx.storage import open_storage
from mdsx.writer import Writer

_SAVE_EVERY = 10.0  # seconds; a rerun reads again what was converted since
_TELL_EVERY = 0.1


def convert_part(plan: Plan, part: int, watcher: Watcher) -> Tally:
    """Convert the tars of one part, or what is left of them. Unless the plan skips, raises the first error found."""
    url, sources, ledger = plan.part_url(part), plan.part_sources(part), Ledger(plan.out, part)
    if is_finished(url):
        if len(ledger.tallies) < len(sources):
            raise UsageError("holds a dataset of something else", file=url, hint="give another output")
        tally = ledger.total(len(sources))
        watcher.progress(sum(source.size for source in sources), tally.samples)
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
        first, samples = ledger.durable(out.samples)
        watcher.progress(sum(source.size for source in sources[:first]), out.samples)
        intake = _Intake(plan, out, Encoder(schema), watcher, behind=out.samples - samples)
        for place, source in enumerate(sources[first:], first):
            tally = intake.convert(source)
            ledger.put(place, tally, last=place + 1 == len(sources))
        if intake.behind:
            hint = "the sources were changed: remove the output and convert them anew"
            raise UsageError("holds more samples than its sources", file=url, found=out.samples, hint=hint)
    return ledger.total(len(sources))


def is_finished(url: str, connect_timeout: float | None = None) -> bool:
    storage = open_storage(url, connect_timeout=connect_timeout)
    return any(entry.key == filenames.INDEX for entry in storage.list(filenames.INDEX))


class _Intake:
    """Takes tars' samples into a writer, but for the first `behind` ones, which it holds already."""

    def __init__(self, plan: Plan, out: Writer, encoder: Encoder, watcher: Watcher, *, behind: int) -> None:
        self.behind = behind
        self._plan, self._out, self._encoder, self._watcher = plan, out, encoder, watcher
        self._bytes, self._samples, self._told = 0, 0, time.monotonic()

    def convert(self, source: Source) -> Tally:
        """All of one tar."""
        plan, tally = self._plan, Tally()
        reader = SampleReader(plan.columns, file=source.url, stored=source.size, nan_null=plan.nan == "null")
        with closing(read_chunks(source, self._count)) as chunks:
            for item in group_samples(read_members(chunks, file=source.url), file=source.url, names=plan.names):
                error = self._take(item, reader) if isinstance(item, TarSample) else item
                if error is None:
                    tally.samples += 1
                elif plan.on_error == "skip":
                    tally.skip(error)
                    self._watcher.skipped(error)
                else:
                    raise error
        self._tell()
        return tally

    def _take(self, sample: TarSample, reader: SampleReader) -> MdsxError | None:
        try:
            values = reader.read(sample)
        except SampleError as error:
            return error
        try:
            if self.behind:
                self._encoder.sample(values)
                self.behind -= 1
            else:
                self._out.write(values)
                self._samples += 1
        except SampleError as error:
            return reader.misfit(sample, error)
        if time.monotonic() - self._told > _TELL_EVERY:
            self._tell()
        return None

    def _count(self, size: int) -> None:
        self._bytes += size

    def _tell(self) -> None:
        self._watcher.progress(self._bytes, self._samples)
        self._bytes, self._samples, self._told = 0, 0, time.monotonic()


class Ledger:
    """The tallies of a part's tars, in order, kept in storage."""

    def __init__(self, out: str, part: int) -> None:
        self._storage, self._key = open_storage(out), filenames.convert_record(part)
        self.tallies: list[Tally] = []
        self._saved = time.monotonic()
        with suppress(MissingError):
            self.tallies = decode_tallies(self._storage.get(self._key).data, file=f"{out}/{self._key}")

    def durable(self, samples: int) -> tuple[int, int]:
        """How many tars, with how many samples, lie within the first `samples` samples, which are durable."""
        count = durable = 0
        for tally in self.tallies:
            if durable + tally.samples > samples:
                break
            count, durable = count + 1, durable + tally.samples
        return count, durable

    def put(self, place: int, tally: Tally, *, last: bool) -> None:
        self.tallies[place:] = [tally]
        if last or time.monotonic() - self._saved > _SAVE_EVERY:
            self._storage.put(self._key, encode_tallies(self.tallies))
            self._saved = time.monotonic()

    def total(self, count: int) -> Tally:
        return total(self.tallies[:count])
