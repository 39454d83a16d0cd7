"""What the readers delivered, from their logs, against what they should have: lost, repeated, wrong. Pure but for logs.

A life is one process of one rank. What counts of it is what it delivered before the state that the next one resumed
from: what came later, the next one has to deliver again. So it is for a rank that is killed and comes back in its
place, and for a whole generation of ranks that goes on as another number of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Key = tuple[int, int]
"""(epoch, position)."""


@dataclass(frozen=True)
class Delivered:
    """A rank's share of the global batch [start, stop) of an epoch; `wrong`: how many have another content."""

    epoch: int
    start: int
    stop: int
    ids: tuple[int, ...]
    wrong: int = 0

    @property
    def key(self) -> Key:
        return self.epoch, self.start

    def to_line(self) -> str:
        return json.dumps([self.epoch, self.start, self.stop, self.wrong, self.ids]) + "\n"


@dataclass(frozen=True)
class Raised:
    """An error that came out of `next()`. `kind`: mdsx (its own, as promised), worker (one died), or other."""

    kind: str
    name: str
    text: str

    def to_line(self) -> str:
        return json.dumps({"kind": self.kind, "name": self.name, "text": self.text}) + "\n"


@dataclass
class Life:
    """Where a process began, and what its log says."""

    start: Key
    delivered: list[Delivered] = field(default_factory=list)
    raised: list[Raised] = field(default_factory=list)


Generation = Sequence[Sequence[Life]]
"""Of each rank its lives, in order."""


@dataclass
class Count:
    """Of one job."""

    delivered: int = 0  # samples, those included that were delivered again after a kill
    counted: int = 0  # those that a training would have learned from
    epochs: int = 0  # whole ones
    wrong: int = 0
    lost: int = 0
    repeated: int = 0
    strayed: int = 0  # global batches that hold other samples than the order says
    first: str = ""  # where the first fault is

    @property
    def exact(self) -> bool:
        return not (self.wrong or self.lost or self.repeated or self.strayed)


def read_log(path: Path, start: Key) -> Life:
    """A log; a line that a killed process did not finish does not count."""
    life = Life(start)
    if path.exists():
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                value = json.loads(line)
                if isinstance(value, dict):
                    life.raised.append(Raised(**value))
                else:
                    epoch, begin, stop, bad, ids = value
                    life.delivered.append(Delivered(epoch, begin, stop, tuple(ids), bad))
    return life


def counted(generations: Sequence[Generation], starts: Sequence[Key]) -> list[Delivered]:
    """What counts; `starts[n]` is where generation n began."""
    result = []
    for number, ranks in enumerate(generations):
        end = starts[number + 1] if number + 1 < len(starts) else None
        for lives in ranks:
            ends = [life.start for life in lives[1:]] + [end]
            for life, own in zip(lives, ends, strict=True):
                limit = min((key for key in (own, end) if key is not None), default=None)
                result += [each for each in life.delivered if limit is None or each.key < limit]
    return result


def count(generations: Sequence[Generation], starts: Sequence[Key], predicted: Sequence[Sequence[int]]) -> Count:
    """`predicted[epoch][position]` is the id that stands there; all of it should have been delivered, once."""
    found = Count(epochs=len(predicted))
    everything = [each for ranks in generations for lives in ranks for life in lives for each in life.delivered]
    found.delivered = sum(len(each.ids) for each in everything)
    found.wrong = sum(each.wrong for each in everything)  # also where it does not count: it was delivered
    batches: dict[tuple[int, int, int], list[int]] = {}
    for each in counted(generations, starts):
        batches.setdefault((each.epoch, each.start, each.stop), []).extend(each.ids)
    had = Counter((epoch, number) for (epoch, _, _), ids in batches.items() for number in ids)
    wanted = Counter((epoch, number) for epoch, ids in enumerate(predicted) for number in ids)
    found.counted = had.total()
    found.lost, found.repeated = (wanted - had).total(), (had - wanted).total()
    for (epoch, start, stop), ids in sorted(batches.items()):
        line = predicted[epoch][start:stop] if epoch < len(predicted) else ()
        if sorted(ids) != sorted(line):
            found.strayed += 1
            found.first = found.first or f"epoch {epoch}, positions {start} to {stop}"
    return found


def once_each(predicted: Sequence[Sequence[int]], ids: Iterable[int]) -> bool:
    """Whether each epoch that the order predicts is every one of `ids` once: so that it is no excuse."""
    wanted = sorted(ids)
    return all(sorted(line) == wanted for line in predicted)
