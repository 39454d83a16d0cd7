"""The results: judged by the goals, as tables in Markdown, and as JSON, which a later run can load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import msgspec

from tools.bench.measure import Figures
from tools.bench.subject import Contestant, Goal, Subject
from tools.tables import table


@dataclass
class Line:
    """A contestant's figures of each round, and why there are no more of them, if so."""

    contestant: Contestant
    rounds: list[Figures] = field(default_factory=list)
    failure: str = ""

    def values(self, figure: str) -> list[float]:
        """One figure, of each round that has it."""
        return [float(figures[figure]) for figures in self.rounds if figures.get(figure) is not None]

    def median(self, figure: str) -> float | None:
        """The median of all rounds, None if there is none."""
        values = self.values(figure)
        return median(values) if values else None


@dataclass(frozen=True)
class Verdict:
    """How a goal was judged. `value` is the figure or ratio, None if it could not be measured."""

    goal: Goal
    value: float | None
    word: str  # met, missed, not measured

    @property
    def measured(self) -> str:
        """The value and the goal, for tables."""
        if self.value is None:
            return "-"
        return number(self.value) + (" x" if self.goal.against else "") + f", goal {self.goal.bound}"


@dataclass
class Outcome:
    """All of a subject's lines, in the order of its contestants, and how its goals were judged."""

    subject: Subject
    lines: list[Line]
    origin: str = ""  # the earlier run that measured it, if it was not this one
    verdicts: list[Verdict] = field(init=False)

    def __post_init__(self) -> None:
        self.verdicts = [self._judge(goal) for goal in self.subject.goals]

    def _judge(self, goal: Goal) -> Verdict:
        medians = {line.contestant.name: line.median(goal.figure or self.subject.figure) for line in self.lines}
        value = medians.get(goal.contestant)
        if goal.against and value is not None:
            others = [found for name in goal.against if (found := medians.get(name)) is not None]
            best = (max if self.subject.higher_is_better else min)(others, default=0.0)
            value = value / best if best else None
        if value is None:
            return Verdict(goal, None, "not measured")
        met = value >= goal.at_least if goal.at_least is not None else value <= (goal.at_most or 0.0)
        return Verdict(goal, value, "met" if met else "missed")


@dataclass(frozen=True)
class Report:
    """All subjects of a run."""

    outcomes: Sequence[Outcome]
    machine: Mapping[str, str]
    versions: Mapping[str, str]
    commit: str
    date: str
    rounds: int
    scale: float
    seconds: float

    def markdown(self) -> str:
        return "\n".join(map(section, self.outcomes))

    def goals(self) -> str:
        """All goals in one Markdown table."""
        verdicts = [verdict for outcome in self.outcomes for verdict in outcome.verdicts]
        words = [each.word if each.word == "met" else f"**{each.word}**" for each in verdicts]
        rows = [[each.goal.text, each.measured, word] for each, word in zip(verdicts, words, strict=True)]
        return table(("goal", "measured", ""), rows, (1,))

    def about(self) -> str:
        """Machine, versions and date, in Markdown."""
        machine = ", ".join(f"{name} {value}" for name, value in self.machine.items())
        versions = ", ".join(f"{name} {value}" for name, value in self.versions.items())
        size = "" if self.scale == 1 else f" At {self.scale:g} of the full size."
        run = f"{self.date}, commit {self.commit or 'unknown'}, medians of {self.rounds} rounds.{size} {machine}."
        origins: dict[str, list[str]] = {}
        for outcome in self.outcomes:
            origins.setdefault(outcome.origin, []).append(outcome.subject.name)
        earlier = [f"From {origin}: {', '.join(names)}." for origin, names in origins.items() if origin]
        return " ".join([run, *earlier, f"{versions}."]) + "\n"

    def summary(self, subjects: Sequence[str]) -> str:
        """The best of each loader in some subjects, in Markdown."""
        outcomes = [each for name in subjects for each in self.outcomes if each.subject.name == name]
        competing = [line for each in outcomes for line in each.lines if line.contestant.kind != "limit"]
        loaders = list(dict.fromkeys(_loader(line) for line in competing))
        rows = []
        for outcome in outcomes:
            cells = [outcome.subject.title]
            for loader in loaders:
                medians = (line.median(outcome.subject.figure) for line in outcome.lines if _loader(line) == loader)
                best = max((value for value in medians if value is not None), default=None)
                text = "" if best is None else number(best)
                cells.append(f"**{text}**" if text and loader == "mdsx" else text)
            rows.append(cells)
        return table(["samples a second", *loaders], rows, range(1, len(loaders) + 1))

    def to_json(self) -> bytes:
        """Every figure of every round, and how the goals were judged."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"


def load(path: Path, subjects: Sequence[Subject]) -> list[Outcome]:
    """Return the outcomes of `subjects` that are in a JSON file. Subjects that were renamed since are left out."""
    earlier = msgspec.json.decode(path.read_bytes(), type=Report)
    here = f"{earlier.machine.get('processor', '')}, load before {earlier.machine.get('load before', 'unknown')}"
    run = f"{earlier.date}, commit {earlier.commit or 'unknown'}, {earlier.rounds} rounds, {here}"
    known = {each.subject.name: each for each in earlier.outcomes}
    outcomes = []
    for subject in (each for each in subjects if each.name in known):
        found = {line.contestant.name: line for line in known[subject.name].lines}
        lines = [found.get(each.name, Line(each, failure="left out")) for each in subject.contestants]
        outcomes.append(Outcome(subject, lines, known[subject.name].origin or run))
    return outcomes


def section(outcome: Outcome) -> str:
    """A subject in Markdown: its table, followed by its goals."""
    subject = outcome.subject
    heads = ("", subject.unit, "min .. max", *subject.more, "")
    made = table(heads, [_cells(subject, line) for line in outcome.lines], range(1, len(heads) - 1))
    note = f"`python3 -m tools bench {subject.name}`. {subject.note}".strip()
    goals = "".join(f"- {each.goal.text}: {each.word} ({each.measured})\n" for each in outcome.verdicts)
    return f"### {subject.title}\n\n{made}\n{note}\n" + (f"\n{goals}" if goals else "")


def number(value: float) -> str:
    """Three significant digits."""
    return f"{float(f'{value:.3g}'):,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _cells(subject: Subject, line: Line) -> list[str]:
    """Name, median, spread, further figures, remark."""
    mark = "**" if line.contestant.kind == "mdsx" else ""
    name, values = f"{mark}{line.contestant.name}{mark}", line.values(subject.figure)
    if not values:
        return [name, "-", "", *("" for _ in subject.more), line.failure or "no figure"]
    more = ["" if (value := line.median(figure)) is None else number(value) for figure in subject.more]
    return [name, number(median(values)), f"{number(min(values))} .. {number(max(values))}", *more, line.failure]


def _loader(line: Line) -> str:
    return line.contestant.name.partition(",")[0]
