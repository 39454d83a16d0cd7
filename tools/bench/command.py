"""The command: what is chosen, how it goes, what is written."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
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
_ROUNDS = 5


def main(arguments: Sequence[str]) -> int:
    """0, also where goals are missed; 1 if mdsx failed somewhere."""
    try:
        return run(arguments)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def run(arguments: Sequence[str]) -> int:
    """The same; however it ends, nothing that it started is left."""
    given = _parse(arguments)
    scale = 0.1 if given.quick else given.scale
    chosen = [each for each in all_subjects(scale) if _wanted(each, given.subjects)]
    if given.list:
        for subject in chosen:
            print(f"{subject.name:28} {subject.title}")
        return 0
    console = Console()
    signal.signal(signal.SIGTERM, _interrupt)
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


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python3 -m tools.bench",
        description="Measures mdsx, its peers and the limits of the machine side by side.",
        epilog="Exit status 1 if mdsx failed in some subject; missed goals are no failure.",
    )
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help="names or patterns (loader-*); default: all")
    parser.add_argument("--list", action="store_true", help="the names of the subjects")
    parser.add_argument("--rounds", type=int, default=_ROUNDS, help=f"turns of each contestant (default {_ROUNDS})")
    parser.add_argument("--quick", action="store_true", help="a tenth of the samples")
    parser.add_argument("--scale", type=float, default=1.0, help="another share of the samples")
    parser.add_argument("--loaders", type=_list, default=[], metavar="A,B", help="only these: mdsx, limit, litdata ...")
    parser.add_argument("--scratch", metavar="DIR", help="keep and use again the datasets that are written there")
    parser.add_argument("--load", action="append", default=[], metavar="FILE", help="take what an earlier --json has")
    parser.add_argument("--json", metavar="FILE", help="every figure of every round")
    parser.add_argument("--markdown", action="store_true", help="write docs/benchmarks.md and README.md's table anew")
    return parser.parse_args(arguments)


def _list(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


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


def _interrupt(number: int, frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt
