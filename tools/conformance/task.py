"""What the processes of a leg share: its settings and its samples."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from tools.account import Id
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
    packed: bool = False
    part: bool = False
    drop_last: bool = False
    remote: str = ""  # if given, the URL of the datasets' parent, instead of `datasets`; copies go to `directory`

    def sources(self) -> list[str]:
        """The paths or URLs of the datasets, in order."""
        return [f"{self.remote or self.datasets}/{each.name}" for each in self.data]

    def log_file(self, rank: int) -> Path:
        """Where a rank logs what it took; positions are steps (tools/account.py)."""
        return Path(self.directory, f"rank{rank}.jsonl")


WRONG = -1


def text_of(number: int) -> str:
    return f"sample {number} " + "x" * (number * 7919 % 97)


def number_in(text: str) -> int:
    """Return the id that a sample's text has, WRONG if it has none."""
    found = re.match(r"sample (\d+) ", text)
    return int(found[1]) if found else WRONG


def sample_of(number: int) -> dict[str, Any]:
    return {"id": number, "text": text_of(number)}


def checked(ids: Iterable[int], texts: Iterable[str]) -> list[int]:
    """Return the ids of samples, WRONG for one with another sample's text."""
    return [each if text == text_of(each) else WRONG for each, text in zip(ids, texts, strict=True)]


def row_of(ids: Iterable[int], texts: Iterable[str]) -> str:
    """Return a packed row as it is logged: the checked ids of its samples."""
    return "+".join(map(str, checked(ids, texts)))


def samples_of(row: Id) -> list[int]:
    """Return the ids of a packed row's samples."""
    return list(map(int, str(row).split("+")))


def shards_of(data: Data) -> list[range]:
    starts = accumulate(data.shards[:-1], initial=data.first)
    return [range(start, start + count) for start, count in zip(starts, data.shards, strict=True)]
