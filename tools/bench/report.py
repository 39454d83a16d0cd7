"""What was found, as tables on the terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from tools.bench.run import Line, Outcome, Verdict
from tools.bench.subject import Goal

_STYLES = {"mdsx": "bold", "limit": "dim", "peer": ""}
_VERDICTS = {True: "green", False: "bold red", None: "yellow"}


@dataclass(frozen=True)
class Report:
    """All subjects of a run."""

    outcomes: tuple[Outcome, ...]
    machine: Mapping[str, str]
    versions: Mapping[str, str]
    commit: str
    date: str
    rounds: int
    scale: float
    seconds: float

    def table(self, outcome: Outcome) -> Table:
        """One subject, for the terminal."""
        subject = outcome.subject
        table = Table(title=Text(subject.title), title_justify="left", pad_edge=False, box=None)
        for name in ("", subject.unit, "min .. max", *subject.more):
            table.add_column(name, justify="right" if name else "left")
        table.add_column("")
        for line in outcome.lines:
            *values, remark = _cells(outcome, line)
            style = _STYLES.get(line.contestant.kind, "")
            table.add_row(Text(line.contestant.name, style), *values, Text(remark, "magenta"))
        return table

    def goal_lines(self, outcome: Outcome) -> list[Text]:
        """How each goal was judged."""
        return [Text(f"  {sentence(verdict)}", _VERDICTS[verdict.met]) for verdict in outcome.verdicts]

    def markdown(self) -> str:
        """Every subject as a table, its goals below."""
        parts = []
        for outcome in self.outcomes:
            subject = outcome.subject
            heads = ("", subject.unit, "min .. max", *subject.more, "")
            lines = [f"### {subject.title}", "", f"| {' | '.join(heads)} |", f"|---{'|--:' * (len(heads) - 2)}|---|"]
            for line in outcome.lines:
                bold = "**" if line.contestant.kind == "mdsx" else ""
                cells = (f"{bold}{line.contestant.name}{bold}", *_cells(outcome, line))
                lines.append(f"| {' | '.join(cells)} |")
            lines += ["", f"`python3 -m tools bench {subject.name}`. {subject.note}".strip()]
            lines += ["", *(f"- {sentence(verdict)}" for verdict in outcome.verdicts)] if outcome.verdicts else []
            parts.append("\n".join(lines) + "\n")
        return "\n".join(parts)

    def goals(self) -> str:
        """All goals in one table, in Markdown."""
        lines = ["| goal | measured |  |", "|---|--:|---|"]
        for outcome in self.outcomes:
            for verdict in outcome.verdicts:
                word = f"**{verdict.word}**" if verdict.met is not True else verdict.word
                lines.append(f"| {verdict.goal.text} | {_measured(verdict)} | {word} |")
        return "\n".join(lines) + "\n"

    def about(self) -> str:
        """Machine, versions, date, in Markdown."""
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
        """The best of each loader, in some subjects, in Markdown."""
        outcomes = [each for name in subjects for each in self.outcomes if each.subject.name == name]
        loaders = list(dict.fromkeys(_loader(line) for each in outcomes for line in each.lines if _competes(line)))
        lines = [f"| {' | '.join(['samples a second', *loaders])} |", f"|---{'|--:' * len(loaders)}|"]
        for outcome in outcomes:
            cells = []
            for loader in loaders:
                medians = (line.median(outcome.subject.figure) for line in outcome.lines if _loader(line) == loader)
                best = max((value for value in medians if value is not None), default=None)
                text = "" if best is None else number(best)
                cells.append(f"**{text}**" if text and loader == "mdsx" else text)
            lines.append(f"| {' | '.join([outcome.subject.title, *cells])} |")
        return "\n".join(lines) + "\n"


def sentence(verdict: Verdict) -> str:
    """A goal and how it was judged."""
    return f"{verdict.goal.text}: {verdict.word} ({_measured(verdict)})"


def number(value: float) -> str:
    """Three digits that count, and no more than are there."""
    if abs(value) >= 100:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.3g}"


def _measured(verdict: Verdict) -> str:
    if verdict.value is None:
        return "-"
    return number(verdict.value) + (" x" if verdict.goal.against else "") + f", goal {bound(verdict.goal)}"


def bound(goal: Goal) -> str:
    """What a goal asks for."""
    return f"≥ {goal.at_least:g}" if goal.at_least is not None else f"≤ {goal.at_most:g}"


def _cells(outcome: Outcome, line: Line) -> list[str]:
    """Median, spread, further figures, remark."""
    subject = outcome.subject
    values = line.values(subject.figure)
    median = line.median(subject.figure)
    if median is None:
        return ["-", "", *("" for _ in subject.more), line.failure or "no figure"]
    more = [line.median(name) for name in subject.more]
    spread = f"{number(min(values))} .. {number(max(values))}"
    return [number(median), spread, *("" if each is None else number(each) for each in more), line.failure]


def _competes(line: Line) -> bool:
    return line.contestant.kind != "limit"


def _loader(line: Line) -> str:
    return line.contestant.name.partition(",")[0]
