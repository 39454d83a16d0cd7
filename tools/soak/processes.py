"""The processes of the soak: forked from one that has imported what they need, each leads a session."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from tools.processes import end_session, end_with_parent, members

GAVE_UP = 3
"""The status of a process that ended with one of mdsx's own errors, as it may: it is restarted."""

_PRELOAD = ["tools.soak.reader", "tools.soak.writer", "mdsx.torch", "boto3"]
_context = multiprocessing.get_context("forkserver")
_started: list[Process] = []


def preload() -> None:
    """Call this before the first `start`."""
    _context.set_forkserver_preload(_PRELOAD)


def start(target: Callable[..., None], output: Path, environment: Mapping[str, str], *arguments: Any) -> Process:
    """Run `target(*arguments)` in a process of its own, with its output in a file."""
    with _interrupts_wait():  # a process that is not in the list would never be ended
        process = _context.Process(target=_run, args=(target, output, dict(environment), arguments))
        process.start()
        _started.append(Process(process, output))
    return _started[-1]


def end_all() -> None:
    """SIGKILL to every process that was started, and to its workers."""
    while _started:
        _started.pop().kill()


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Raise a KeyboardInterrupt after the block, not inside it."""
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        signal.raise_signal(signal.SIGINT)


class Process:
    """A process, and the session with its workers that it leads."""

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
        """Send a signal to it alone."""
        if self.status is None:
            os.kill(self.pid, number)

    def kill_alone(self) -> None:
        """SIGKILL to it, not to its workers, which have to notice. Return when it has ended."""
        if self.status is None:
            self._process.kill()
            self.join(None)

    def kill(self) -> None:
        """SIGKILL to it, even before it leads its session, and to its workers. Return when it has ended."""
        if self.status is None:
            self._process.kill()
        end_session(self.pid)
        self.join(None)

    def join(self, limit: float | None) -> None:
        """Wait for its end, at most `limit` seconds."""
        if self.status is None:
            self._process.join(limit)
        _ = self.status

    def last_words(self) -> str:
        lines = self.output.read_text(errors="replace").splitlines() if self.output.exists() else []
        return "\n".join(lines[-25:])


def _run(target: Callable[..., None], output: Path, environment: dict[str, str], arguments: tuple[Any, ...]) -> None:
    end_with_parent()  # in case all of it is killed
    parent = multiprocessing.parent_process()
    if parent is None or not parent.is_alive():  # killed before the line above
        os._exit(1)
    os.setsid()
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when it ends
    os.environ.update(environment)
    target(*arguments)
