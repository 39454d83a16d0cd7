"""Runs subjects: prepares the data, then rounds in which each contestant has one turn; then writes the tables."""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from tools import pages
from tools.bench.measure import Figures
from tools.bench.report import Report, section, update_tables
from tools.bench.subject import Contestant, Subject
from tools.bench.subjects import all_subjects
from tools.console import Console, temporary_directory
from tools.environment import install_missing
from tools.processes import Call, CallFailed, stream

_PREPARE_LIMIT = 600.0  # seconds


def run(given: argparse.Namespace) -> int:
    """Return 1 if mdsx failed somewhere; missed goals do not count. Everything it started has ended then."""
    patterns = given.subjects or ["*"]
    everything = all_subjects(given.scale)
    for pattern in patterns:
        if not any(fnmatch(each.name, pattern) for each in everything):
            raise SystemExit(f"no subject matches {pattern}")
    chosen = [each for each in everything if any(fnmatch(each.name, pattern) for pattern in patterns)]
    chosen = [each for each in chosen if given.subjects or not each.gpu or Path("/dev/nvidia0").exists()]
    if given.list:
        for subject in chosen:
            print(f"{subject.name:28} {subject.title}")
        return 0
    console = Console()
    here = pages.machine()
    needed = environments(chosen, given.loaders)
    missing = install_missing(console, needed)
    if "spark" in needed and not shutil.which("java"):
        missing["spark"] = "it needs Java"
    versions = pages.versions(name for name in needed if name not in missing)
    report = Report(chosen, here, versions, pages.commit(), pages.today(), given.rounds, given.scale)
    with temporary_directory("mdsx-bench-", given.scratch) as scratch:
        runner, started = Runner(scratch, given.rounds, missing=missing), time.monotonic()
        turns = [sum(takes_part(each, given.loaders) for each in subject.contestants) for subject in chosen]
        for number, subject in enumerate(chosen):
            with console.step(subject.title) as step:
                runner.note = step.note
                runner.run(subject, given.loaders)
                left = (time.monotonic() - started) / max(sum(turns[: number + 1]), 1) * sum(turns[number + 1 :])
                step.result = f"about {left / 60:.0f} minutes left" if left else ""
            console.page(section(subject))
            if given.docs:  # after each subject, for an interrupted run
                update_tables(replace(report, subjects=chosen[: number + 1]), all_subjects(given.scale))
    console.print(report.about().strip())
    if given.json:
        Path(given.json).write_bytes(report.to_json())
    ours = (each for subject in chosen for each in subject.contestants if each.kind == "mdsx")
    return int(any(each.failure.startswith("round") for each in ours))


def environments(subjects: Sequence[Subject], only: Sequence[str] = ()) -> list[str]:
    """Return those in which contestants run, and those that write their data. `only`: as for `Runner.run`."""
    taking_part = [each for subject in subjects for each in subject.contestants if takes_part(each, only)]
    return sorted({name for each in taking_part for name in _environments(each)})


def takes_part(contestant: Contestant, only: Sequence[str]) -> bool:
    return not only or (contestant.call.environment or contestant.kind) in only


def _environments(contestant: Contestant) -> list[str]:
    return [call.environment for call in (contestant.call, contestant.prepare) if call and call.environment]


@dataclass
class Runner:
    """Runs subjects in `scratch`, where prepared datasets stay for later subjects."""

    scratch: Path
    rounds: int
    note: Callable[[str], None] = lambda text: None
    missing: Mapping[str | None, str] = field(default_factory=dict)  # environment -> why it does not exist
    stream: Callable[..., Iterable[Any]] = stream
    _failed: dict[Path, str] = field(default_factory=dict)  # data that could not be written -> why

    def run(self, subject: Subject, only: Sequence[str] = ()) -> None:
        """Give contestants their turns. One that failed or hung has no further turns; it keeps the reason.

        `only`: the environments that have turns; "mdsx" and "limit" are those of the project's own.
        """
        for each in subject.contestants:
            missing = [self.missing[where] for where in _environments(each) if where in self.missing]
            each.failure = "" if takes_part(each, only) else "left out"
            if missing and not each.failure:
                each.failure = f"not installed: {missing[0]}"
        for number in range(1, self.rounds + 1):
            for each in subject.contestants:
                if not each.failure:
                    self.note(f"{subject.name}, round {number}: {each.name}")
                    try:
                        each.rounds.append(self._measure(each, subject.limit))
                    except CallFailed as error:
                        each.failure = f"round {number}: {error}"

    def _measure(self, contestant: Contestant, limit: float) -> Figures:
        data = self._prepared(contestant.prepare) if contestant.prepare else None
        for path in data.rglob("*") if data else ():
            if path.is_file():
                path.read_bytes()  # into the page cache, so that no contestant is the first to read it
        return self._call(contestant.call, data, limit)

    def _prepared(self, what: Call) -> Path:
        """The directory that `what` fills: now, unless it did before. A failure is remembered too."""
        key = hashlib.sha256(json.dumps(asdict(what), sort_keys=True).encode()).hexdigest()[:12]
        directory = self.scratch / "data" / f"{what.environment or 'mdsx'}-{key}"
        done = directory.with_suffix(".done")
        if not done.exists() and directory not in self._failed:
            try:
                self._call(what, _empty(directory), _PREPARE_LIMIT)
                done.touch()
            except CallFailed as error:
                self._failed[directory] = f"its data could not be written: {error}"
        if directory in self._failed:
            raise CallFailed(self._failed[directory])
        return directory

    def _call(self, what: Call, data: Path | None, limit: float) -> Figures:
        scratch = _empty(self.scratch / "scratch")
        with_data = replace(what, arguments={**what.arguments, "data": str(data)}) if data else what
        try:
            *_, figures = self.stream(with_data, scratch=scratch, limit=limit)
            return dict(figures)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _empty(directory: Path) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory
