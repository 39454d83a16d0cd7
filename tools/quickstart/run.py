"""What the quickstart and its training program agree on: one run's settings, and the lines that its ranks write."""

from __future__ import annotations

import json
from collections.abc import Iterator
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
        """Where a rank notes its process group as soon as it starts."""
        return Path(self.logs) / f"run{self.number}-rank{rank}.group"

    def log_file(self, rank: int) -> Path:
        """Where a rank writes what it consumed, a line per step."""
        return Path(self.logs) / f"run{self.number}-rank{rank}.jsonl"


@dataclass(frozen=True)
class Consumed:
    """What one rank took in one step: the samples' keys, out of the global batch that begins at position `start`."""

    step: int
    start: int
    keys: list[str]

    def to_line(self) -> str:
        return json.dumps(asdict(self)) + "\n"


def read_log(run: Run) -> Iterator[Consumed]:
    """What all ranks of a run consumed, as far as they came."""
    for rank in range(run.ranks):
        for line in run.log_file(rank).read_text().splitlines(keepends=True):
            if line.endswith("\n"):  # a rank killed in mid-line has not consumed it
                yield Consumed(**json.loads(line))


@dataclass(frozen=True)
class Report:
    """What rank 0 says on its standard output after each step. `stop`: the position behind the step's batch."""

    step: int
    stop: int
    loss: float

    def to_line(self) -> str:
        return json.dumps(asdict(self))
