"""The results as tables in Markdown, and as JSON, which a later run can load."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.bench.run import Line, Outcome, Verdict
from tools.bench.subject import Subject
from tools.tables import table


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

    def markdown(self) -> str:
        return "\n".join(map(section, self.outcomes))

    def goals(self) -> str:
        """All goals in one Markdown table."""
        rows = []
        for verdict in (verdict for outcome in self.outcomes for verdict in outcome.verdicts):
            word = verdict.word if verdict.met else f"**{verdict.word}**"
            rows.append([verdict.goal.text, _measured(verdict), word])
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

    def to_json(self) -> str:
        """Every figure of every round, and how the goals were judged."""
        value = {**vars(self), "seconds": round(self.seconds), "subjects": list(map(_as_json, self.outcomes))}
        del value["outcomes"]
        return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def section(outcome: Outcome) -> str:
    """A subject in Markdown: its table, followed by its goals."""
    subject = outcome.subject
    heads = ("", subject.unit, "min .. max", *subject.more, "")
    rows = []
    for line in outcome.lines:
        mark = "**" if line.contestant.kind == "mdsx" else ""
        rows.append([f"{mark}{line.contestant.name}{mark}", *_cells(outcome, line)])
    made = table(heads, rows, range(1, len(heads) - 1))
    note = f"`python3 -m tools bench {subject.name}`. {subject.note}".strip()
    goals = "".join(f"- {each.goal.text}: {each.word} ({_measured(each)})\n" for each in outcome.verdicts)
    return f"### {subject.title}\n\n{made}\n{note}\n" + (f"\n{goals}" if goals else "")


def load(path: Path, subjects: Sequence[Subject]) -> list[Outcome]:
    """Return the outcomes of `subjects` that are in a JSON file. Subjects that were renamed since are left out."""
    whole = json.loads(path.read_text())
    found = {each["name"]: each for each in whole["subjects"]}
    here = f"{whole['machine'].get('processor', '')}, load before {whole['machine'].get('load before', 'unknown')}"
    run = f"{whole['date']}, commit {whole['commit'] or 'unknown'}, {whole['rounds']} rounds, {here}"
    absent = {"rounds": [], "failure": "left out"}
    outcomes = []
    for subject in (each for each in subjects if each.name in found):
        known = {each["name"]: each for each in found[subject.name]["contestants"]}
        earlier = [(each, known.get(each.name, absent)) for each in subject.contestants]
        lines = [Line(each, its["rounds"], its["failure"]) for each, its in earlier]
        outcomes.append(Outcome(subject, lines, found[subject.name].get("origin") or run))
    return outcomes


def _as_json(outcome: Outcome) -> dict[str, Any]:
    subject = outcome.subject
    contestants = [
        {"name": line.contestant.name, "kind": line.contestant.kind, "median": line.median(subject.figure)}
        | {"rounds": line.rounds, "failure": line.failure}
        for line in outcome.lines
    ]
    goals = [
        {"text": each.goal.text, "measured": each.value, "bound": each.goal.bound, "judged": each.word}
        for each in outcome.verdicts
    ]
    about = {name: getattr(subject, name) for name in ("name", "title", "figure", "unit")}
    return {**about, "origin": outcome.origin, "contestants": contestants, "goals": goals}


def number(value: float) -> str:
    """Three significant digits."""
    return f"{float(f'{value:.3g}'):,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _measured(verdict: Verdict) -> str:
    if verdict.value is None:
        return "-"
    return number(verdict.value) + (" x" if verdict.goal.against else "") + f", goal {verdict.goal.bound}"


def _cells(outcome: Outcome, line: Line) -> list[str]:
    """Median, spread, further figures, remark."""
    subject = outcome.subject
    values, median = line.values(subject.figure), line.median(subject.figure)
    if median is None:
        return ["-", "", *("" for _ in subject.more), line.failure or "no figure"]
    more = [line.median(name) for name in subject.more]
    spread = f"{number(min(values))} .. {number(max(values))}"
    return [number(median), spread, *("" if each is None else number(each) for each in more), line.failure]


def _loader(line: Line) -> str:
    return line.contestant.name.partition(",")[0]
