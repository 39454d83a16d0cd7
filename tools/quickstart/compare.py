"""What the ranks consumed against what the order predicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tools.quickstart.run import Run, read_log


@dataclass
class Batch:
    """The global batch that begins at position `start`: the keys that its ranks consumed, in all."""

    run: int
    start: int
    keys: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Comparison:
    """How many samples were read; the keys lost and repeated; the positions of batches that should hold others."""

    read: int
    lost: list[str]
    repeated: list[str]
    strayed: list[int]

    @property
    def exact(self) -> bool:
        return not (self.lost or self.repeated or self.strayed)


def first_step(run: Run) -> int:
    """The step with which a run began: the one after the checkpoint's."""
    return min(part.step for part in read_log(run))


def batches_of(run: Run, before_step: int | None = None) -> list[Batch]:
    """The global batches of a run, in order; those before a step: what came later, no checkpoint has."""
    batches: dict[int, Batch] = {}
    for part in read_log(run):
        if before_step is None or part.step < before_step:
            batches.setdefault(part.step, Batch(run.number, part.start)).keys.extend(part.keys)
    return [batches[step] for step in sorted(batches)]


def compare(batches: Sequence[Batch], predicted: Sequence[str]) -> Comparison:
    """`predicted` holds the key at each position of the epoch."""
    counts = Counter(key for batch in batches for key in batch.keys)
    wanted = Counter(predicted)
    return Comparison(
        read=sum(counts.values()),
        lost=sorted((wanted - counts).elements()),
        repeated=sorted((counts - wanted).elements()),
        strayed=[
            batch.start
            for batch in batches
            if sorted(batch.keys) != sorted(predicted[batch.start : batch.start + len(batch.keys)])
        ],
    )
