"""The command: what is chosen, how it goes, what is written."""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from tempfile import mkdtemp

import rich.console

from tools.bench import machine
from tools.bench.report import Report
from tools.bench.results import load, to_json
from tools.bench.run import Outcome, Runner
from tools.bench.subject import Subject
from tools.bench.subjects import all_subjects
from tools.console import Console
from tools.peers.environments import CannotInstall, PeerEnvironment

_ROOT = Path(__file__).resolve().parent.parent.parent
_WIDTH = 140  # columns of the tables, where they are not on a terminal


def run(given: argparse.Namespace) -> int:
    """1 if mdsx failed somewhere; 0 also if goals are missed. Everything it started has ended then."""
    scale = given.scale
    chosen = [each for each in all_subjects(scale) if _wanted(each, given.subjects)]
    if given.list:
        for subject in chosen:
            print(f"{subject.name:28} {subject.title}")
        return 0
    console = Console()
    scratch = Path(mkdtemp(prefix="mdsx-bench-")) if given.scratch is None else Path(given.scratch).absolute()
    scratch.mkdir(parents=True, exist_ok=True)
    started, here = time.monotonic(), machine.machine()
    try:
        before = {each.subject.name: each for path in given.load for each in load(Path(path), chosen)}
        left = [each for each in chosen if each.name not in before]
        missing = _environments(console, left, given.loaders)
        after = _measure(console, left, scratch, given.rounds, given.loaders, missing)
    finally:
        if given.scratch is None:
            shutil.rmtree(scratch, ignore_errors=True)
    found = before | {each.subject.name: each for each in after}
    outcomes = [found[subject.name] for subject in chosen]
    used = {each.call.environment for subject in chosen for each in subject.contestants}
    report = Report(
        tuple(outcomes),
        here,
        machine.versions(sorted(used - {None} - set(missing), key=str)),
        machine.commit(),
        machine.today(),
        given.rounds,
        scale,
        time.monotonic() - started,
    )
    _write(console, report, given)
    return int(any(line.failure and line.contestant.kind == "mdsx" for each in outcomes for line in each.lines))


def _wanted(subject: Subject, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatch(subject.name, pattern) for pattern in patterns)


def _environments(console: Console, chosen: Sequence[Subject], loaders: Sequence[str]) -> dict[str, str]:
    """Make those that are needed; returns why some cannot be made."""
    missing = {}
    contestants = [each for subject in chosen for each in subject.contestants]
    for name in sorted({each.call.environment for each in contestants if each.call.environment}):
        environment = PeerEnvironment(name)
        if (loaders and name not in loaders) or environment.complete():
            continue
        with console.step(f"Installing {name} into {environment.directory.relative_to(_ROOT)}") as step:
            try:
                environment.install()
            except CannotInstall as error:
                step.passed, step.result = False, str(error)
                missing[name] = str(error)
    return missing


def _measure(
    console: Console,
    chosen: Sequence[Subject],
    scratch: Path,
    rounds: int,
    loaders: Sequence[str],
    missing: dict[str, str],
) -> list[Outcome]:
    outcomes = []
    runner = Runner(scratch, rounds, missing=missing)
    wide = console.rich if console.rich.is_terminal else rich.console.Console(width=_WIDTH)
    for subject in chosen:
        with console.step(subject.title) as step:
            runner.note = step.note
            outcome = runner.run(subject, loaders)
        outcomes.append(outcome)
        report = Report((outcome,), {}, {}, "", "", rounds, 1.0, 0.0)
        wide.print(report.table(outcome))
        for line in report.goal_lines(outcome):
            wide.print(line)
    return outcomes


def _write(console: Console, report: Report, given: argparse.Namespace) -> None:
    console.say(f"{report.about().strip()} {report.seconds:.0f} s")
    if given.json:
        Path(given.json).write_text(to_json(report))
    if given.markdown:
        from tools.bench.pages import write_pages

        write_pages(report)
