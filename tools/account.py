"""What the ranks of a training delivered, from their logs, against the order: lost, repeated, wrong.

A life is one process of one rank. What it delivered before the state that a later life resumed from counts; what came
after that, the later life has to deliver again. So it is with a rank that is killed and restarted, and with ranks that
continue as another number of them.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Key = tuple[int, int]
"""(epoch, position)."""

NEVER: Key = (sys.maxsize, 0)
SAVED = '"checkpoint"\n'
Id = int | str


@dataclass(frozen=True)
class Delivered:
    """A rank's share of the global batch [start, stop) of an epoch; `wrong`: how many have other content."""

    epoch: int
    start: int
    stop: int
    ids: tuple[Id, ...]
    wrong: int = 0

    def to_line(self) -> str:
        return json.dumps([self.epoch, self.start, self.stop, self.ids, self.wrong]) + "\n"


@dataclass(frozen=True)
class Raised:
    """An error of `next()`. `kind`: mdsx (its own, with a file), nameless (without), worker (one died), or other."""

    kind: str
    name: str
    text: str

    def to_line(self) -> str:
        return json.dumps(vars(self)) + "\n"


@dataclass
class Life:
    """The log of a process. What it delivered from `end` on does not count."""

    delivered: list[Delivered] = field(default_factory=list)
    raised: list[Raised] = field(default_factory=list)
    saved: int = 0  # how many of `delivered` were logged before the line SAVED
    end: Key = NEVER


@dataclass
class Count:
    delivered: int = 0  # samples, including those that were delivered again after a kill
    counted: int = 0  # samples that a training would have learned from
    epochs: int = 0  # whole ones
    batches: int = 0  # global ones
    wrong: int = 0
    lost: int = 0
    repeated: int = 0
    strayed: int = 0  # global batches with other samples than the order says
    first: str = ""  # where the first of these is

    @property
    def exact(self) -> bool:
        return not (self.wrong or self.lost or self.repeated or self.strayed)


def read_log(path: Path, end: Key = NEVER) -> Life:
    """Read a log. A line that a kill cut short does not count."""
    life = Life(end=end)
    for line in path.read_text().splitlines(keepends=True) if path.exists() else ():
        if line.endswith("\n"):
            value = json.loads(line)
            if line == SAVED:
                life.saved = len(life.delivered)
            elif isinstance(value, dict):
                life.raised.append(Raised(**value))
            else:
                epoch, start, stop, ids, wrong = value
                life.delivered.append(Delivered(epoch, start, stop, tuple(ids), wrong))
    return life


def counted(lives: Iterable[Life]) -> list[Delivered]:
    return [each for life in lives for each in life.delivered if (each.epoch, each.start) < life.end]


def lost_and_repeated(had: Counter[Any], wanted: Counter[Any]) -> tuple[int, int]:
    """Return how many of `wanted` are not in `had`, and how many in `had` are too many."""
    return (wanted - had).total(), (had - wanted).total()


def count(lives: Collection[Life], predicted: Sequence[Sequence[Id]]) -> Count:
    """Count against `predicted[epoch][position]`, the ids that should have been delivered, each once."""
    found = Count(epochs=len(predicted))
    everything = [each for life in lives for each in life.delivered]
    found.delivered = sum(len(each.ids) for each in everything)
    found.wrong = sum(each.wrong for each in everything)  # also those that do not count: they were delivered
    batches: dict[tuple[int, int, int], list[Id]] = {}
    for each in counted(lives):
        batches.setdefault((each.epoch, each.start, each.stop), []).extend(each.ids)
    had = Counter((epoch, number) for (epoch, _, _), ids in batches.items() for number in ids)
    wanted = Counter((epoch, number) for epoch, ids in enumerate(predicted) for number in ids)
    found.counted, found.batches = had.total(), len(batches)
    found.lost, found.repeated = lost_and_repeated(had, wanted)
    for (epoch, start, stop), ids in sorted(batches.items()):
        if epoch >= len(predicted) or Counter(ids) != Counter(predicted[epoch][start:stop]):
            found.strayed += 1
            found.first = found.first or f"epoch {epoch}, positions {start} to {stop}"
    return found


def once_each(predicted: Sequence[Sequence[int]], ids: Iterable[int]) -> bool:
    """Whether each epoch of the order has each of `ids` once: a check of the order itself."""
    wanted = sorted(ids)
    return all(sorted(line) == wanted for line in predicted)
