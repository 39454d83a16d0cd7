"""What is measured: a subject, its contestants, and the goals that mdsx has in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tools.processes import Call


@dataclass(frozen=True)
class Contestant:
    """One line of a subject: a loader driven in one way, or a limit of the machine.

    Each measurement is one `call`, which returns figures: a mapping name -> number. If there is a `prepare`, it also
    gets `data`, the directory that `prepare` filled. `prepare` is called once for all contestants and subjects that
    have an equal one; its `data` is an empty directory.
    """

    name: str
    call: Call
    prepare: Call | None = None
    kind: str = "peer"  # mdsx, peer or limit: how it is shown


@dataclass(frozen=True)
class Goal:
    """A bound for a figure of mdsx, or for its ratio to the best of `against`: (its figure) / (the best of theirs)."""

    text: str
    contestant: str
    against: tuple[str, ...] = ()
    at_least: float | None = None
    at_most: float | None = None
    figure: str | None = None  # default: the subject's

    def __post_init__(self) -> None:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError(f"{self.text}: a goal has one bound, at_least or at_most")

    @property
    def bound(self) -> str:
        return f"≥ {self.at_least:g}" if self.at_least is not None else f"≤ {self.at_most:g}"


@dataclass(frozen=True)
class Subject:
    """A question that all contestants answer, in rounds in which each has one turn.

    `figure` names the figure that is compared, and `unit` its unit. A measurement that takes `limit` seconds counts as
    hanging.
    """

    name: str
    title: str
    contestants: Sequence[Contestant]
    goals: Sequence[Goal] = ()
    figure: str = "samples/s"
    unit: str = "samples/s"
    higher_is_better: bool = True
    limit: float = 120.0
    more: tuple[str, ...] = ()  # further figures that are shown
    note: str = ""

    def __post_init__(self) -> None:
        names = [each.name for each in self.contestants]
        if len(set(names)) < len(names):
            raise ValueError(f"{self.name}: contestants of the same name")
        for name in (name for goal in self.goals for name in (goal.contestant, *goal.against)):
            if name not in names:
                raise ValueError(f"{self.name}: a goal names {name!r}, which is no contestant")
