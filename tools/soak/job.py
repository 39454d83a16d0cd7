"""One training of the soak: its ranks, killed and resumed as the same ranks or as other ones."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from tools.account import Key, Life, read_log
from tools.conformance.matrix import Shape
from tools.soak.plan import JobPlan
from tools.soak.processes import GAVE_UP, Process, start
from tools.soak.reader import Reading, key_of, read

HANG = 240.0  # seconds without a batch or an error: a request that stalls may be tried five times, 30 s each


class _Reader(NamedTuple):
    """A process of a rank."""

    reading: Reading
    process: Process


class Job:
    """Starts the ranks of `plan`, and restarts those that end early."""

    def __init__(
        self, plan: JobPlan, root: str, cache: Path, cache_limit: int, scratch: Path, environment: Mapping[str, str]
    ) -> None:
        self.plan = plan
        self.shape = plan.shape
        self.failures: list[str] = []
        self._first = Reading(plan, root, plan.shape, 0, str(cache), cache_limit, None, scratch, scratch)
        self._scratch = scratch
        self._environment = environment
        self._generations: list[list[list[_Reader]]] = []  # the lives of each rank
        self._count = 0

    @property
    def processes(self) -> list[Process]:
        """The current process of each rank."""
        return [reader.process for reader in self._readers]

    @property
    def _readers(self) -> list[_Reader]:
        return [lives[-1] for lives in self._generations[-1]] if self._generations else []

    def begin(self, shape: Shape, state: dict[str, Any] | None = None, until: int | None = None) -> None:
        """Start a new generation of ranks that resume from `state`."""
        self.shape = shape
        self._generations.append([[] for _ in range(shape.world)])
        for rank in range(shape.world):
            self._start(replace(self._first, shape=shape, rank=rank, state=state, until=until))

    def tick(self) -> None:
        """Restart ranks that ended with an error of mdsx, or lost a worker; record a failure for any other end."""
        for reading, process in self._readers:
            status = process.status
            if status is None:
                self._look_for_a_hang(reading, process)
            elif reading.until is None or status != 0:
                if status != GAVE_UP:
                    self._failed(reading, f"ended with {status}: {process.last_words()}")
                self._restart(reading)

    def kill(self, number: int, *, workers: bool) -> None:
        """SIGKILL to a rank, with its workers or without; restart it from its own last state."""
        reading, process = self._readers[number % self.shape.world]
        process.kill() if workers else process.kill_alone()
        self._restart(reading)

    def kill_all(self) -> dict[str, Any] | None:
        """Kill all ranks with SIGKILL. Return the state of the slowest rank, from which all can resume."""
        for process in self.processes:
            process.kill()
        return min((reader.reading.last_state() for reader in self._readers), key=key_of)

    def stop(self) -> None:
        """Ask all to end; `stopped` waits for it."""
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.signal(signal.SIGTERM)

    def stopped(self, deadline: float) -> None:
        """Wait until all have ended; record a failure for those that end badly."""
        for reading, process in self._readers:
            process.join(max(deadline - time.monotonic(), 0.1))
            if process.status not in (0, GAVE_UP, -signal.SIGTERM):  # the signal: it had only just started
                self._failed(reading, f"was asked to end, and ended with {process.status}")

    def lives(self) -> tuple[list[list[list[Life]]], list[Key]]:
        """Return the logs, as generations of ranks of lives, and where each generation began."""
        found = [
            [[read_log(reading.log, reading.start) for reading, _ in lives] for lives in ranks]
            for ranks in self._generations
        ]
        return found, [ranks[0][0].reading.start for ranks in self._generations]

    def sessions(self) -> Iterator[int]:
        """The session of every process that was ever started."""
        return (reader.process.pid for ranks in self._generations for lives in ranks for reader in lives)

    def _start(self, reading: Reading) -> None:
        self._count += 1
        path = self._scratch / f"{self.plan.name.replace(' ', '-')}-{self._count:04}"
        reading = replace(reading, log=path.with_suffix(".log"), saved=path.with_suffix(".state"))
        process = start(read, path.with_suffix(".txt"), self._environment, reading)
        self._generations[-1][reading.rank].append(_Reader(reading, process))

    def _restart(self, reading: Reading) -> None:
        self._start(replace(reading, state=reading.last_state()))

    def _look_for_a_hang(self, reading: Reading, process: Process) -> None:
        files = (reading.log, process.output)
        seen = max((path.stat().st_mtime for path in files if path.exists()), default=time.time())
        if time.time() - seen > HANG:
            self._failed(reading, f"did nothing for {HANG:.0f} s")
            self.kill(reading.rank, workers=True)

    def _failed(self, reading: Reading, text: str) -> None:
        self.failures.append(f"{self.plan.name}, rank {reading.rank} {text}")
