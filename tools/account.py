"""What the ranks of a training delivered, from their logs, against the order: lost, repeated, wrong.

A life is one process of one rank. What it delivered before the state that the next life resumed from counts; what came
later, the next life has to deliver again. This holds for a rank that is killed and restarted, and for a generation of
ranks that continues as another number of them.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Key = tuple[int, int]
"""(epoch, position)."""

_NEVER = (sys.maxsize, 0)
Id = int | str


@dataclass(frozen=True)
class Delivered:
    """A rank's share of the global batch [start, stop) of an epoch; `wrong`: how many have other content."""

    epoch: int
    start: int
    stop: int
    ids: tuple[Id, ...]
    wrong: int = 0

    @property
    def key(self) -> Key:
        return self.epoch, self.start

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
    """Where a process began, and its log."""

    start: Key
    delivered: list[Delivered] = field(default_factory=list)
    raised: list[Raised] = field(default_factory=list)


Generation = Sequence[Sequence[Life]]
"""The lives of each rank, in order."""


@dataclass
class Count:
    """The result of a training."""

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


def read_log(path: Path, start: Key) -> Life:
    """Read a log. A line that a kill cut short does not count."""
    life = Life(start)
    for line in path.read_text().splitlines(keepends=True) if path.exists() else ():
        if line.endswith("\n"):
            value = json.loads(line)
            if isinstance(value, dict):
                life.raised.append(Raised(**value))
            else:
                epoch, begin, stop, ids, bad = value
                life.delivered.append(Delivered(epoch, begin, stop, tuple(ids), bad))
    return life


def counted(generations: Sequence[Generation], starts: Sequence[Key]) -> list[Delivered]:
    """Return what counts; `starts[n]` is where generation n began."""
    result = []
    for number, ranks in enumerate(generations):
        end = starts[number + 1] if number + 1 < len(starts) else _NEVER
        for lives in ranks:
            for life, resumed in zip(lives, [*(each.start for each in lives[1:]), end], strict=True):
                result += [each for each in life.delivered if each.key < min(resumed, end)]
    return result


def count(generations: Sequence[Generation], starts: Sequence[Key], predicted: Sequence[Sequence[Id]]) -> Count:
    """Count against `predicted[epoch][position]`, the ids that should have been delivered, each once."""
    found = Count(epochs=len(predicted))
    everything = [each for ranks in generations for lives in ranks for life in lives for each in life.delivered]
    found.delivered = sum(len(each.ids) for each in everything)
    found.wrong = sum(each.wrong for each in everything)  # also those that do not count: they were delivered
    batches: dict[tuple[int, int, int], list[Id]] = {}
    for each in counted(generations, starts):
        batches.setdefault((each.epoch, each.start, each.stop), []).extend(each.ids)
    had = Counter((epoch, number) for (epoch, _, _), ids in batches.items() for number in ids)
    wanted = Counter((epoch, number) for epoch, ids in enumerate(predicted) for number in ids)
    found.counted, found.batches = had.total(), len(batches)
    found.lost, found.repeated = (wanted - had).total(), (had - wanted).total()
    for (epoch, start, stop), ids in sorted(batches.items()):
        line = predicted[epoch][start:stop] if epoch < len(predicted) else ()
        if Counter(ids) != Counter(line):
            found.strayed += 1
            found.first = found.first or f"epoch {epoch}, positions {start} to {stop}"
    return found


def once_each(predicted: Sequence[Sequence[int]], ids: Iterable[int]) -> bool:
    """Whether each epoch of the order has each of `ids` once: a check of the order itself."""
    wanted = sorted(ids)
    return all(sorted(line) == wanted for line in predicted)
