"""The process that has imported one loader, and forks what the matrix needs of it: `python -m tools.conformance.host`.

It runs in the loader's own environment, reads requests from standard input and answers on standard output, a line of
JSON each. A leg's ranks are processes forked from it, each the leader of a process group, with the environment that
torchrun would give them. When all ranks stand still, or one has failed, or time is over, every process of the leg is
killed by SIGKILL, and what they left in shared memory is removed. When standard input ends, so does everything.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

from tools.conformance.adaptors import Adaptor, adaptor, use_temporary_files_in
from tools.conformance.matrix import Data
from tools.conformance.rank import run_rank
from tools.conformance.task import Task
from tools.peers.shared_memory import have_own_shared_memory

_PR_SET_PDEATHSIG = 1
_SHARED_MEMORY = "/dev/shm/"
_TRACKERS_END = 10.0  # seconds


class Ended(Exception):
    """Standard input is closed: nobody waits for an answer any more."""


def main() -> None:
    chosen = adaptor(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started this decides when it ends

    def answer(**values: Any) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    try:
        chosen.warm()
        answer(versions={name: version(name) for name in chosen.packages})
    except BaseException as error:
        answer(error=_line(error))
        raise
    with contextlib.suppress(Ended):
        for line in _requests():
            request = json.loads(line)
            if "prepare" in request:
                name, shards, first = request["prepare"]
                data = Data(name, tuple(shards), first)
                answer(**_prepare(chosen, Path(request["directory"]), data, request["limit"]))
            else:
                answer(**_leg(chosen, Task.from_json(request["leg"])))


def _requests() -> Any:
    with os.fdopen(0, "rb", buffering=0, closefd=False) as stdin:
        while line := stdin.readline():
            yield line


def _prepare(chosen: Adaptor, directory: Path, data: Data, limit: float) -> dict[str, Any]:
    scratch = directory.parent / f"{directory.name}.prepare"
    scratch.mkdir(parents=True)

    def program(stand_still: Callable[[], NoReturn]) -> None:
        use_temporary_files_in(scratch / "tmp")
        chosen.prepare(directory, data)
        stand_still()

    return _Group([program], scratch).run(limit)


def _leg(chosen: Adaptor, task: Task) -> dict[str, Any]:
    port = _free_port()

    def program_of(rank: int) -> Callable[[Callable[[], NoReturn]], None]:
        def program(stand_still: Callable[[], NoReturn]) -> None:
            use_temporary_files_in(Path(task.directory, "tmp"))
            os.environ.update(torchrun_environment(rank, task.shape.world, port, task.nodes))
            if task.nodes and chosen.shares_memory:
                have_own_shared_memory()
            run_rank(chosen, replace(task, rank=rank), stand_still)

        return program

    return _Group([program_of(rank) for rank in range(task.shape.world)], Path(task.directory)).run(task.limit)


def torchrun_environment(rank: int, world: int, port: int, nodes: bool) -> dict[str, str]:
    """What torchrun sets for a rank: all on a single node, or each on a node of its own."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(0 if nodes else rank),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(1 if nodes else world),
        "GROUP_RANK": str(rank if nodes else 0),
        "GROUP_WORLD_SIZE": str(world if nodes else 1),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }


class _Group:
    """Programs that run at once, each forked into a process group of its own."""

    def __init__(self, programs: list[Callable[[Callable[[], NoReturn]], None]], directory: Path) -> None:
        self._programs = programs
        self._directory = directory
        self._read, self._write = os.pipe()
        self._alive: set[int] = set()
        self._pids: list[int] = []

    def run(self, limit: float) -> dict[str, Any]:
        """Returns {"outcome": "done", "hang" or "error", "detail": ...} when no process is left."""
        try:
            for number, program in enumerate(self._programs):
                self._fork(number, program)
            return self._watch(time.monotonic() + limit)
        finally:
            self._end()

    def _fork(self, number: int, program: Callable[[Callable[[], NoReturn]], None]) -> None:
        pid = os.fork()
        if pid == 0:
            self._child(number, program)
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.setpgid(pid, pid)
        self._pids.append(pid)
        self._alive.add(pid)

    def _child(self, number: int, program: Callable[[Callable[[], NoReturn]], None]) -> NoReturn:
        try:
            os.setpgid(0, 0)
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # should this host be killed
            errors = os.open(self._directory / f"output{number}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            for stream, target in ((os.open(os.devnull, os.O_RDONLY), 0), (errors, 1), (errors, 2)):
                os.dup2(stream, target)

            def stand_still() -> NoReturn:
                self._say(number, "")
                while True:
                    signal.pause()

            program(stand_still)
        except BaseException as error:
            traceback.print_exc()
            sys.stderr.flush()
            self._say(number, _line(error))
        finally:
            os._exit(1)

    def _say(self, number: int, error: str) -> None:
        os.write(self._write, (json.dumps([number, error]) + "\n").encode())

    def _watch(self, deadline: float) -> dict[str, Any]:
        waiting = set(range(len(self._pids)))
        buffer = b""
        while waiting:
            ready, _, _ = select.select([self._read, 0], [], [], 0.05)
            if 0 in ready and not os.read(0, 1):  # no request may come before the answer
                raise Ended
            if self._read in ready:
                *lines, buffer = (buffer + os.read(self._read, 65536)).split(b"\n")
                for line in lines:
                    number, error = json.loads(line)
                    if error:
                        return {"outcome": "error", "detail": f"rank {number}: {error}"}
                    waiting.discard(number)
                continue
            for number, pid in enumerate(self._pids):
                if number in waiting and pid in self._alive:
                    done, status = os.waitpid(pid, os.WNOHANG)
                    if done:
                        self._alive.discard(pid)
                        code = os.waitstatus_to_exitcode(status)
                        return {"outcome": "error", "detail": f"rank {number} ended with status {code}"}
            if time.monotonic() > deadline:
                return {"outcome": "hang", "detail": f"ranks {sorted(waiting)} made no end"}
        return {"outcome": "done", "detail": ""}

    def _end(self) -> None:
        """SIGKILL to every process; then what they left in shared memory is removed.

        Python's resource trackers are spared: each removes what it knows of once its processes are gone, and ends. What
        they do not know of is removed here, if some process had it mapped.
        """
        names: set[str] = set()
        groups = set(self._pids)
        while left := [pid for pid in _members(groups) if not _is_tracker(pid)]:
            names.update(*(_shared_memory_of(pid) for pid in left))
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for pid in list(self._alive):
                if os.waitpid(pid, os.WNOHANG)[0]:
                    self._alive.discard(pid)
            time.sleep(0.005)
        deadline = time.monotonic() + _TRACKERS_END
        while trackers := _members(groups):
            if time.monotonic() > deadline:
                for pid in trackers:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            time.sleep(0.005)
        for pid in self._alive:
            os.waitpid(pid, 0)
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
        os.close(self._read)
        os.close(self._write)


def _is_tracker(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"multiprocessing.resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _members(groups: set[int]) -> list[int]:
    """The living processes of these process groups."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                state, _, group = Path(entry.path, "stat").read_text().rpartition(")")[2].split()[:3]
                if int(group) in groups and state not in "ZX":
                    found.append(int(entry.name))
    return found


def _shared_memory_of(pid: int) -> set[str]:
    names = set()
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            name = line.split(maxsplit=5)[-1]
            if name.startswith(_SHARED_MEMORY) and not name.endswith("(deleted)"):
                names.add(name)
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                name = os.readlink(entry.path)
                if name.startswith(_SHARED_MEMORY) and not name.endswith("(deleted)"):
                    names.add(name)
    return names


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _line(error: BaseException) -> str:
    """The error's kind and first line; of one that a worker process hands on, its last line, which says the same."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    if lines[0].startswith("Caught "):
        return lines[-1][:300]
    return f"{type(error).__name__}: {lines[0]}"[:300]


if __name__ == "__main__":
    main()
