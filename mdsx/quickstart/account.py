"""What two lives of a training have read of each sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mdsx.quickstart.lives import Step
from mdsx.quickstart.program import CHECKPOINT_EVERY


class Account(NamedTuple):
    """How often each sample counts: steps after the last checkpoint before a kill are done again, and count once."""

    lives: tuple[tuple[int, ...], ...]
    """Of each sample, the lives that read it, 1 or 2."""

    @property
    def lost(self) -> int:
        return sum(not lives for lives in self.lives)

    @property
    def repeated(self) -> int:
        return sum(len(lives) > 1 for lives in self.lives)

    @property
    def exact(self) -> bool:
        return not self.lost and not self.repeated


def last_checkpoint(killed: Sequence[Step]) -> int:
    """Return the step of the last checkpoint of a life, or 0."""
    return killed[-1].step // CHECKPOINT_EVERY * CHECKPOINT_EVERY


def account_of(samples: int, killed: Sequence[Step], resumed: Sequence[Step]) -> Account:
    """Count what is in the model at the end: the killed life's steps up to its checkpoint, and the resumed life's."""
    kept = last_checkpoint(killed)
    found: list[list[int]] = [[] for _ in range(samples)]
    for number, steps in enumerate(([step for step in killed if step.step <= kept], resumed), 1):
        for step in steps:
            for sample in step.samples:
                found[sample].append(number)
    return Account(tuple(map(tuple, found)))
