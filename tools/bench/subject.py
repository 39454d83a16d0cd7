"""What is measured: a subject, its contestants with their figures, and the goals that mdsx has in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from statistics import median

from tools.bench.measure import Figures
from tools.processes import Call


@dataclass
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
    rounds: list[Figures] = field(default_factory=list)  # the figures of each turn
    failure: str = ""  # why there are no more of them

    @property
    def loader(self) -> str:
        return self.name.partition(",")[0]

    def values(self, figure: str) -> list[float]:
        """One figure, of each round that has it."""
        return [float(figures[figure]) for figures in self.rounds if figures.get(figure) is not None]

    def median(self, figure: str) -> float | None:
        values = self.values(figure)
        return median(values) if values else None


@dataclass(frozen=True)
class Goal:
    """A bound for a figure of mdsx, or for its ratio to the best of `against`: (its figure) / (the best of theirs).

    `against` are names or patterns of contestants, or a kind, such as "peer" for all loaders but mdsx.
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

    def compared(self, contestants: Sequence[Contestant]) -> list[Contestant]:
        """Return those that it is relative to. Raise ValueError if it names one that does not exist."""
        found = {one: [each for each in contestants if _is(each, one)] for one in self.against}
        found[self.contestant] = [each for each in contestants if each.name == self.contestant]
        if unknown := [one for one, its in found.items() if not its]:
            raise ValueError(f"{self.text}: it names {unknown[0]!r}, which is no contestant")
        return [each for one in self.against for each in found[one]]


def _is(contestant: Contestant, pattern: str) -> bool:
    return contestant.kind == pattern or fnmatchcase(contestant.name, pattern)


@dataclass(frozen=True)
class Verdict:
    """How a goal was judged. `value` is the figure or ratio, None if it could not be measured."""

    goal: str
    value: float | None
    measured: str  # the value and the bound
    word: str  # met, missed, not measured


@dataclass
class Subject:
    """A question that all contestants answer, in rounds in which each has one turn.

    `figure` names the figure that is compared: the more the better if it is a rate, such as samples/s. A measurement
    that takes `limit` seconds counts as hanging.
    """

    name: str
    title: str
    contestants: Sequence[Contestant]
    goals: Sequence[Goal] = ()
    figure: str = "samples/s"
    unit: str = ""  # default: the figure
    more: tuple[str, ...] = ()  # further figures that are shown
    limit: float = 60.0
    note: str = ""
    gpu: bool = False  # without a GPU, it is measured only if it is asked for by name

    def __post_init__(self) -> None:
        names = [each.name for each in self.contestants]
        if len(set(names)) < len(names):
            raise ValueError(f"{self.name}: contestants of the same name")
        for goal in self.goals:
            goal.compared(self.contestants)

    def verdicts(self) -> list[Verdict]:
        return [self._judge(goal) for goal in self.goals]

    def _judge(self, goal: Goal) -> Verdict:
        figure = goal.figure or self.figure
        medians = {each.name: value for each in self.contestants if (value := each.median(figure)) is not None}
        value = medians.get(goal.contestant)
        if goal.against and value is not None:
            names = {each.name for each in goal.compared(self.contestants)}
            others = [medians[name] for name in names & medians.keys()]
            best = (max if figure.endswith("/s") else min)(others, default=0.0)
            value = value / best if best else None
        if value is None:
            return Verdict(goal.text, None, "-", "not measured")
        ratio = " x" if goal.against else ""
        if goal.at_most is not None:
            met, bound = value <= goal.at_most, f"≤ {goal.at_most:g}"
        else:
            met, bound = value >= (goal.at_least or 0), f"≥ {goal.at_least:g}"
        return Verdict(goal.text, value, f"{number(value)}{ratio}, goal {bound}", "met" if met else "missed")


def number(value: float) -> str:
    """Three significant digits."""
    return f"{float(f'{value:.3g}'):,.0f}" if abs(value) >= 100 else f"{value:.3g}"
