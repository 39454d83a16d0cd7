"""The parts of a conversion on several processes.

Each worker is handed one part after another and tells what it does through a pipe. Workers are spawned, not forked. A
worker ends with its parent, however that dies: two must never write the same part. The first error ends them all; what
they made durable stays for the rerun.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.process import parent_process
from typing import Any, TypeAlias

from mdsx.convert.part import convert_part
from mdsx.convert.plan import Plan
from mdsx.convert.skips import Tally
from mdsx.convert.watcher import Watcher
from mdsx.errors import MdsxError
from mdsx.storage.retry import answered, believe

_Pipe: TypeAlias = "Connection[Any, Any]"


def convert_parts(plan: Plan, processes: int, watcher: Watcher) -> list[Tally]:
    """Convert all parts of `plan`, by this process alone or by up to `processes` others."""
    processes = min(processes, plan.parts)
    if processes == 1:
        return [convert_part(plan, part, watcher) for part in range(plan.parts)]
    tallies: dict[int, Tally] = {}
    left = iter(range(plan.parts))
    with _workers(plan, processes) as workers:
        for connection in workers:
            with _told_of_death(workers[connection]):
                connection.send(next(left))
        while len(tallies) < plan.parts:
            ready: list[Any] = wait(list(workers))
            for connection in ready:
                with _told_of_death(workers[connection]):
                    kind, *told = connection.recv()
                match kind:
                    case "error":
                        raise told[0]
                    case "done":
                        part, tallies[part] = told[0], told[1]
                        if (following := next(left, None)) is not None:
                            with _told_of_death(workers[connection]):
                                connection.send(following)
                    case _:
                        getattr(watcher, kind)(*told)
    return [tallies[part] for part in range(plan.parts)]


@contextmanager
def _told_of_death(worker: SpawnProcess) -> Iterator[None]:
    """A pipe fails where its worker died: between messages, in the middle of one, or before it read ours."""
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
            with _deaf():
                worker.start()
            theirs.close()
            workers[ours] = worker
        yield workers
    finally:
        for worker in workers.values():
            worker.terminate()  # all they leave is what a resume expects
        for connection, worker in workers.items():
            worker.join()
            connection.close()


@contextmanager
def _deaf() -> Iterator[None]:
    """Who is started here never hears Ctrl-C: the parent does, and ends it."""
    if threading.current_thread() is not threading.main_thread():
        yield  # a thread gets no Ctrl-C, and may not say who does
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class _Teller(Watcher):
    """Tells the parent."""

    def __init__(self, connection: _Pipe) -> None:
        self._connection = connection

    def progress(self, source_bytes: int, samples: int) -> None:
        self._connection.send(("progress", source_bytes, samples))

    def skipped(self, error: MdsxError) -> None:
        self._connection.send(("skipped", error))


def _work(plan: Plan, known: tuple[str, ...], connection: _Pipe) -> None:
    believe(known)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    while True:
        part: Any = connection.recv()
        try:
            tally = convert_part(plan, part, _Teller(connection))
        except MdsxError as error:
            connection.send(("error", error))
            return
        connection.send(("done", part, tally))


def _die_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
