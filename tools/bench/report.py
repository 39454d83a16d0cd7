"""The results as tables in Markdown, and as JSON, which a later run can load."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tools.bench.subject import Contestant, Subject, number
from tools.tables import table


@dataclass(frozen=True)
class Report:
    """All subjects of a run."""

    subjects: Sequence[Subject]
    machine: Mapping[str, str]
    versions: Mapping[str, str]
    commit: str
    date: str
    rounds: int
    scale: float
    seconds: float

    def markdown(self) -> str:
        return "\n".join(map(section, self.subjects))

    def goals(self) -> str:
        """All goals in one Markdown table."""
        verdicts = [verdict for subject in self.subjects for verdict in subject.verdicts()]
        words = [each.word if each.word == "met" else f"**{each.word}**" for each in verdicts]
        rows = [[each.goal, each.measured, word] for each, word in zip(verdicts, words, strict=True)]
        return table(("goal", "measured", ""), rows, (1,))

    def about(self) -> str:
        """Machine, versions and date, in Markdown."""
        machine = ", ".join(f"{name} {value}" for name, value in self.machine.items())
        versions = ", ".join(f"{name} {value}" for name, value in self.versions.items())
        size = "" if self.scale == 1 else f" At {self.scale:g} of the full size."
        run = f"{self.date}, commit {self.commit or 'unknown'}, medians of {self.rounds} rounds.{size} {machine}."
        origins: dict[str, list[str]] = {}
        for subject in self.subjects:
            origins.setdefault(subject.origin, []).append(subject.name)
        earlier = [f"From {origin}: {', '.join(names)}." for origin, names in origins.items() if origin]
        return " ".join([run, *earlier, f"{versions}."]) + "\n"

    def summary(self, names: Sequence[str]) -> str:
        """The best of each loader in some subjects, in Markdown."""
        subjects = [each for name in names for each in self.subjects if each.name == name]
        competing = [each for subject in subjects for each in subject.contestants if each.kind != "limit"]
        loaders = list(dict.fromkeys(map(_loader, competing)))
        rows = []
        for subject in subjects:
            medians = [(_loader(each), each.median(subject.figure)) for each in subject.contestants]
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
    here = f"{whole['machine'].get('processor', '')}, load before {whole['machine'].get('load before', 'unknown')}"
    run = f"{whole['date']}, commit {whole['commit'] or 'unknown'}, {whole['rounds']} rounds, {here}"
    for subject in (each for each in subjects if each.name in found):
        known = {each["name"]: each for each in found[subject.name]["contestants"]}
        for contestant in subject.contestants:
            its = known.get(contestant.name, {"rounds": [], "failure": "left out"})
            contestant.rounds, contestant.failure = its["rounds"], its["failure"]
        subject.origin = found[subject.name]["origin"] or run


def section(subject: Subject) -> str:
    """A subject in Markdown: its table, followed by its goals."""
    heads = ("", subject.unit or subject.figure, "min .. max", *subject.more, "")
    made = table(heads, [_cells(subject, each) for each in subject.contestants], range(1, len(heads) - 1))
    note = f"`python3 -m tools bench {subject.name}`. {subject.note}".strip()
    goals = "".join(f"- {each.goal}: {each.word} ({each.measured})\n" for each in subject.verdicts())
    return f"### {subject.title}\n\n{made}\n{note}\n" + (f"\n{goals}" if goals else "")


def _cells(subject: Subject, contestant: Contestant) -> list[str]:
    """Name, median, spread, further figures, remark."""
    mark = "**" if contestant.kind == "mdsx" else ""
    values = contestant.values(subject.figure)
    medians = [contestant.median(figure) for figure in (subject.figure, *subject.more)]
    median, *more = ["" if value is None else number(value) for value in medians]
    spread = f"{number(min(values))} .. {number(max(values))}" if values else ""
    remark = contestant.failure or ("" if values else "no figure")
    return [f"{mark}{contestant.name}{mark}", median or "-", spread, *more, remark]


def _loader(contestant: Contestant) -> str:
    return contestant.name.partition(",")[0]
