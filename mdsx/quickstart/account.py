"""Count how often the two processes of a killed and resumed training read each sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mdsx.quickstart.lives import Step
from mdsx.quickstart.program import CHECKPOINT_EVERY


class Account(NamedTuple):
    """How often each sample was read. Steps after the last checkpoint before a kill are repeated, and count once."""

    lives: tuple[tuple[int, ...], ...]
    """For each sample, the processes that read it: 1 is the killed one, 2 the resumed one."""

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
    """Return the step of a process's last checkpoint, or 0."""
    return killed[-1].step // CHECKPOINT_EVERY * CHECKPOINT_EVERY


def account_of(samples: int, killed: Sequence[Step], resumed: Sequence[Step]) -> Account:
    """Count what the final model has read: the killed process's steps up to its checkpoint, and the resumed one's."""
    kept = last_checkpoint(killed)
    found: list[list[int]] = [[] for _ in range(samples)]
    for number, steps in enumerate(([step for step in killed if step.step <= kept], resumed), 1):
        for step in steps:
            for sample in step.samples:
                found[sample].append(number)
    return Account(tuple(map(tuple, found)))
