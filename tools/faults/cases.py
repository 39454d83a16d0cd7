"""The faults, which loaders meet them, and what a loader does in a fresh process of its environment."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tools.account import Id
from tools.conformance.matrix import EVEN, Shape
from tools.conformance.task import Task, sample_of
from tools.fault_proxy import Fault, cut, reset, status
from tools.peers import Layout, Peer, ready
from tools.processes import free_port, members, torchrun_environment

DATA = EVEN
LIMIT = 120.0  # seconds: mosaicml gives a shard 60

_BATCH, _SEED = 12, 7
_KILL_AT = 5  # batches
_FAIL_AT = DATA.samples * 5 // 8  # the sample at which a writer fails


@dataclass(frozen=True)
class Case:
    """A fault. `where`: what is damaged or killed. A `fault` of the storage meets `times` requests of a shard.

    A case runs twice, in fresh processes: with the fault, and again when it is over, with the cache or the dataset that
    the first run left.
    """

    name: str
    title: str
    where: Literal["storage", "stored", "transit", "cached", "worker", "writer"]
    fault: Fault | None = None
    times: int | None = None
    deed: Literal["", "raise", "kill"] = ""

    def concerns(self, loader: Peer) -> bool:
        if self.where in ("storage", "transit", "cached"):
            return loader.remote and (loader.caches or self.where != "cached")
        needs = {"writer": loader.writes, "worker": loader.has_workers}
        return loader.in_faults and needs.get(self.where, True)


CASES = (
    Case("stored", "a bit flipped in a stored shard", "stored"),
    Case("transit", "a bit flipped on the way, once", "transit", times=1),
    Case("cached", "a bit flipped in the copy that an earlier run cached", "cached"),
    Case("missing", "a shard is not there (404)", "storage", status(404, "NoSuchKey")),
    Case("busy", "503 SlowDown, twice", "storage", status(503, "SlowDown"), 2),
    Case("reset", "connection reset within a shard, once", "storage", reset(0.5), 1),
    Case("cut", "a shard's body ends early, once", "storage", cut(0.5), 1),
    Case("worker", "SIGKILL of a worker process", "worker"),
    Case("writer-error", "an exception while a dataset is written", "writer", deed="raise"),
    Case("writer-killed", "SIGKILL while a dataset is written", "writer", deed="kill"),
)


def read(loader: str, workers: int = 0, kill_worker: bool = False, **where: Any) -> Iterator[Sequence[Id]]:
    """Yield the ids of each batch of an epoch. `where`: the directories of a `Task`, or the URL."""
    yield []  # in case there are no batches
    os.environ.update(torchrun_environment(0, 1, free_port()))
    task = Task(**where, data=(DATA,), shape=Shape(1, workers, _BATCH), stop=None, epochs=1, seed=_SEED)
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

    ready(loader).write(Path(directory), "text", DATA.ids, make, Layout(shard=shard))


def prepare(loader: str, directory: str) -> None:
    """Write the dataset that is read."""
    ready(loader).prepare(Path(directory), DATA)


def _kill_a_worker() -> None:
    left = set(members(session=os.getsid(0))) - {os.getpid()}
    os.kill(min(pid for pid in left if not _helps(pid)), signal.SIGKILL)


def _helps(pid: int) -> bool:
    """Whether it is a process of multiprocessing's own: the resource tracker, or the server from which workers fork."""
    command = Path(f"/proc/{pid}/cmdline").read_bytes()  # a worker has its server's
    child = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1] == str(os.getpid())
    return b"resource_tracker" in command or (b"forkserver" in command and child)
