"""One training of the soak: its ranks, killed and resumed as the same ranks or as other ones."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.account import Key, Life, read_log
from tools.conformance.matrix import Shape
from tools.soak.plan import JobPlan
from tools.soak.processes import GAVE_UP, Process, start
from tools.soak.reader import Reading, read

HANG = 240.0  # seconds without a batch or an error: a request that stalls may be tried five times, 30 s each


@dataclass
class _Begun:
    """A process of a rank."""

    reading: Reading
    process: Process


@dataclass
class _Rank:
    lives: list[_Begun] = field(default_factory=list)

    @property
    def now(self) -> _Begun:
        return self.lives[-1]


class Job:
    """Starts the ranks of `plan`, and restarts those that end early."""

    def __init__(
        self, plan: JobPlan, root: str, cache: Path, cache_limit: int, scratch: Path, environment: Mapping[str, str]
    ) -> None:
        self.plan = plan
        self.shape = plan.shape
        self.failures: list[str] = []
        self._root, self._cache, self._limit = root, str(cache), cache_limit
        self._scratch = scratch
        self._environment = environment
        self._generations: list[list[_Rank]] = []
        self._starts: list[Key] = []
        self._count = 0

    @property
    def pids(self) -> list[int]:
        """The readers that run, by rank."""
        return [rank.now.process.pid for rank in self._ranks if rank.now.process.status is None]

    @property
    def processes(self) -> list[Process]:
        """The current process of each rank."""
        return [rank.now.process for rank in self._ranks]

    @property
    def _ranks(self) -> list[_Rank]:
        return self._generations[-1] if self._generations else []

    def begin(self, shape: Shape, state: dict[str, Any] | None = None, until: int | None = None) -> None:
        """Start a new generation of ranks that resume from `state`."""
        self.shape = shape
        ranks: list[_Rank] = [_Rank() for _ in range(shape.world)]
        self._generations.append(ranks)
        self._starts.append(_key(state))
        for number, rank in enumerate(ranks):
            self._start(rank, number, state, until)

    def tick(self) -> None:
        """Restart ranks that ended with an error of mdsx, or lost a worker; record a failure for any other end."""
        for number, rank in enumerate(self._ranks):
            status = rank.now.process.status
            if status is None:
                self._look_for_a_hang(number, rank)
            elif rank.now.reading.until is None or status != 0:
                if status != GAVE_UP:
                    words = rank.now.process.last_words()
                    self.failures.append(f"{self.plan.name}, rank {number} ended with {status}: {words}")
                self._restart(rank, number)

    def kill(self, number: int, *, workers: bool) -> None:
        """SIGKILL to a rank, with its workers or without; restart it from its own last state."""
        rank = self._ranks[number % len(self._ranks)]
        process = rank.now.process
        process.kill() if workers else process.kill_alone()
        self._restart(rank, number % len(self._ranks))

    def kill_all(self) -> dict[str, Any] | None:
        """Kill all ranks with SIGKILL. Return the state of the slowest rank, from which all can resume."""
        for rank in self._ranks:
            rank.now.process.kill()
        states = [_state(rank.now.reading) for rank in self._ranks]
        return min(states, key=_key)

    def stop(self) -> None:
        """Ask all to end; `stopped` waits for it."""
        for rank in self._ranks:
            with contextlib.suppress(ProcessLookupError):
                rank.now.process.signal(signal.SIGTERM)

    def stopped(self, deadline: float) -> None:
        """Wait until all have ended; record a failure for those that end badly."""
        for number, rank in enumerate(self._ranks):
            rank.now.process.join(max(deadline - time.monotonic(), 0.1))
            status = rank.now.process.status
            if status not in (0, GAVE_UP, -signal.SIGTERM):  # the signal: it had only just started
                self.failures.append(f"{self.plan.name}, rank {number} was asked to end, and ended with {status}")

    def lives(self) -> tuple[list[list[list[Life]]], list[Key]]:
        """Return the logs, as generations of ranks of lives, and where each generation began."""
        read = [
            [[read_log(life.reading.log, life.reading.start) for life in rank.lives] for rank in ranks]
            for ranks in self._generations
        ]
        return read, list(self._starts)

    def sessions(self) -> Iterator[int]:
        """The session of every process that was ever started."""
        return (life.process.pid for ranks in self._generations for rank in ranks for life in rank.lives)

    def _start(self, rank: _Rank, number: int, state: dict[str, Any] | None, until: int | None) -> None:
        self._count += 1
        name = f"{self.plan.name.replace(' ', '-')}-{self._count:04}"
        reading = Reading(
            plan=self.plan,
            root=self._root,
            shape=self.shape,
            rank=number,
            cache=self._cache,
            cache_limit=self._limit,
            state=state,
            log=self._scratch / f"{name}.log",
            saved=self._scratch / f"{name}.state",
            until=until,
        )
        process = start(read, self._scratch / f"{name}.txt", self._environment, reading)
        rank.lives.append(_Begun(reading, process))

    def _restart(self, rank: _Rank, number: int) -> None:
        old = rank.now.reading
        self._start(rank, number, _state(old), old.until)

    def _look_for_a_hang(self, number: int, rank: _Rank) -> None:
        files = (rank.now.reading.log, rank.now.process.output)
        seen = max((path.stat().st_mtime for path in files if path.exists()), default=time.time())
        if time.time() - seen > HANG:
            self.failures.append(f"{self.plan.name}, rank {number} did nothing for {HANG:.0f} s")
            self.kill(number, workers=True)


def _state(reading: Reading) -> dict[str, Any] | None:
    """The state that it saved last, or the one that it began with."""
    try:
        state: dict[str, Any] = json.loads(reading.saved.read_text())
    except FileNotFoundError:
        return reading.state
    return state


def _key(state: dict[str, Any] | None) -> Key:
    return (state["epoch"], state["position"]) if state is not None else (0, 0)
