"""The parts of a conversion, divided among several processes.

Each worker gets one part after another, and reports through a pipe. Workers are spawned, not forked. A worker ends with
its parent, however the parent ends: two processes must never write the same part. The first error ends all workers;
what they made durable stays for the rerun.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, TypeAlias

from mdsx.convert.part import convert_part
from mdsx.convert.plan import Plan
from mdsx.convert.reports import Reporter
from mdsx.convert.tallies import Tally
from mdsx.errors import MdsxError
from mdsx.process import end_with_parent, ignoring_interrupts
from mdsx.storage import answered, believe

_Pipe: TypeAlias = "Connection[Any, Any]"


def convert_parts(plan: Plan, processes: int, reporter: Reporter) -> list[Tally]:
    """Convert all parts of `plan`, in this process or in up to `processes` others."""
    processes = min(processes, plan.parts)
    if processes == 1:
        return [convert_part(plan, part, reporter) for part in range(plan.parts)]
    tallies: dict[int, Tally] = {}
    left = iter(range(plan.parts))
    with _workers(plan, processes) as workers:
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
    """Raise MdsxError if the pipe fails because its worker died: between messages, in one, or before it read ours."""
    try:
        yield
    except (EOFError, OSError):
        worker.join()
        raise MdsxError(f"a worker died with exit code {worker.exitcode}", hint="out of memory? rerun") from None


@contextmanager
def _workers(plan: Plan, count: int) -> Iterator[dict[_Pipe, SpawnProcess]]:
    context = multiprocessing.get_context("spawn")
    workers: dict[_Pipe, SpawnProcess] = {}
    try:
        for _ in range(count):
            ours, theirs = context.Pipe()
            worker = context.Process(target=_work, args=(plan, answered(), theirs), name="mdsx-convert", daemon=True)
            with ignoring_interrupts():  # only the parent handles Ctrl-C, and ends its workers
                worker.start()
            theirs.close()
            workers[ours] = worker
        yield workers
    finally:
        for worker in workers.values():
            worker.terminate()  # a resume can handle whatever they leave
        for connection, worker in workers.items():
            worker.join()
            connection.close()


class _PipeReporter:
    """Reports to the parent."""

    def __init__(self, connection: _Pipe) -> None:
        self._connection = connection

    def advance(self, size: int, samples: int) -> None:
        self._connection.send(("advance", size, samples))

    def skip(self, error: MdsxError) -> None:
        self._connection.send(("skip", error))


def _work(plan: Plan, known: tuple[str, ...], connection: _Pipe) -> None:
    believe(known)
    end_with_parent()
    while True:
        part: Any = connection.recv()
        try:
            tally = convert_part(plan, part, _PipeReporter(connection))
        except MdsxError as error:
            connection.send(("error", error))
            return
        connection.send(("done", part, tally))
