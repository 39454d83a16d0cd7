"""A training job under torchrun that can be killed as a whole: torchrun, each rank, each worker."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tools.processes import CallFailed, answers, kill, launch, members

_STALLED = 120.0  # seconds without a step
_LAST_WORDS = 15.0  # seconds to end in
_LINES = 30  # of the output, for an error


@dataclass(frozen=True)
class Run:
    """One run of the training program, in JSON its argument: on `ranks` processes, each with `workers`."""

    number: int
    ranks: int
    workers: int
    batch_size: int
    url: str
    cache: str
    cache_limit: int
    seed: int
    lanes: int
    shuffle_block: int
    checkpoint: str
    checkpoint_every: int  # steps
    kill_at: int  # step, of the first run
    logs: str

    @property
    def global_batch(self) -> int:
        return self.ranks * self.batch_size

    def group_file(self, rank: int) -> Path:
        """Where a rank writes its process group as soon as it starts."""
        return Path(self.logs, f"run{self.number}-rank{rank}.group")

    def log_file(self, rank: int) -> Path:
        """Where a rank logs what it consumed, a line for each step (tools/account.py)."""
        return Path(self.logs, f"run{self.number}-rank{rank}.jsonl")


@dataclass(frozen=True)
class StepReport:
    """What rank 0 prints after each step, in JSON. `stop`: the position after the step's batch."""

    step: int
    stop: int
    loss: float


class Job:
    """`run` under torchrun, while the context lasts."""

    def __init__(self, run: Run, environment: Mapping[str, str]) -> None:
        self._run = run
        self._output = Path(run.logs, f"run{run.number}")
        self._output.mkdir()
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
        program = ["--nproc-per-node", str(run.ranks), "-m", "tools.quickstart.train", json.dumps(vars(run))]
        more = {"OMP_NUM_THREADS": "1", "TMPDIR": run.logs}
        self._process = launch([*torchrun, *program], self._output, {**os.environ, **environment, **more})

    def steps(self) -> Iterator[StepReport]:
        """Yield the steps of rank 0 until the job ends. Raise CallFailed with the end of its output."""
        try:
            for step in answers(self._process, self._output, _STALLED):
                yield StepReport(**step)
        except CallFailed as error:
            lines = (self._output / "stderr").read_text(errors="replace").splitlines()[-_LINES:]
            raise CallFailed("\n".join([str(error), *lines])) from None

    def kill(self) -> None:
        """SIGKILL to every process of the job; return when all have ended."""
        while left := members(groups=self._groups()):
            kill(left)
            time.sleep(0.01)
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End what still runs of the job: by torchrun, and if that takes too long, by SIGKILL."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST_WORDS)
        self.kill()

    def _groups(self) -> list[int]:
        """The process groups of torchrun and of each rank that has started."""
        groups = [self._process.pid]
        for rank in range(self._run.ranks):
            with contextlib.suppress(FileNotFoundError, ValueError):
                groups.append(int(self._run.group_file(rank).read_text()))
        return groups
