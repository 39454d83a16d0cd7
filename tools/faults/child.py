"""What a loader does in a fresh process of its environment: read an epoch, or write a dataset."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.conformance.matrix import EVEN, Shape
from tools.conformance.task import Task, sample_of
from tools.peers import Layout, ready
from tools.processes import free_port, members, torchrun_environment

_BATCH, _SEED = 12, 7
_KILL_AT = 5  # batches
_FAIL_AT = EVEN.samples * 5 // 8  # the sample at which a writer fails
_TRACKER = b"resource_tracker"


def read(loader: str, workers: int = 0, kill_worker: bool = False, **where: Any) -> Iterator[list[int]]:
    """Yield the ids of each batch of an epoch. `where`: the directories of a `Task`, or the URL."""
    yield []  # in case there are no batches
    os.environ.update(torchrun_environment(0, 1, free_port()))
    task = Task(**where, data=(EVEN,), shape=Shape(1, workers, _BATCH), stop=None, epochs=1, seed=_SEED)
    for step, ids in enumerate(ready(loader).open(task, []).batches(0), 1):
        yield ids
        if kill_worker and step == _KILL_AT:
            _kill_a_worker()


def write(loader: str, directory: str, shard: int, deed: str) -> None:
    """Write the dataset as an ordinary job does. One sample raises an error or kills the process, if `deed` says so."""

    def make(number: int) -> dict[str, Any]:
        if number == _FAIL_AT and deed == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if number == _FAIL_AT and deed == "raise":
            raise ValueError("this sample cannot be made")
        return sample_of(number)

    ready(loader).write(Path(directory), "text", EVEN.ids, make, Layout(shard=shard))


def prepare(loader: str, directory: str) -> None:
    """Write the dataset that is read."""
    ready(loader).prepare(Path(directory), EVEN)


def _kill_a_worker() -> None:
    for pid in sorted(members(session=os.getsid(0))):
        if pid != os.getpid() and _TRACKER not in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
            return
    raise AssertionError("it has no worker")
