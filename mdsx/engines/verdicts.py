"""What a clean does with what it finds: pure decisions, from keys and times. The rules are in `clean.py`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from mdsx.format import filenames
from mdsx.storage import Entry
from mdsx.writer.runs import Attempts, is_finished

LEAST = 3600.0
"""Seconds without a sign of life before a run can be dead: its driver missed twelve."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """Something that a run left.

    Attributes:
        kind: "attempt"; "replaced": what is left of a dataset that the run has replaced; "unfinished": an object whose
            writer died; or "record", of a run.
        name: The folder of an attempt, the key of an unfinished object; otherwise "".
        run: The run; None if that cannot be known.
        files: The number of its files.
        size: Their bytes, as far as they are known.
        kept: Why it stays; "" for what is removed.
    """

    kind: Literal["attempt", "replaced", "unfinished", "record"]
    name: str
    run: str | None
    files: int
    size: int
    kept: str = ""

    @classmethod
    def of(
        cls,
        kind: Literal["attempt", "replaced", "unfinished", "record"],
        name: str,
        run: str | None,
        entries: Iterable[Entry],
        kept: str = "",
    ) -> Leftover:
        entries = list(entries)
        return cls(kind, name, run, len(entries), sum(entry.size for entry in entries), kept)


@dataclass(frozen=True, slots=True)
class Ages:
    """Now, by the storage's clock, and the age that files need to be removed."""

    now: float
    least: float

    def is_old(self, modified: float, least: float | None = None) -> bool:
        """Return whether an object is older. One without a time is not."""
        return 0 < modified < self.now - (self.least if least is None else least)

    def is_dead(self, modified: float) -> bool:
        """Return whether a sign of life is too old for a running run."""
        return self.is_old(modified, max(self.least, LEAST))


@dataclass(frozen=True, slots=True)
class Run:
    """A run: the objects of its record, by their sign, and when its newest attempt was stored."""

    name: str
    signs: Mapping[str, Entry]
    newest: float = 0.0

    @property
    def began(self) -> float | None:
        """Return when it began; None if it has ended, with a dataset or without."""
        return self.signs["begun"].modified if "begun" in self.signs else None

    def is_running(self, ages: Ages) -> bool:
        times = [self.signs[sign].modified for sign in ("begun", "alive") if sign in self.signs]
        times += [self.newest] if self.newest else []
        return self.began is not None and "dead" not in self.signs and not all(map(ages.is_dead, times))

    def may_wake_up(self, ages: Ages) -> bool:
        """Return whether its driver may still write the index, and take it back, because the mark is new."""
        return self.began is not None and not ("dead" in self.signs and ages.is_dead(self.signs["dead"].modified))


def runs_in(records: Iterable[Entry], attempts: Attempts, of: Mapping[str, str | None]) -> dict[str, Run]:
    """Return the runs with these records. `of`: the run of each attempt, None if it is not known."""
    signs: dict[str, dict[str, Entry]] = {}
    for entry in records:
        if parsed := filenames.parse_run_sign(entry.key):
            signs.setdefault(parsed[0], {})[parsed[1]] = entry
    newest: dict[str | None, float] = {}
    for folder, run in of.items():
        newest[run] = max(newest.get(run, 0.0), *(entry.modified for entry in attempts[folder]))
    return {run: Run(run, found, newest.get(run, 0.0)) for run, found in signs.items()}


def of_attempts(
    attempts: Attempts, of: Mapping[str, str | None], runs: Mapping[str, Run], ages: Ages, *, has_index: bool
) -> Iterator[Leftover]:
    """Yield the verdicts on attempts that no index names; `of` has the run of each, None if it is not known."""
    beginnings = [run.began or 0.0 for run in runs.values() if run.is_running(ages)]
    for folder, entries in attempts.items():
        run = runs.get(of[folder] or "")
        newest = 0.0 if any(not entry.modified for entry in entries) else max(entry.modified for entry in entries)
        if run is not None and run.is_running(ages):
            why = "its run is at work"
        elif not ages.is_old(newest):
            why = "it is too young"
        elif of[folder] is None and beginnings and newest >= min(beginnings):
            why = "it may be of a run that is at work"
        elif not has_index and is_finished(folder, entries) and (run is None or run.began is None):
            why = "it may be of a dataset whose index was lost: see `mdsx repair`"
        else:
            why = ""
        yield Leftover.of("attempt", folder, of[folder], entries, why)


def of_record(run: Run, ages: Ages) -> Leftover | None:
    """Return the verdict on the record of a run that is not at work, and that has left nothing else."""
    if all(ages.is_dead(entry.modified) for sign, entry in run.signs.items() if sign != "dead"):
        return Leftover.of("record", "", run.name, run.signs.values())
    return None
