"""The processes of the soak: forked from one that has imported what they need, each leads a session."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, TypeVar

from tools.processes import end_session, end_with_parent, members

GAVE_UP = 3
"""The status of a process that ended with one of mdsx's own errors, as it may: it is restarted."""

_PRELOAD = ["tools.soak.jobs", "mdsx.torch", "boto3"]
_started: list[Process] = []
_starter = ThreadPoolExecutor(1)  # interrupts come in the main thread, so none comes between a start and its record


class Process(ForkServerProcess):
    """A process that leads a session with its workers. It has the current environment; its output goes to a file."""

    def __init__(self, output: Path, target: Callable[..., None], *arguments: Any) -> None:
        super().__init__(target=target, args=arguments)
        self.output = output
        self.session = 0
        self._environment = dict(os.environ)
        self._status: int | None = None

    def run(self) -> None:
        """Run the target, in the new process."""
        end_with_parent()  # in case all of it is killed
        parent = multiprocessing.parent_process()
        if parent is None or not parent.is_alive():  # killed before the line above
            os._exit(1)
        os.setsid()
        with self.output.open("ab") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when it ends
        os.environ.update(self._environment)
        super().run()

    @property
    def status(self) -> int | None:
        """As of subprocess: None while it runs, negative for a signal."""
        if self._status is None and self.exitcode is not None:
            self._status = self.exitcode
            self.close()  # with its pipe
        return self._status

    def workers(self) -> list[int]:
        """The other processes of its session."""
        return [pid for pid in members(session=self.session) if pid != self.session]

    def end(self, *, workers: bool = True) -> None:
        """SIGKILL to it, even before it leads its session. Without `workers`, these have to notice that it ended."""
        if self.status is None:
            self.kill()
            self.join()
        if workers:
            end_session(self.session)

    def last_words(self) -> str:
        lines = self.output.read_text(errors="replace").splitlines() if self.output.exists() else []
        return "\n".join(lines[-25:])


_P = TypeVar("_P", bound=Process)


def preload() -> None:
    """Call this before the first `start`."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(_PRELOAD)


def start(process: _P) -> _P:
    """Start a process and return it. `end_all` ends it, even if this call is interrupted."""

    def begin() -> None:
        process.start()
        assert process.pid is not None
        process.session = process.pid
        _started.append(process)

    _starter.submit(begin).result()
    return process


def end_all() -> None:
    """SIGKILL to every process that was started, and to its workers."""
    _starter.submit(lambda: None).result()  # a start that was interrupted is over
    while _started:
        _started.pop().end()
