"""What the processes of a leg share: its settings, its samples, and the log that each rank writes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from tools.conformance.matrix import Data, Shape, Stop


@dataclass(frozen=True)
class Task:
    """One leg of one loader. Several `data` are a mixture with `weights`, which `phases` change during the run.

    msgspec brings it to other processes.
    """

    directory: str  # the leg's own: logs, states, caches, temporary files
    datasets: str  # each in a directory of its name
    data: tuple[Data, ...]
    shape: Shape
    stop: Stop | None
    epochs: int
    seed: int
    weights: tuple[float, ...] = ()
    phases: tuple[tuple[int, tuple[float, ...]], ...] = ()
    resume: str = ""  # the directory of the leg whose checkpoint is loaded
    nodes: bool = False
    rank: int = 0
    remote: str = ""  # if given, the URL of the datasets' parent, instead of `datasets`; copies go to `directory`

    def paths(self) -> list[Path]:
        """The paths of the datasets, in order."""
        return [Path(self.datasets, each.name) for each in self.data]

    def sources(self) -> list[str]:
        """Their paths or URLs, in order."""
        return [f"{self.remote}/{each.name}" for each in self.data] if self.remote else list(map(str, self.paths()))

    def log_file(self, rank: int) -> Path:
        return Path(self.directory, f"rank{rank}.jsonl")


SAVED = "checkpoint"


class Consumed(NamedTuple):
    """The samples that one rank took in one step of an epoch."""

    epoch: int
    step: int
    ids: tuple[int, ...]

    def to_line(self) -> str:
        return json.dumps(self) + "\n"


def read_log(path: Path) -> tuple[list[Consumed], list[Consumed]]:
    """Return what a rank took until the checkpoint, and in all. A line that a kill cut short does not count."""
    taken: list[Consumed] = []
    saved = 0
    for line in path.read_text().split("\n")[:-1]:
        value = json.loads(line)
        if value == SAVED:
            saved = len(taken)
        else:
            taken.append(Consumed(value[0], value[1], tuple(value[2])))
    return taken[:saved], taken


WRONG = -1


def text_of(number: int) -> str:
    """The text of a sample, of varying length."""
    return f"sample {number} " + "x" * (number * 7919 % 97)


def sample_of(number: int) -> dict[str, Any]:
    """A sample of the matrix."""
    return {"id": number, "text": text_of(number)}


def checked(ids: Iterable[int], texts: Iterable[str]) -> list[int]:
    """Return the ids of samples, WRONG for one with another sample's text."""
    return [each if text == text_of(each) else WRONG for each, text in zip(ids, texts, strict=True)]


def shards_of(data: Data) -> list[range]:
    """The ids in each shard."""
    starts = accumulate(data.shards[:-1], initial=data.first)
    return [range(start, start + count) for start, count in zip(starts, data.shards, strict=True)]
