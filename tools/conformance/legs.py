"""Runs a leg: its ranks are forked from this process, which has imported the loader, and are killed when they are done.

Each rank leads a process group and has the environment that torchrun would give it. It takes batches, logs their ids,
saves the checkpoint, and then waits to be killed. When all ranks wait, or one has failed, or the time limit is over,
every process of the leg gets SIGKILL, and what they left in shared memory is removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, NoReturn

from tools.conformance.matrix import Data
from tools.conformance.task import SAVED, Consumed, Task
from tools.peers import Loader, Peer, use_temporary_files_in
from tools.processes import (
    SHARED_MEMORY,
    end_with_parent,
    free_port,
    have_own_shared_memory,
    kill,
    line_of,
    members,
    torchrun_environment,
)

_TRACKERS_END = 10.0  # seconds
Program = Callable[[], None]


class LegFailed(Exception):
    """A leg that did not end by itself. `kind` is hang or error."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


def prepare(peer: Peer, directory: Path, data: Data, limit: float) -> None:
    """Write a dataset, in a process of its own. Raise LegFailed."""
    scratch = directory.parent / f"{directory.name}.prepare"
    scratch.mkdir(parents=True)

    def program() -> None:
        use_temporary_files_in(scratch / "tmp")
        peer.prepare(directory, data)

    _Group([program], scratch).run(limit)


def run_leg(peer: Peer, task: Task) -> None:
    """Run all ranks of a leg. Raise LegFailed."""
    port = free_port()

    def program_of(rank: int) -> Program:
        def program() -> None:
            use_temporary_files_in(Path(task.directory, "tmp"))
            os.environ.update(torchrun_environment(rank, task.shape.world, port, task.nodes))
            if task.nodes and peer.shares_memory:
                have_own_shared_memory()
            run_rank(peer, replace(task, rank=rank))

        return program

    _Group([program_of(rank) for rank in range(task.shape.world)], Path(task.directory)).run(task.limit)


def run_rank(peer: Peer, task: Task) -> None:
    """Return at the rank's stop, or after all epochs, with all its workers alive."""
    loader = peer.open(task, _load(task))
    _kept.append(loader)
    stop = task.stop
    left: int | None = None  # batches until the rank is to be killed, once the checkpoint is saved
    with task.log_file(task.rank).open("a", buffering=1) as log:
        for epoch in range(loader.epoch, task.epochs):
            for step, ids in chain(enumerate(loader.batches(epoch), 1), [(None, ())]):
                if step is not None:
                    log.write(Consumed(epoch, step, tuple(ids)).to_line())  # counts before the checkpoint includes it
                    left = None if left is None else left - 1
                if left is None and stop is not None and stop.epoch == epoch and step in (stop.step, None):
                    _save(loader.state(), task.state_file(task.rank))
                    log.write(json.dumps(SAVED) + "\n")
                    left = stop.more
                if left == 0:
                    return


_kept: list[Loader] = []  # the loader and its workers live until the process is killed


def _load(task: Task) -> list[Any]:
    states: list[Any] = []
    while task.resume and (path := Path(task.resume, f"state{len(states)}.pickle")).exists():
        states.append(pickle.loads(path.read_bytes()))
    return states


def _save(state: Any, path: Path) -> None:
    partial = path.with_suffix(".part")
    partial.write_bytes(pickle.dumps(state))
    os.replace(partial, path)


class _Group:
    """Programs that run at once, each forked into a process group of its own."""

    def __init__(self, programs: Sequence[Program], directory: Path) -> None:
        self._programs = programs
        self._directory = directory
        self._reports, self._report = Pipe(duplex=False)
        self._pids: list[int] = []

    def run(self, limit: float) -> None:
        """Return when all programs are done and no process is left. Raise LegFailed."""
        with self._reports, self._report:
            try:
                for number, program in enumerate(self._programs):
                    self._fork(number, program)
                self._watch(time.monotonic() + limit)
            finally:
                self._end()

    def _fork(self, number: int, program: Program) -> None:
        pid = os.fork()
        if pid == 0:
            self._child(number, program)
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.setpgid(pid, pid)
        self._pids.append(pid)

    def _child(self, number: int, program: Program) -> NoReturn:
        try:
            os.setpgid(0, 0)
            end_with_parent()
            errors = os.open(self._directory / f"output{number}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(errors, 1)
            os.dup2(errors, 2)
            program()
            self._report.send((number, ""))
            while True:
                signal.pause()
        except BaseException as error:
            traceback.print_exc()
            sys.stderr.flush()
            self._report.send((number, line_of(error)))
        finally:
            os._exit(1)

    def _watch(self, deadline: float) -> None:
        waiting = dict(enumerate(self._pids))
        while waiting:
            if self._reports.poll(0.05):
                number, error = self._reports.recv()
                if error:
                    raise LegFailed("error", f"rank {number}: {error}")
                del waiting[number]
                continue
            for number, pid in waiting.items():
                if ended := os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                    code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
                    raise LegFailed("error", f"rank {number} ended with status {code}")
            if time.monotonic() > deadline:
                raise LegFailed("hang", f"ranks {sorted(waiting)} made no end")

    def _end(self) -> None:
        """Kill every process and remove what they left in shared memory.

        Python's resource trackers are spared: each removes what it knows of once its processes have ended, and ends.
        What they do not know of is removed here, if some process had it mapped.
        """
        names: set[str] = set()
        while left := [pid for pid in members(groups=self._pids) if not _is_tracker(pid)]:
            names.update(*(_shared_memory_of(pid) for pid in left))
            kill(left)
            time.sleep(0.005)
        for pid in self._pids:
            os.waitpid(pid, 0)
        deadline = time.monotonic() + _TRACKERS_END
        while trackers := members(groups=self._pids):
            if time.monotonic() > deadline:
                kill(trackers)
            time.sleep(0.005)
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)


def _is_tracker(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"multiprocessing.resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _shared_memory_of(pid: int) -> set[str]:
    names: set[str] = set()
    with contextlib.suppress(OSError):
        names.update(line.split(maxsplit=5)[-1] for line in Path(f"/proc/{pid}/maps").read_text().splitlines())
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                names.add(os.readlink(entry.path))
    return {name for name in names if name.startswith(SHARED_MEMORY) and not name.endswith("(deleted)")}
