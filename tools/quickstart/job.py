"""A training job: its settings, and its processes, which can be killed all at once."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from tools.processes import CallFailed, answers

SEED, LANES = 7, 4
CHECKPOINT_EVERY = 5  # steps
_STALLED = 120.0  # seconds without a step
_OUTPUT = 4000  # characters of it in an error


@dataclass(frozen=True)
class Run:
    """One run of the training program, in JSON its argument: on `ranks` processes, each with `workers`."""

    number: int
    ranks: int
    workers: int
    batch_size: int
    url: str
    directory: str  # for the cache, the checkpoint and the logs
    cache_limit: int
    shuffle_block: int

    def log_file(self, rank: int) -> Path:
        """Where a rank logs what it consumed, a line for each step (tools/account.py)."""
        return Path(self.directory, f"run{self.number}-rank{rank}.jsonl")


def steps_of(run: Run) -> Generator[tuple[int, int, float], None, None]:
    """Run the training and yield each step of rank 0: its number, the position after its batch, its loss.

    To close this is to send SIGKILL to every process of the job. Raise CallFailed with the end of its output.
    """
    output = Path(run.directory, f"run{run.number}")
    output.mkdir()
    environment = {"OMP_NUM_THREADS": "1", "TMPDIR": run.directory}
    command = [sys.executable, "-m", "tools.quickstart.train", json.dumps(vars(run))]
    try:
        yield from answers(command, environment, output, _STALLED)
    except CallFailed as error:
        raise CallFailed(f"{error}\n{(output / 'stderr').read_text(errors='replace')[-_OUTPUT:]}") from None
