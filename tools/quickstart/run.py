"""What the quickstart and its training program share: a run's settings, and the line that each step prints."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Run:
    """One run of the training program: on `ranks` processes, each with `workers`."""

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

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Run:
        return Run(**json.loads(text))

    @property
    def global_batch(self) -> int:
        return self.ranks * self.batch_size

    def group_file(self, rank: int) -> Path:
        """Where a rank writes its process group as soon as it starts."""
        return Path(self.logs) / f"run{self.number}-rank{rank}.group"

    def log_file(self, rank: int) -> Path:
        """Where a rank logs what it consumed, a line for each step (tools/account.py)."""
        return Path(self.logs) / f"run{self.number}-rank{rank}.jsonl"


@dataclass(frozen=True)
class Report:
    """What rank 0 prints after each step. `stop`: the position after the step's batch."""

    step: int
    stop: int
    loss: float

    def to_line(self) -> str:
        return json.dumps(asdict(self))
