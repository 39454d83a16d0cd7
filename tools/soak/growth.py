"""Whether a process keeps growing: its memory, file handles and threads, sampled now and then."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

import numpy as np

_WARM = 0.4  # of the watched time: growth in it may be a cache that fills
_WINDOWS = 8  # of the time after that, whose medians are compared
_LOOKS = 3  # in each window; fewer say nothing
_MIB = 2**20


@dataclass(frozen=True)
class Look:
    """A process at `at` seconds: `memory` are its resident bytes."""

    at: float
    memory: int
    handles: int
    threads: int


MOST: Mapping[str, float] = {"memory": 24 * _MIB, "handles": 4, "threads": 4}
"""What a process may grow by once it is warm, if that exceeds its fluctuation."""

HIGHEST: Mapping[str, int] = {"handles": 400, "threads": 120}
"""What no process may have at any time."""


def look(pid: int, at: float) -> Look | None:
    """Return None if the process has ended."""
    with contextlib.suppress(OSError, KeyError):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        values = dict(line.split(":", 1) for line in lines)
        memory = int(values["VmRSS"].split()[0]) * 1024
        return Look(at, memory, len(os.listdir(f"/proc/{pid}/fd")), int(values["Threads"]))
    return None


@dataclass
class Watched:
    """The looks at each process, by its title."""

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
        """The growth by title, of processes that were watched for at least `least` seconds."""
        long = {title: looks for title, looks in self.looks.items() if looks[-1].at - looks[0].at >= least}
        found = {title: grown(looks, what) for title, looks in long.items()}
        return {title: value for title, value in found.items() if value is not None}


def grown(looks: Sequence[Look], what: str) -> float | None:
    """Return how much a process grew once it was warm: 0 if less than its fluctuation, None if there are few looks.

    The warm time is cut into windows. The slope is the median of the slopes between the medians of any two windows: of
    the first half, the second half, or all, whichever is least, since a leak continues but a pool of connections fills
    up. The growth is that slope times the warm time. Around this line the process fluctuates: nine tenths of its looks
    are in a band, and only growth beyond its width counts.
    """
    begin, end = looks[0].at, looks[-1].at
    warm = [each for each in looks if each.at >= begin + _WARM * (end - begin)]
    if len(warm) < _WINDOWS * _LOOKS:
        return None
    values, times = np.array([getattr(each, what) for each in warm], float), np.array([each.at for each in warm])
    levels, middles = ([float(np.median(part)) for part in np.array_split(of, _WINDOWS)] for of in (values, times))
    marks, half = list(zip(middles, levels, strict=True)), _WINDOWS // 2
    slope = min(_slope(marks), _slope(marks[:half]), _slope(marks[half:]))
    low, high = np.percentile(values - slope * times, (5, 95))
    growth = slope * float(times[-1] - times[0])
    return growth if growth > high - low else 0.0


def _slope(marks: Sequence[tuple[float, float]]) -> float:
    """The median of the slopes between any two of these (time, level)."""
    return float(np.median([(high - low) / (end - begin) for (begin, low), (end, high) in combinations(marks, 2)]))
