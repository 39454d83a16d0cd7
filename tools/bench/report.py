"""The results: tables in Markdown, bar charts of them, the pages that have both; JSON, which a later run can load."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from matplotlib.figure import Figure

from tools.bench.subject import Contestant, Subject, number
from tools.pages import marks, put_between_marks, table
from tools.processes import ROOT
from tools.workloads import SIZES

_PICTURES = {
    "benchmarks-loader": ("The shuffled loader", ("loader-*-32",)),
    "benchmarks-random": ("Random access", ("random*",)),
    "benchmarks-iterate": ("Sample by sample", ("sequential-*", "shuffled-*")),
    "benchmarks-write": ("Writing", ("write-*",)),
}
_SHORT = ("loader-{}-32", "random-{}", "write-{}")  # README's lines
_COLOURS = {"mdsx": "#2f7fc1", "peer": "#b9bec5", "limit": "#e8e3d3"}
_COLUMNS = 2
_SHOWN = 3  # a limit of the machine is drawn if it is at most this many times the longest other bar


@dataclass(frozen=True)
class Report:
    subjects: Sequence[Subject]
    machine: Mapping[str, str]
    versions: Mapping[str, str]
    commit: str
    date: str
    rounds: int
    scale: float
    seconds: float

    def markdown(self) -> str:
        return "\n".join(map(_marked, self.subjects))

    def goals(self) -> str:
        rows = [row for subject in self.subjects for row in _goal_rows(subject)]
        return table(("goal", "measured", ""), rows, (1,))

    def about(self) -> str:
        machine = ", ".join(f"{name} {value}" for name, value in self.machine.items())
        versions = ", ".join(f"{name} {value}" for name, value in self.versions.items())
        size = "" if self.scale == 1 else f" At {self.scale:g} of the full size."
        run = f"{self.date}, commit {self.commit or 'unknown'}, medians of {self.rounds} rounds.{size} {machine}."
        return f"{run}\nTables of other runs say so. {versions}.\n"

    def summary(self, names: Sequence[str]) -> str:
        """The best of each loader in some subjects, in Markdown."""
        subjects = [each for name in names for each in self.subjects if each.name == name]
        competing = [each for subject in subjects for each in subject.contestants if each.kind != "limit"]
        loaders = list(dict.fromkeys(each.loader for each in competing))
        rows = []
        for subject in subjects:
            medians = [(each.loader, each.median(subject.figure)) for each in subject.contestants]
            cells = [subject.title]
            for loader in loaders:
                best = max((value for name, value in medians if name == loader and value is not None), default=None)
                mark = "**" if loader == "mdsx" else ""
                cells.append("" if best is None else f"{mark}{number(best)}{mark}")
            rows.append(cells)
        return table(["samples a second", *loaders], rows, range(1, len(loaders) + 1))

    def to_json(self) -> bytes:
        """Every figure of every round, and how the goals were judged."""
        subjects = [{**vars(each), "verdicts": each.verdicts()} for each in self.subjects]
        return msgspec.json.format(msgspec.json.encode({**vars(self), "subjects": subjects}), indent=1) + b"\n"


def load(path: Path, subjects: Sequence[Subject]) -> None:
    """Give subjects the figures that they have in a JSON file. Those that were renamed since have none."""
    whole = json.loads(path.read_text())
    found = {each["name"]: each for each in whole["subjects"]}
    for subject in (each for each in subjects if each.name in found):
        known = {each["name"]: each for each in found[subject.name]["contestants"]}
        for contestant in subject.contestants:
            its = known.get(contestant.name, {"rounds": [], "failure": "left out"})
            contestant.rounds, contestant.failure = its["rounds"], its["failure"]
        subject.origin = found[subject.name]["origin"] or _run(whole)


def _run(report: Mapping[str, Any]) -> str:
    """Return in a line which run the fields of a report are of."""
    machine, size = report["machine"], "" if report["scale"] == 1 else f"at {report['scale']:g} of the full size, "
    here = f"{machine.get('processor', '')}, load before {machine.get('load before', 'unknown')}"
    return f"{report['date']}, commit {report['commit'] or 'unknown'}, {report['rounds']} rounds, {size}{here}"


def _marked(subject: Subject) -> str:
    begin, end = marks("bench", subject.name)
    return f"{begin}\n{section(subject)}{end}\n"


def _goal_rows(subject: Subject) -> list[list[str]]:
    verdicts = subject.verdicts()
    return [[each.goal, each.measured, each.word if each.word == "met" else f"**{each.word}**"] for each in verdicts]


def section(subject: Subject) -> str:
    """A subject in Markdown: its table, followed by its goals."""
    heads = ("", subject.unit or subject.figure, "min .. max", *subject.more, "")
    made = table(heads, [_cells(subject, each) for each in subject.contestants], range(1, len(heads) - 1))
    measured = f"Measured {subject.origin}. " if subject.origin else ""
    note = f"`python3 -m tools bench {subject.name}`. {measured}{subject.note}".strip()
    goals = "".join(f"- {each.goal}: {each.word} ({each.measured})\n" for each in subject.verdicts())
    return f"### {subject.title}\n\n{made}\n{note}\n" + (f"\n{goals}" if goals else "")


def _cells(subject: Subject, contestant: Contestant) -> list[str]:
    """Name, median, spread, further figures, remark."""
    mark = "**" if contestant.kind == "mdsx" else ""
    values = contestant.values(subject.figure)
    medians = [contestant.median(figure) for figure in (subject.figure, *subject.more)]
    middle, *more = ["" if value is None else number(value) for value in medians]
    spread = f"{number(min(values))} .. {number(max(values))}" if values else ""
    remark = contestant.failure or ("" if values else "no figure")
    return [f"{mark}{contestant.name}{mark}", middle or "-", spread, *more, remark]


def update_tables(report: Report, root: Path = ROOT) -> None:
    """Replace the tables and goals of these subjects only, or add them. Pictures and README.md's table stay."""
    page = root / "docs" / "benchmarks.md"
    for subject in report.subjects:
        own = replace(subject, origin=subject.origin or _run(vars(report)))
        if marks("bench", subject.name)[0] not in page.read_text():
            _add(page, "tables", "\n" + _marked(own))
        put_between_marks(page, "bench", subject.name, section(own))
        for row in _goal_rows(subject):
            line, text = f"| {' | '.join(row)} |", page.read_text()
            before = re.search(rf"^\| {re.escape(row[0])} \|.*$", text, re.MULTILINE)
            if before is None:
                _add(page, "goals", f"{line}\n")
            else:
                page.write_text(text.replace(before[0], line))


def _add(page: Path, name: str, text: str) -> None:
    _, end = marks("bench", name)
    page.write_text(page.read_text().replace(end, text + end))


def write_pages(report: Report, root: Path = ROOT) -> None:
    """Replace the text between the marks, and each picture for which a subject was measured."""
    pictures = []
    for name, (title, patterns) in _PICTURES.items():
        found = [each for pattern in patterns for each in report.subjects if fnmatch(each.name, pattern)]
        subjects = [each for each in found if _shown(each)]
        if subjects:
            draw(root / "docs" / f"{name}.png", subjects)
            pictures.append(f"![{title}]({name}.png)\n")
    page = root / "docs" / "benchmarks.md"
    put_between_marks(page, "bench", "about", report.about())
    put_between_marks(page, "bench", "goals", report.goals())
    put_between_marks(page, "bench", "tables", report.markdown())
    put_between_marks(page, "bench", "pictures", "\n".join(pictures))
    chart = next(iter(pictures), "").replace("](", "](docs/")
    short = report.summary([each.format(workload) for each in _SHORT for workload in SIZES])
    put_between_marks(root / "README.md", "bench", "summary", f"{chart}\n{short}")


def draw(path: Path, subjects: Sequence[Subject]) -> None:
    """Draw a panel for each subject and a bar for each contestant, with its spread across the end."""
    columns = min(_COLUMNS, len(subjects))
    rows = -(-len(subjects) // columns)
    size = (6.2 * columns, (0.6 + 0.24 * max(len(_shown(subject)) for subject in subjects)) * rows)
    figure = Figure(size, layout="constrained")
    for place, subject in enumerate(subjects, 1):
        _panel(figure.add_subplot(rows, columns, place), subject)
    figure.savefig(path, dpi=90)


def _panel(axes: Any, subject: Subject) -> None:
    lines = _shown(subject)
    values = [line.values(subject.figure) for line in lines]
    middles = list(map(median, values))
    spread = [[middle - min(each), max(each) - middle] for middle, each in zip(middles, values, strict=True)]
    bars = {"color": [_COLOURS[line.kind] for line in lines], "error_kw": {"ecolor": "#555555", "lw": 0.8}}
    drawn = axes.barh([line.name for line in lines], middles, xerr=list(zip(*spread, strict=True)), **bars)
    axes.bar_label(drawn, list(map(number, middles)), padding=4, fontsize=7)
    axes.tick_params("y", labelsize=7.5)
    axes.invert_yaxis()
    axes.set_title(f"{subject.title} ({subject.unit or subject.figure})", fontsize=9, loc="left")
    axes.set_xticks([])
    axes.margins(x=0.15)
    axes.spines[["top", "right", "bottom"]].set_visible(False)


def _shown(subject: Subject) -> list[Contestant]:
    lines = [(line, value) for line in subject.contestants if (value := line.median(subject.figure)) is not None]
    longest = max((value for line, value in lines if line.kind != "limit"), default=0.0)
    return [line for line, value in lines if line.kind != "limit" or value <= _SHOWN * longest]
