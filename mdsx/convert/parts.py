"""Convert the parts of a conversion, each a run of tars, in this process or in several.

A rerun continues where an earlier run ended. Finished tars are not read again (`record.py`). In the tar where a rerun
continues, it reads the durable samples without writing them.

Each worker process gets one part after another, and reports through a pipe. Workers are spawned, not forked. A worker
ends with its parent, however the parent ends, because two processes must never write the same part. The first error
ends all workers; durable samples stay for the rerun.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, NamedTuple, Protocol, TypeAlias

from mdsx.convert.record import PartTallies, Plan, Tally
from mdsx.convert.sources import Source, read_chunks
from mdsx.convert.tar_members import read_members
from mdsx.convert.values import SampleReader
from mdsx.convert.webdataset import TarSample, group_samples
from mdsx.errors import MdsxError, SampleError, UsageError
from mdsx.format import Encoder, Schema, filenames
from mdsx.process import end_with_parent, ignoring_interrupts
from mdsx.storage import StorageOptions, answered, believe, open_storage
from mdsx.writer import Writer

_REPORT_EVERY = 0.1  # seconds


class Reporter(Protocol):
    """Receives reports while a part is converted."""

    def advance(self, size: int, samples: int) -> None:
        """Note that `size` more bytes were read, and `samples` more samples converted."""

    def skip(self, error: MdsxError) -> None:
        """Note that a sample, or a stretch of a damaged tar, was skipped."""


class Access(NamedTuple):
    """The storage options of a conversion's output and of its sources. They are not part of its stored plan."""

    out: StorageOptions | None = None
    sources: StorageOptions | None = None


def convert_part(plan: Plan, part: int, reporter: Reporter, access: Access) -> Tally:
    """Convert the tars of a part that are not finished yet. Raise the first error, unless the plan skips errors."""
    url, sources = plan.part_url(part), plan.part_sources(part)
    done = PartTallies(open_storage(plan.out, access.out), part)
    if is_finished(url, access.out):
        if len(done.tallies) < len(sources):
            raise UsageError("holds another dataset", file=url, hint="give another output")
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
        storage_options=access.out,
    ) as out:
        first, samples = done.durable(out.samples)
        reporter.advance(sum(source.size for source in sources[:first]), out.samples)
        intake = _Intake(plan, access.sources, out, Encoder(schema), reporter, durable=out.samples - samples)
        for place, source in enumerate(sources[first:], first):
            tally = intake.convert(source)
            done.put(place, tally, last=place + 1 == len(sources))
        if intake.durable:
            hint = "the sources have changed: remove the output and convert them again"
            raise UsageError("holds more samples than its sources", file=url, found=out.samples, hint=hint)
    return done.total(len(sources))


def is_finished(url: str, options: StorageOptions | None) -> bool:
    """Return whether there is an index at `url`."""
    storage = open_storage(url, options)
    return any(entry.key == filenames.INDEX for entry in storage.list(filenames.INDEX))


class _Intake:
    """Writes the samples of tars, except for the next `durable` ones, which the writer has already."""

    def __init__(
        self,
        plan: Plan,
        options: StorageOptions | None,
        out: Writer,
        encoder: Encoder,
        reporter: Reporter,
        *,
        durable: int,
    ) -> None:
        self.durable = durable
        self._plan, self._options, self._out, self._encoder, self._reporter = plan, options, out, encoder, reporter
        self._bytes, self._samples, self._reported = 0, 0, time.monotonic()

    def convert(self, source: Source) -> Tally:
        """Convert a whole tar."""
        plan, tally = self._plan, Tally()
        reader = SampleReader(plan.columns, file=source.url, stored=source.size, nan_null=plan.nan == "null")
        with closing(read_chunks(source, self._count, self._options)) as chunks:
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


# --- several processes

_Pipe: TypeAlias = "Connection[Any, Any]"


def convert_parts(plan: Plan, processes: int, reporter: Reporter, access: Access) -> list[Tally]:
    """Convert all parts of `plan`, in this process or in up to `processes` others."""
    processes = min(processes, plan.parts)
    if processes == 1:
        return [convert_part(plan, part, reporter, access) for part in range(plan.parts)]
    tallies: dict[int, Tally] = {}
    left = iter(range(plan.parts))
    with _workers(plan, processes, access) as workers:
        for connection in workers:
            with _noticing_death(workers[connection]):
                connection.send(next(left))
        while len(tallies) < plan.parts:
            ready: list[Any] = wait(list(workers))
            for connection in ready:
                with _noticing_death(workers[connection]):
                    kind, *values = connection.recv()
                match kind:
                    case "error":
                        raise values[0]
                    case "done":
                        part, tallies[part] = values[0], values[1]
                        if (following := next(left, None)) is not None:
                            with _noticing_death(workers[connection]):
                                connection.send(following)
                    case "skip":
                        reporter.skip(*values)
                    case _:
                        reporter.advance(*values)
    return [tallies[part] for part in range(plan.parts)]


@contextmanager
def _noticing_death(worker: SpawnProcess) -> Iterator[None]:
    """Raise MdsxError if the pipe fails because its worker died, at any time."""
    try:
        yield
    except (EOFError, OSError):
        worker.join()
        raise MdsxError(f"a worker died with exit code {worker.exitcode}", hint="out of memory? rerun") from None


@contextmanager
def _workers(plan: Plan, count: int, access: Access) -> Iterator[dict[_Pipe, SpawnProcess]]:
    context = multiprocessing.get_context("spawn")
    workers: dict[_Pipe, SpawnProcess] = {}
    try:
        for _ in range(count):
            ours, theirs = context.Pipe()
            worker = context.Process(
                target=_work, args=(plan, access, answered(), theirs), name="mdsx-convert", daemon=True
            )
            with ignoring_interrupts():  # only the parent handles Ctrl-C; it ends its workers
                worker.start()
            theirs.close()
            workers[ours] = worker
        yield workers
    finally:
        for worker in workers.values():
            worker.terminate()  # a rerun can continue from whatever they leave
        for connection, worker in workers.items():
            worker.join()
            connection.close()


class _PipeReporter:
    """Reports to the parent process."""

    def __init__(self, connection: _Pipe) -> None:
        self._connection = connection

    def advance(self, size: int, samples: int) -> None:
        self._connection.send(("advance", size, samples))

    def skip(self, error: MdsxError) -> None:
        self._connection.send(("skip", error))


def _work(plan: Plan, access: Access, known: tuple[str, ...], connection: _Pipe) -> None:
    believe(known)
    end_with_parent()
    while True:
        try:
            part: Any = connection.recv()
        except (EOFError, ConnectionError):  # the parent was killed; this process is about to be
            return
        try:
            tally = convert_part(plan, part, _PipeReporter(connection), access)
        except MdsxError as error:
            connection.send(("error", error))
            return
        connection.send(("done", part, tally))
