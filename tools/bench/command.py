"""The command: measures the chosen subjects and writes the tables."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from tools import machine
from tools.bench.pages import write_pages
from tools.bench.report import Report, load, section
from tools.bench.run import Outcome, Runner
from tools.bench.subject import Subject
from tools.bench.subjects import all_subjects
from tools.console import Console, temporary_directory
from tools.environment import install_missing


def run(given: argparse.Namespace) -> int:
    """Return 1 if mdsx failed somewhere; missed goals do not count. Everything it started has ended then."""
    patterns = given.subjects or ["*"]
    chosen = [each for each in all_subjects(given.scale) if any(fnmatch(each.name, pattern) for pattern in patterns)]
    if given.list:
        for subject in chosen:
            print(f"{subject.name:28} {subject.title}")
        return 0
    console = Console()
    started, here = time.monotonic(), machine.machine()
    before = {each.subject.name: each for path in given.load for each in load(Path(path), chosen)}
    left = [each for each in chosen if each.name not in before]
    needed = {each.call.environment for subject in left for each in subject.contestants} - {None}
    missing = install_missing(console, [name for name in sorted(needed, key=str) if name in (given.loaders or needed)])
    with temporary_directory("mdsx-bench-", given.scratch) as scratch:
        after = _measure(console, left, Runner(scratch, given.rounds, missing=missing), given.loaders)
    found = before | {each.subject.name: each for each in after}
    outcomes = tuple(found[subject.name] for subject in chosen)
    used = {each.call.environment for subject in chosen for each in subject.contestants} - {None} - set(missing)
    report = Report(
        outcomes,
        here,
        machine.versions(sorted(used, key=str)),
        machine.commit(),
        machine.today(),
        given.rounds,
        given.scale,
        time.monotonic() - started,
    )
    console.print(f"{report.about().strip()} {report.seconds:.0f} s")
    if given.json:
        Path(given.json).write_text(report.to_json())
    if given.markdown:
        write_pages(report)
    return int(any(line.failure and line.contestant.kind == "mdsx" for each in outcomes for line in each.lines))


def _measure(console: Console, chosen: Sequence[Subject], runner: Runner, loaders: Sequence[str]) -> list[Outcome]:
    outcomes = []
    for subject in chosen:
        with console.step(subject.title) as step:
            runner.note = step.note
            outcomes.append(runner.run(subject, loaders))
        console.page(section(outcomes[-1]))
    return outcomes
