"""Runs a subject: prepares the data, then rounds in which each contestant has one turn; judges the goals."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from tools.bench.subject import Contestant, Goal, Subject
from tools.processes import Call, CallFailed, call

_PREPARE_LIMIT = 600.0  # seconds
Figures = dict[str, Any]


@dataclass
class Line:
    """A contestant's figures of each round, and why there are no more of them, if so."""

    contestant: Contestant
    rounds: list[Figures] = field(default_factory=list)
    failure: str = ""

    def values(self, figure: str) -> list[float]:
        """One figure, of each round that has it."""
        return [float(figures[figure]) for figures in self.rounds if figures.get(figure) is not None]

    def median(self, figure: str) -> float | None:
        """The median of all rounds, None if there is none."""
        values = self.values(figure)
        return median(values) if values else None


@dataclass(frozen=True)
class Verdict:
    """How a goal was judged. `value` is the figure or ratio; `met` is None if it could not be measured."""

    goal: Goal
    value: float | None
    met: bool | None

    @property
    def word(self) -> str:
        return {True: "met", False: "missed", None: "not measured"}[self.met]


@dataclass
class Outcome:
    """All of a subject's lines, in the order of its contestants, and its goals."""

    subject: Subject
    lines: list[Line]
    origin: str = ""  # the earlier run that measured it, if it was not this one

    def line(self, name: str) -> Line:
        """The line of a contestant."""
        return next(line for line in self.lines if line.contestant.name == name)

    @property
    def verdicts(self) -> list[Verdict]:
        return [self._judge(goal) for goal in self.subject.goals]

    def _judge(self, goal: Goal) -> Verdict:
        figure = goal.figure or self.subject.figure
        value = self.line(goal.contestant).median(figure)
        if goal.against and value is not None:
            others = [found for name in goal.against if (found := self.line(name).median(figure)) is not None]
            best = (max if self.subject.higher_is_better else min)(others, default=0.0)
            value = value / best if best else None
        if value is None:
            return Verdict(goal, None, None)
        met = value >= goal.at_least if goal.at_least is not None else value <= (goal.at_most or 0.0)
        return Verdict(goal, value, met)


@dataclass
class Runner:
    """Runs subjects in `scratch`, where prepared datasets stay for later subjects."""

    scratch: Path
    rounds: int
    note: Callable[[str], None] = lambda text: None
    missing: Mapping[str | None, str] = field(default_factory=dict)  # environment -> why it does not exist
    call: Callable[..., Figures] = call
    _failed: dict[Path, str] = field(default_factory=dict)  # data that could not be written -> why

    def run(self, subject: Subject, only: Sequence[str] = ()) -> Outcome:
        """A contestant that failed or hung has no further turns; its line says why.

        `only`: the environments that have turns; "mdsx" and "limit" are those of the project's own.
        """
        lines = [Line(each, failure=self._absent(each, only)) for each in subject.contestants]
        for number in range(1, self.rounds + 1):
            for line in lines:
                if not line.failure:
                    self.note(f"{subject.name}, round {number}: {line.contestant.name}")
                    self._turn(subject, line, number)
        return Outcome(subject, lines)

    def _absent(self, contestant: Contestant, only: Sequence[str]) -> str:
        environment = contestant.call.environment
        if only and (environment or contestant.kind) not in only:
            return "left out"
        return f"not installed: {self.missing[environment]}" if environment and environment in self.missing else ""

    def _turn(self, subject: Subject, line: Line, number: int) -> None:
        more = {}
        scratch = _empty(self.scratch / "turn")
        try:
            if line.contestant.prepare is not None:
                data = self._prepared(line.contestant.prepare)
                _read_all(data)
                more["data"] = str(data)
            more["scratch"] = str(_empty(scratch / "scratch"))
            line.rounds.append(self.call(line.contestant.call, more, scratch=scratch, limit=subject.limit))
        except CallFailed as error:
            line.failure = f"round {number}: {error}"
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _prepared(self, what: Call) -> Path:
        """The directory with what `what` makes; made now, unless it was before. A failure is remembered too."""
        key = hashlib.sha256(json.dumps(asdict(what), sort_keys=True).encode()).hexdigest()[:12]
        parts = (what.function.removeprefix("tools.bench."), str(what.arguments.get("loader", "")))
        directory = self.scratch / "data" / f"{re.sub(r'[^A-Za-z0-9]+', '-', '-'.join(parts))}-{key}"
        done = directory.with_suffix(".done")
        if directory in self._failed:
            raise CallFailed(self._failed[directory])
        if not done.exists():
            scratch = _empty(self.scratch / "preparing")
            try:
                self.call(what, {"data": str(_empty(directory))}, scratch=scratch, limit=_PREPARE_LIMIT)
            except CallFailed as error:
                self._failed[directory] = f"its data could not be written: {error}"
                raise CallFailed(self._failed[directory]) from None
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
            done.touch()
        return directory


def _read_all(directory: Path) -> None:
    """Bring all files into the page cache, so that no contestant is the first to read them."""
    buffer = bytearray(2**22)
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass


def _empty(directory: Path) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory
