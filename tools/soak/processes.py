"""The processes of the soak: forked from one that has imported what they need, each the leader of a session."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from tools.processes import end_session, members

GAVE_UP = 3
"""The status of a process that ended by one of mdsx's own errors, as it may: it is started again."""

_PR_SET_PDEATHSIG = 1
_PRELOAD = ["tools.soak.reader", "tools.soak.writer", "mdsx.torch", "boto3"]
_context = multiprocessing.get_context("forkserver")


def preload() -> None:
    """Before the first `start`."""
    _context.set_forkserver_preload(_PRELOAD)


def start(target: Callable[..., None], output: Path, environment: Mapping[str, str], *arguments: Any) -> Process:
    """`target(*arguments)` in a process of its own, whose output goes to a file."""
    process = _context.Process(target=_run, args=(target, output, dict(environment), arguments))
    process.start()
    return Process(process, output)


class Process:
    """One of them. It may be the leader of a session with more processes in it: its workers."""

    def __init__(self, process: ForkServerProcess, output: Path) -> None:
        self._process = process
        self.output = output
        assert process.pid is not None
        self.pid: int = process.pid
        self._status: int | None = None

    @property
    def status(self) -> int | None:
        """As of subprocess: None while it runs, negative for a signal."""
        if self._status is None and (status := self._process.exitcode) is not None:
            self._status = status
            self._process.close()  # with its pipe
        return self._status

    def workers(self) -> list[int]:
        """The other processes of its session."""
        return [pid for pid in members(session=self.pid) if pid != self.pid]

    def signal(self, number: signal.Signals) -> None:
        """To it alone."""
        if self.status is None:
            os.kill(self.pid, number)

    def kill_alone(self) -> None:
        """SIGKILL; its workers have to see for themselves. Returns when it is gone."""
        if self.status is None:
            self._process.kill()
            self.join(None)

    def kill(self) -> None:
        """SIGKILL to it, which may not lead its session yet, and to all of that. Returns when it is gone."""
        if self.status is None:
            self._process.kill()
        end_session(self.pid)
        self.join(None)

    def join(self, limit: float | None) -> None:
        """Wait for its end, so long at most."""
        if self.status is None:
            self._process.join(limit)
        _ = self.status

    def last_words(self) -> str:
        lines = self.output.read_text(errors="replace").splitlines() if self.output.exists() else []
        return "\n".join(lines[-25:])


def _run(target: Callable[..., None], output: Path, environment: dict[str, str], arguments: tuple[Any, ...]) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # should all of it be killed
    os.setsid()
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started this decides when it ends
    os.environ.update(environment)
    target(*arguments)
