"""Whether a process grows for as long as it lives: its memory, file handles, threads, looked at now and then."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

_WARM = 0.4  # of the time that it was watched: what grows then may be a cache that fills
_LOOKS = 12  # fewer, behind that, say nothing
_MIB = 2**20


@dataclass(frozen=True)
class Look:
    """A process at `at` seconds: `memory` are its resident bytes."""

    at: float
    memory: int
    handles: int
    threads: int


MOST: Mapping[str, float] = {"memory": 24 * _MIB, "handles": 24, "threads": 12}
"""What a process may grow by over its whole life, by the line through what was seen of it once it was warm."""

HIGHEST: Mapping[str, int] = {"handles": 400, "threads": 120}
"""What no process may have at any time."""


def look(pid: int, at: float) -> Look | None:
    """None where the process ended meanwhile."""
    with contextlib.suppress(OSError, KeyError):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        values = dict(line.split(":", 1) for line in lines)
        memory = int(values["VmRSS"].split()[0]) * 1024
        return Look(at, memory, len(os.listdir(f"/proc/{pid}/fd")), int(values["Threads"]))
    return None


@dataclass
class Watched:
    """What was seen of each process, by its title."""

    looks: dict[str, list[Look]] = field(default_factory=dict)

    def add(self, title: str, found: Look | None) -> None:
        if found is not None:
            self.looks.setdefault(title, []).append(found)

    def highest(self, what: str) -> int:
        return max((getattr(each, what) for looks in self.looks.values() for each in looks), default=0)

    def problems(self, least: float) -> list[str]:
        """What is above these limits."""
        found = []
        for what, most in MOST.items():
            grown = self.growth(what, least).items()
            found += [f"{title}: its {what} grew by {value:,.0f}" for title, value in grown if value > most]
        for what, highest in HIGHEST.items():
            for title, looks in self.looks.items():
                seen = max(getattr(each, what) for each in looks)
                if seen > highest:
                    found.append(f"{title}: it had {seen} {what}")
        return found

    def growth(self, what: str, least: float) -> dict[str, float]:
        """By title, of those that were watched for at least so many seconds."""
        long = {title: looks for title, looks in self.looks.items() if looks[-1].at - looks[0].at >= least}
        found = {title: grown(looks, what) for title, looks in long.items()}
        return {title: value for title, value in found.items() if value is not None}


def grown(looks: Sequence[Look], what: str) -> float | None:
    """How much a process grew while it was watched: the slope of what came once it was warm, times that time.

    Where the end is no higher than the start, nothing grew, whatever the line says. None where too little was seen.
    """
    begin, end = looks[0].at, looks[-1].at
    warm = [each for each in looks if each.at >= begin + _WARM * (end - begin)]
    if len(warm) < _LOOKS:
        return None
    values = np.array([getattr(each, what) for each in warm], float)
    times = np.array([each.at for each in warm])
    third = len(values) // 3
    risen = float(np.median(values[-third:]) - np.median(values[:third]))
    slope = float(np.polyfit(times - times[0], values, 1)[0])
    return float(max(min(slope * (times[-1] - times[0]), 1.5 * risen), 0.0))
