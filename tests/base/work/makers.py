"""Makers of the contract's tests, and the ways to run them."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np

from mdsx.base.process import Counter, count
from mdsx.base.work import Executor, Processes, Relay, Threads, worker_info

WORKERS = 3
LONG = 4  # tasks of a chunk
Make = Callable[[int], Any]


@dataclass
class Maker:
    """Makes `make(task)`, for the first `most` tasks of a chunk. Files of a directory note what it did."""

    make: Make
    notes: Path | None
    most: int | None
    number: int

    def __call__(self, chunk: list[int]) -> Iterator[Any]:
        for task in chunk[: self.most]:
            count(Counter.READ_SAMPLES)
            self._note(f"made {task}")
            yield self.make(task)

    def close(self) -> None:
        self._note(f"closed {self.number}")

    def _note(self, name: str) -> None:
        if self.notes is not None:
            (self.notes / name).touch()


def thread(make: Make, notes: Path | None = None, most: int | None = None, **options: Any) -> Executor:
    options = {"ahead": 24, "longest": 16, "together": LONG, **options}
    return Threads(partial(Maker, make, notes, most), **options)


def threads(make: Make, notes: Path | None = None, most: int | None = None, **options: Any) -> Executor:
    options = {"ahead": 24, "longest": LONG, "together": 2, **options}
    return Threads(partial(Maker, make, notes, most), WORKERS, **options)


def processes(
    make: Make, notes: Path | None = None, most: int | None = None, count: int = WORKERS, **options: Any
) -> Executor:
    return Processes(partial(Maker, make, notes, most), count, **{"ahead": 24, "longest": LONG, **options})


def passed_on(made: Iterator[tuple[int, Any]]) -> Generator[tuple[int, Any], None, None]:
    yield from made


def relayed(factory: Callable[..., Executor], make: Make, *args: Any, **options: Any) -> Executor:
    return Relay(factory(make, *args, **options), passed_on)


EXECUTORS: dict[str, Callable[..., Executor]] = {
    "thread": thread,
    "threads": threads,
    "processes": processes,
    "persistent": partial(processes, persistent=True),
    "relayed thread": partial(relayed, thread),
    "relayed threads": partial(relayed, threads),
    "relayed processes": partial(relayed, processes),
    "relayed persistent": partial(relayed, partial(processes, persistent=True)),
}
IN_THREADS = [EXECUTORS[name] for name in ("thread", "threads", "relayed thread", "relayed threads")]


def made(notes: Path) -> int:
    """Return how many results were made."""
    return sum(path.name.startswith("made") for path in notes.iterdir())


# --- what is made; processes may be spawned, so these are functions of a module


def same(task: int) -> int:
    return task


def array(task: int) -> Any:
    return np.full(100, task)


def failing(at: int, task: int) -> int:
    if task == at:
        error = KeyError("here", at)
        error.add_note("a note")
        raise error
    return task


def failing_once(flag: Path, at: int, task: int) -> int:
    """Fail as long as `flag` is there."""
    return failing(at, task) if flag.exists() else task


def late(at: int, task: int) -> int:
    """Be slow in one task, which others overtake."""
    if task == at:
        time.sleep(0.3)
    return task


def dying(flag: Path, at: int, task: int) -> int:
    if task == at and flag.exists():
        flag.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def waiting_for(flag: Path, task: int) -> int:
    """Wait while `flag` is there, but for the first task."""
    while task and flag.exists():
        time.sleep(0.005)
    return task


def drawn(_: int) -> tuple[Any, ...]:
    """Return what each source of random numbers gives, and who draws."""
    return worker_info(), random.random(), float(np.random.random())


def living_workers() -> list[BaseProcess]:
    """The worker processes that live. A process that another test has left is none of them."""
    return [child for child in multiprocessing.active_children() if child.name.startswith("mdsx-worker")]
