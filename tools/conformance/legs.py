"""Runs a leg: its ranks are forked from this process, which has imported the loader, and are killed when they are done.

Each rank leads a process group and has the environment that torchrun would give it. It takes batches, logs their ids,
saves the checkpoint, and then waits to be killed. When all ranks wait, or one has failed, or the time limit is over,
every process of the leg gets SIGKILL, and what they left in shared memory is removed.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from tools import processes
from tools.account import SAVED, Delivered
from tools.conformance.task import Task
from tools.peers import Loader, Peer

_TRACKER = b"multiprocessing.resource_tracker"
_TRACKERS_END = 10.0  # seconds
Program = Callable[[], object]


class LegFailed(Exception):
    """A leg that did not end by itself. `kind` is hang or error."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


def run_leg(peer: Peer, task: Task, limit: float) -> None:
    port = processes.free_port()
    ranks = [partial(_run_rank, peer, replace(task, rank=rank), port) for rank in range(task.shape.world)]
    run_programs(ranks, Path(task.directory), limit)


def _run_rank(peer: Peer, task: Task, port: int) -> Loader:
    """Return at the rank's stop, or after all epochs, the loader with all its workers alive."""
    os.environ.update(processes.torchrun_environment(task.rank, task.shape.world, port, task.nodes))
    if task.nodes and peer.shares_memory:
        processes.have_own_shared_memory()
    states = sorted(Path(task.resume).glob("*.pickle")) if task.resume else ()  # of each rank
    loader = peer.open(task, [pickle.loads(path.read_bytes()) for path in states])
    stop = task.stop
    left: int | None = None  # batches until the rank is to be killed, once the checkpoint is saved
    with task.log_file(task.rank).open("a", buffering=1) as log:
        for epoch in range(loader.epoch, task.epochs):
            for step, ids in chain(enumerate(loader.batches(epoch), 1), [(None, ())]):
                if step is not None:
                    # it counts before the checkpoint includes it
                    log.write(Delivered(epoch, step, step, tuple(ids)).to_line())
                    left = None if left is None else left - 1
                if left is None and stop is not None and stop.epoch == epoch and step in (stop.step, None):
                    Path(task.directory, f"state{task.rank}.pickle").write_bytes(pickle.dumps(loader.state()))
                    log.write(SAVED)
                    left = stop.more
                if left == 0:
                    return loader
    return loader


def run_programs(programs: Sequence[Program], directory: Path, limit: float) -> None:
    """Run programs at once, with logs in a new directory. Return when no process is left. Raise LegFailed."""
    directory.mkdir(parents=True)
    reports, report = Pipe(duplex=False)
    with reports, report:
        pids: list[int] = []
        try:
            for number, program in enumerate(programs):
                pids.append(os.fork())
                if pids[-1] == 0:
                    _be_program(number, program, directory, report)
                with contextlib.suppress(PermissionError, ProcessLookupError):
                    os.setpgid(pids[-1], pids[-1])
            running, deadline = dict(enumerate(pids)), time.monotonic() + limit
            while running:
                if time.monotonic() > deadline:
                    raise LegFailed("hang", f"ranks {sorted(running)} made no end")
                if reports.poll(0.05):
                    number, error = reports.recv()
                    if error:
                        raise LegFailed("error", f"rank {number}: {error}")
                    del running[number]
                for number, pid in running.items():
                    ended, status = os.waitpid(pid, os.WNOHANG)
                    if ended:
                        code = os.waitstatus_to_exitcode(status)
                        raise LegFailed("error", f"rank {number} ended with status {code}")
        finally:
            _end(pids)


def _be_program(number: int, program: Program, directory: Path, report: Connection[Any, Any]) -> NoReturn:
    """In a process group of its own, run a program, report how it ended, and wait to be killed."""
    try:
        os.setpgid(0, 0)
        processes.end_with_parent()
        output = os.open(directory / f"output{number}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ["TMPDIR"] = tempfile.tempdir = str(directory)
        error = ""
        try:
            _kept = program()  # its workers live as long as it is referred to
        except BaseException as raised:
            traceback.print_exc()
            sys.stderr.flush()
            error = processes.line_of(raised)
        report.send((number, error))
        while True:
            signal.pause()
    finally:
        os._exit(1)


def _end(pids: Sequence[int]) -> None:
    """Kill every process of these groups and remove what they left in shared memory.

    Python's resource trackers are spared: each removes what it knows of once its processes have ended, and ends.
    What they do not know of is removed here, if some process had it mapped.
    """
    names: set[str] = set()
    while left := [pid for pid in processes.members(groups=pids) if _TRACKER not in _read(pid, "cmdline")]:
        for pid in left:
            names.update(re.findall(rf"{processes.SHARED_MEMORY}\S+$", _read(pid, "maps").decode(), re.MULTILINE))
        processes.kill(left)
        time.sleep(0.005)
    for pid in pids:
        with contextlib.suppress(ChildProcessError):  # it was waited for
            os.waitpid(pid, 0)
    deadline = time.monotonic() + _TRACKERS_END
    while trackers := processes.members(groups=pids):
        if time.monotonic() > deadline:
            processes.kill(trackers)
        time.sleep(0.005)
    for name in names:
        Path(name).unlink(missing_ok=True)


def _read(pid: int, name: str) -> bytes:
    """What the kernel says of a process; nothing if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes()
    return b""
