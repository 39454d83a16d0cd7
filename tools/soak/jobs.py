"""What the soak keeps running: the ranks of trainings, and writers. They are killed and resumed.

Their processes are forked from a server that has imported what they need.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Self

from tools.account import NEVER, Life, read_log
from tools.conformance.matrix import Shape
from tools.processes import end_session, end_with_parent, members
from tools.soak.child import GAVE_UP, Reading, key_of, read, write
from tools.soak.plan import Data, JobPlan

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

    def begin(self) -> Self:
        """Start it and return it. Even if this call is interrupted, `end_all` ends it."""

        def start() -> None:
            self.start()
            self.session = self.pid or 0
            _started.append(self)

        _starter.submit(start).result()
        return self

    def run(self) -> None:
        gc.freeze()  # else its first garbage collection passes over all that the server imported
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


def end_all() -> None:
    """SIGKILL to every process that was started, and to its workers."""
    _starter.submit(lambda: None).result()  # a start that was interrupted is over
    while _started:
        _started.pop().end()


class Reader(Process):
    """A process of a rank. What it delivers from `counts_until` on does not count."""

    def __init__(self, reading: Reading) -> None:
        super().__init__(reading.files.with_suffix(".txt"), read, reading)
        self.reading = reading
        self.counts_until = NEVER


class Job:
    """The ranks of a training: `first` is rank 0's task, without a file name. Problems are added to `failures`."""

    def __init__(self, first: Reading, failures: list[str]) -> None:
        self.plan: JobPlan = first.plan
        self.shape = first.shape
        self.readers: list[Reader] = []  # the current process of each rank
        self._first, self._failures = first, failures
        self._all: list[Reader] = []

    def begin(self, shape: Shape, state: dict[str, Any] | None = None, until: int | None = None) -> None:
        """Start ranks that resume from `state`, in place of the previous ones."""
        self.shape = shape
        for reader in self._all:
            reader.counts_until = min(reader.counts_until, key_of(state))
        task = replace(self._first, shape=shape, state=state, until=until)
        self.readers = [self._start(replace(task, rank=rank)) for rank in range(shape.world)]

    def tick(self) -> None:
        """Restart ranks that ended with an error of mdsx, or lost a worker; record a failure for any other end."""
        for reader in self.readers:
            if reader.status is not None and (reader.reading.until is None or reader.status != 0):
                if reader.status != GAVE_UP:
                    self._failed(reader, f"ended with {reader.status}: {reader.last_words()}")
                self._restart(reader)

    def kill(self, number: int, *, workers: bool) -> None:
        """SIGKILL to a rank, with its workers or without; restart it from its own last state."""
        reader = self.readers[number % self.shape.world]
        reader.end(workers=workers)
        self._restart(reader)

    def kill_all(self) -> dict[str, Any] | None:
        """Kill all ranks with SIGKILL. Return the state of the slowest rank, from which all can resume."""
        for reader in self.readers:
            reader.end()
        return min((reader.reading.last_state() for reader in self.readers), key=key_of)

    def stop(self) -> None:
        for reader in self.readers:
            if reader.status is None:
                reader.terminate()

    def stopped(self, deadline: float) -> None:
        """Wait until all have ended; record a failure for those that end badly."""
        for reader in self.readers:
            if reader.status is None:
                reader.join(max(deadline - time.monotonic(), 0.1))
            if reader.status not in (0, GAVE_UP, -signal.SIGTERM):  # the signal: it had only just started
                self._failed(reader, f"was asked to end, and ended with {reader.status}")

    def lives(self) -> list[Life]:
        return [read_log(reader.reading.log, reader.counts_until) for reader in self._all]

    def left(self) -> list[int]:
        return members(groups={reader.session for reader in self._all})

    def _start(self, reading: Reading) -> Reader:
        files = self._first.files / f"{self.plan.name.replace(' ', '-')}-{len(self._all):04}"
        self._all.append(Reader(replace(reading, files=files)).begin())
        return self._all[-1]

    def _restart(self, reader: Reader) -> None:
        state = reader.reading.last_state()
        reader.counts_until = key_of(state)
        self.readers[reader.reading.rank] = self._start(replace(reader.reading, state=state))

    def _failed(self, reader: Reader, text: str) -> None:
        self._failures.append(f"{self.plan.name}, rank {reader.reading.rank} {text}")


@dataclass
class WriterJob:
    """Writes `data` again and again, below `url`, which is `root` on this machine; what it prints goes to `output`."""

    name: str
    data: Data
    url: str
    root: Path
    expected: Mapping[str, bytes]
    output: Path
    failures: list[str]
    finished: int = 0
    kills: int = 0
    _process: Process | None = None

    def tick(self) -> None:
        """Start it if it does not run; check what it finished."""
        process = self._process
        if process is not None:
            if process.status is None:
                return
            if process.status == 0:
                self.check(done=True)
                self.finished += 1
                shutil.rmtree(self.root / str(self.finished - 1), ignore_errors=True)
            elif process.status != GAVE_UP:
                self._failed(f"ended with {process.status}: {process.last_words()}")
        self._start()

    def kill(self) -> None:
        """SIGKILL; then resume it."""
        if self._process is not None and self._process.status is None:
            self._process.end()
            self.kills += 1
            self.check()
            self._start()

    def finish(self, limit: float) -> None:
        """Let it finish its dataset, within `limit` seconds."""
        before, deadline = (self.finished, len(self.failures)), time.monotonic() + limit
        while (self.finished, len(self.failures)) == before:
            if time.monotonic() > deadline:
                self._failed(f"made no end in {limit:.0f} s")
            self.tick()
            time.sleep(0.1)
        if self._process is not None:
            self._process.end()

    def check(self, *, done: bool = False) -> None:
        """If there is an index, or it is `done`, all files must be as an undisturbed writer leaves them."""
        root = self.root / str(self.finished)
        if (done or (root / "index.json").exists()) and contents(root) != self.expected:
            self._failed(f"dataset {self.finished} is not as expected")

    def _start(self) -> None:
        self._process = Process(self.output, write, f"{self.url}/{self.finished}", self.data).begin()

    def _failed(self, text: str) -> None:
        self.failures.append(f"writer {self.name}: {text}")


def contents(root: Path) -> dict[str, bytes]:
    """The files of a dataset, except the writer's own."""
    files = (path for path in sorted(root.rglob("*")) if path.is_file() and "_mdsx" not in path.parts)
    return {str(path.relative_to(root)): path.read_bytes() for path in files}
