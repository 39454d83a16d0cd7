"""The results: tables in Markdown, for the terminal and the pages, and JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tools.bench.subject import Contestant, Subject, number
from tools.pages import marks, put_between_marks, table
from tools.processes import ROOT
from tools.workloads import SIZES

_SHORT = ("loader-{}-32", "random-{}", "write-{}")  # README's lines


@dataclass(frozen=True)
class Report:
    subjects: Sequence[Subject]
    machine: Mapping[str, str]
    versions: Mapping[str, str]
    commit: str
    date: str
    rounds: int
    scale: float

    def about(self) -> str:
        """The run, the machine and the versions of all packages."""
        said = ("processor", "load before")
        machine = ", ".join(f"{name} {value}" for name, value in self.machine.items() if name not in said)
        versions = ", ".join(f"{name} {value}" for name, value in self.versions.items())
        return f"{self.origin()}. {machine}.\nTables of other runs say so. {versions}.\n"

    def origin(self) -> str:
        """The run in a line."""
        size = "" if self.scale == 1 else f"at {self.scale:g} of the full size, "
        here = f"{self.machine.get('processor', '')}, load before {self.machine.get('load before', 'unknown')}"
        return f"{self.date}, commit {self.commit or 'unknown'}, {self.rounds} rounds, {size}{here}"

    def summary(self) -> str:
        """The best of each loader in README's subjects, in Markdown; empty if they are not all there. Views of stored
        bytes, which are not copied, do not compete with batches."""
        names = [each.format(workload) for each in _SHORT for workload in SIZES]
        subjects = [each for name in names for each in self.subjects if each.name == name]
        if len(subjects) < len(names):
            return ""
        competing = [each for subject in subjects for each in subject.contestants if each.kind != "limit"]
        loaders = list(dict.fromkeys(each.loader for each in competing))
        rows = []
        for subject in subjects:
            best = dict.fromkeys(loaders, 0.0)
            for each in (each for each in subject.contestants if each.loader in best and ", views" not in each.name):
                best[each.loader] = max(best[each.loader], each.median(subject.figure) or 0.0)
            cells = {loader: number(value) if value else "" for loader, value in best.items()}
            cells["mdsx"] = f"**{cells['mdsx']}**"
            rows.append([subject.title, *cells.values()])
        return table(["samples a second", *loaders], rows, range(1, len(loaders) + 1))

    def to_json(self) -> bytes:
        """Every figure of every round, and how the goals were judged."""
        subjects = [{**vars(each), "verdicts": each.verdicts()} for each in self.subjects]
        return msgspec.json.format(msgspec.json.encode({**vars(self), "subjects": subjects}), indent=1) + b"\n"


def section(subject: Subject, origin: str = "") -> str:
    """A subject in Markdown: its table, the run that it is from, its goals."""
    heads = ("", subject.unit or subject.figure, "min .. max", *subject.more, "")
    made = table(heads, [_cells(subject, each) for each in subject.contestants], range(1, len(heads) - 1))
    measured = f"Measured {origin}. " if origin else ""
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
    remark = contestant.failure or ("" if values or any(more) else "no figure")
    return [f"{mark}{contestant.name}{mark}", middle or "-", spread, *more, remark]


def update_tables(report: Report, known: Sequence[Subject], root: Path = ROOT) -> None:
    """Replace the tables and goals of these subjects only, and README's table, if all of it is there. Those that are no
    longer measured go."""
    page = root / "docs" / "benchmarks.md"
    put_between_marks(page, "bench", "about", report.about())
    measured, text, tables, goals = {each.name: each for each in report.subjects}, page.read_text(), [], []
    for subject in known:
        begin, end = marks("bench", subject.name)
        found = re.search(rf"{re.escape(begin)}\n.*?{re.escape(end)}\n", text, re.DOTALL)
        made = f"{begin}\n{section(measured[subject.name], report.origin())}{end}\n" if subject.name in measured else ""
        tables.append(made or (found[0] if found else ""))
        for each in measured.get(subject.name, subject).verdicts():
            word = each.word if each.word == "met" else f"**{each.word}**"
            before = re.search(rf"^\| {re.escape(each.goal)} \|.*$", text, re.MULTILINE)
            line = f"| {each.goal} | {each.measured} | {word} |"
            goals.append(before[0] if before and subject.name not in measured else line)
    put_between_marks(
        page, "bench", "goals", table(("goal", "measured", ""), [], (1,)) + "".join(f"{each}\n" for each in goals)
    )
    put_between_marks(page, "bench", "tables", "\n".join(filter(None, tables)))
    if summary := report.summary():
        put_between_marks(root / "README.md", "bench", "summary", summary)
