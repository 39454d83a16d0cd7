"""What is measured: a subject, its contestants, and the goals that mdsx has in it. Standard library alone.

A module in `subjects/` has a function `subjects(scale)` which returns them; 1.0 is the full size, `--quick` is 0.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Call:
    """A function, `module:name`, called in a fresh process of an environment with keyword arguments (JSON values).

    `environment`: a peer's, by the name of its file in tools/peers/requirements; None is the project's own.
    """

    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    environment: str | None = None


@dataclass(frozen=True)
class Contestant:
    """One line of a subject: a loader driven in one way, or a limit of the machine.

    Each measurement is one `call`, which returns figures: a mapping name -> number. It gets as further arguments
    `scratch`, an empty directory of its own, if it has such a parameter; `data`, the directory that `prepare` filled,
    if there is one; and what the subject's `around` yields. `prepare` is called once for all contestants and subjects
    that have an equal one; it gets `data`, an empty directory, and what `around` yields.
    """

    name: str
    call: Call
    prepare: Call | None = None
    kind: str = "peer"  # mdsx, peer or limit: how it is shown


@dataclass(frozen=True)
class Goal:
    """What mdsx wants to reach: a figure, or its ratio to that of the best of `against`, has a bound.

    The ratio is (figure of `contestant`) / (figure of the best of `against`), whichever way is better.
    """

    text: str
    contestant: str
    against: tuple[str, ...] = ()
    at_least: float | None = None
    at_most: float | None = None
    figure: str | None = None  # default: the subject's

    def __post_init__(self) -> None:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError(f"{self.text}: a goal has one bound, at_least or at_most")


@dataclass(frozen=True)
class Subject:
    """A question that all contestants answer, in rounds in which each has one turn.

    `figure` is the name of the figure that is compared; `unit` says what it is. `limit` is the seconds after which a
    measurement counts as hanging. `around` is entered for the time of the subject, and yields arguments for every
    call: a server's address, say. It is given the scratch directory; `data` in it holds all prepared datasets.
    """

    name: str
    title: str
    figure: str
    unit: str
    contestants: tuple[Contestant, ...]
    goals: tuple[Goal, ...] = ()
    higher_is_better: bool = True
    limit: float = 120.0
    around: Callable[[Path], AbstractContextManager[Mapping[str, Any]]] | None = None
    more: tuple[str, ...] = ()  # figures that are shown beside
    note: str = ""

    def __post_init__(self) -> None:
        names = [each.name for each in self.contestants]
        if len(set(names)) < len(names):
            raise ValueError(f"{self.name}: contestants of the same name")
        for goal in self.goals:
            for name in (goal.contestant, *goal.against):
                if name not in names:
                    raise ValueError(f"{self.name}: a goal names {name!r}, which is no contestant")
