"""Processes: functions called in fresh processes of any environment, and the end of everything that they start.

A call leads a session of its own, and no process of that session outlives the call or its time limit. Needs only the
standard library, since a peer's environment imports this module too.
"""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NoReturn

from tools.environment import PeerEnvironment

ROOT = Path(__file__).resolve().parent.parent
_LAST_LINES = 3
_PR_SET_PDEATHSIG = 1
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
SHARED_MEMORY = "/dev/shm/"


class CallFailed(Exception):
    """The call raised an error, died, or exceeded its time limit; the text says which."""


class OutOfTime(CallFailed):
    """The call exceeded its time limit."""


@dataclass(frozen=True)
class Call:
    """A function, `module:name`, with keyword arguments (JSON values), for a fresh process of an environment.

    `environment`: a peer's, by the name of its requirements file; None is the project's own.
    """

    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    environment: str | None = None


def stream(what: Call, *, scratch: Path, limit: float) -> Iterator[Any]:
    """Yield what the function yields, or its result. Its temporary files go to `scratch`. `limit` is for each value.

    Raise CallFailed.
    """
    python = PeerEnvironment(what.environment).python if what.environment else sys.executable
    environment = {
        "PYTHONDONTWRITEBYTECODE": "",  # the first process compiles modules, as pip does with an installed package
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(scratch),
        "PATH": os.pathsep.join((os.environ.get("PATH", ""), str(Path(sys.executable).parent))),  # rclone is there
        "TOKENIZERS_PARALLELISM": "false",
    }
    command = [str(python), "-m", "tools.processes", what.function, json.dumps(what.arguments)]
    return answers(command, environment, scratch, limit)


def answers(command: Sequence[str], environment: Mapping[str, str], scratch: Path, limit: float) -> Iterator[Any]:
    """Run a program in ROOT and yield what it prints, lines of JSON, until it ends. `limit` is for each of them.

    It leads a session, which ends with the iteration. Its errors go to `stderr` in `scratch`. Raise CallFailed.
    """
    with (scratch / "stderr").open("wb") as errors:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    assert process.stdout is not None
    output, end = process.stdout.fileno(), os.pidfd_open(process.pid)
    line, count = b"", 0
    try:
        while ready := wait([output, end], limit):
            if output not in ready or not (data := os.read(output, 2**16)):
                break
            *lines, line = (line + data).split(b"\n")
            count += len(lines)
            for answer in map(json.loads, lines):
                if isinstance(answer, dict) and answer.keys() == {"error"}:
                    raise CallFailed(answer["error"])
                yield answer
        if not ready or not wait([end], limit):
            raise OutOfTime(f"made no end in {limit:.0f} s")
        if process.wait() or not count:
            last = (scratch / "stderr").read_text(errors="replace").strip().splitlines()[-_LAST_LINES:]
            raise CallFailed(f"died with status {process.returncode}: {' / '.join(last)}"[:500])
    finally:
        end_session(process.pid)
        process.wait()
        process.stdout.close()
        os.close(end)


def line_of(error: BaseException) -> str:
    """The error's kind and first line. A worker's error is the last line of what PyTorch makes of it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    line = lines[-1] if lines[0].startswith("Caught ") else f"{type(error).__name__}: {lines[0]}"
    return line[:300]


# --- sessions and groups


def members(*, session: int | None = None, groups: Collection[int] = ()) -> list[int]:
    """The living processes of a session, or of some process groups."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                state, _, group, its = Path(entry.path, "stat").read_text().rpartition(")")[2].split()[:4]
                if state not in "ZX" and (int(its) == session or int(group) in groups):
                    found.append(int(entry.name))
    return found


def end_session(session: int) -> None:
    """SIGKILL to every process of a session that was started here."""
    while left := members(session=session):
        kill(left)
        time.sleep(0.01)


def kill(pids: Collection[int]) -> None:
    """SIGKILL to each that still exists."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def end_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel (Linux) send this process a signal when its parent dies."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, number)


def have_own_shared_memory() -> None:
    """Give this process, of one thread yet, and its children a /dev/shm of their own, as on a node of its own."""
    system = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if system.unshare(_CLONE_NEWUSER | _CLONE_NEWNS) == 0:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
        if system.mount(b"tmpfs", SHARED_MEMORY.encode(), b"tmpfs", 0, None) == 0:
            return
    reason = os.strerror(ctypes.get_errno())
    raise OSError(f"this machine gives no process a /dev/shm of its own: {reason}")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def torchrun_environment(rank: int, world: int, port: int, nodes: bool = False) -> dict[str, str]:
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


# --- the called process


def _main() -> NoReturn:
    """Call the function and print its result, or what it yields, as lines of JSON. Workers that are left die then."""
    end_with_parent()
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    status = 0
    try:
        result = pkgutil.resolve_name(sys.argv[1])(**json.loads(sys.argv[2]))
        for value in result if inspect.isgenerator(result) else [result]:
            print(json.dumps(value), file=output, flush=True)
    except BaseException as error:
        traceback.print_exc()
        print(json.dumps({"error": line_of(error)}), file=output, flush=True)
        status = 1
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    _main()
