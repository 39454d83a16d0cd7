"""Figures as JSON, and back: what was measured in several runs makes one report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.bench.report import Report, bound
from tools.bench.run import Line, Outcome
from tools.bench.subject import Subject


def to_json(report: Report) -> str:
    """Every figure of every round, and how the goals were judged."""
    value = {
        "date": report.date,
        "commit": report.commit,
        "machine": dict(report.machine),
        "versions": dict(report.versions),
        "rounds": report.rounds,
        "scale": report.scale,
        "seconds": round(report.seconds),
        "subjects": [_subject(outcome) for outcome in report.outcomes],
    }
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def load(path: Path, subjects: Sequence[Subject]) -> list[Outcome]:
    """Those of `subjects` that are in the file; what has another name by now is left out."""
    whole = json.loads(path.read_text())
    found = {each["name"]: each for each in whole["subjects"]}
    here = f"{whole['machine'].get('processor', '')}, load before {whole['machine'].get('load before', 'unknown')}"
    run = f"{whole['date']}, commit {whole['commit'] or 'unknown'}, {whole['rounds']} rounds, {here}"
    outcomes = []
    for subject in subjects:
        if subject.name in found:
            known = {each["name"]: each for each in found[subject.name]["contestants"]}
            lines = [
                Line(each, known[each.name]["rounds"], known[each.name]["failure"])
                if each.name in known
                else Line(each, failure="left out")
                for each in subject.contestants
            ]
            outcomes.append(Outcome(subject, lines, found[subject.name].get("origin") or run))
    return outcomes


def _subject(outcome: Outcome) -> dict[str, Any]:
    subject = outcome.subject
    return {
        "name": subject.name,
        "title": subject.title,
        "figure": subject.figure,
        "unit": subject.unit,
        "origin": outcome.origin,
        "contestants": [
            {
                "name": line.contestant.name,
                "kind": line.contestant.kind,
                "median": line.median(subject.figure),
                "rounds": line.rounds,
                "failure": line.failure,
            }
            for line in outcome.lines
        ],
        "goals": [
            {"text": each.goal.text, "measured": each.value, "bound": bound(each.goal), "judged": each.word}
            for each in outcome.verdicts
        ],
    }
