"""Whether a process keeps growing: its memory, file handles and threads, sampled now and then."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import psutil
from numpy.typing import NDArray

_WARM = 0.4  # of the watched time: growth in it may be a cache that fills
_WINDOWS = 8  # of the time after that, whose medians are compared
_LOOKS = 3  # in each window; fewer say nothing

MOST: Mapping[str, float] = {"memory": 24 * 2**20, "handles": 4, "threads": 4}
"""What a process may grow by once it is warm, if that exceeds its fluctuation."""

HIGHEST: Mapping[str, int] = {"handles": 400, "threads": 120}
"""What no process may have at any time."""


class Look(NamedTuple):
    """A process at `at` seconds: `memory` are its resident bytes."""

    at: float
    memory: int
    handles: int
    threads: int


def look(pid: int, at: float) -> Look | None:
    """Return None if the process has ended."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        return Look(at, process.memory_info().rss, process.num_fds(), process.num_threads())
    return None


class Watched:
    def __init__(self) -> None:
        self._looks: dict[str, list[Look]] = defaultdict(list)

    def add(self, title: str, found: Look | None) -> None:
        if found is not None:
            self._looks[title].append(found)

    def highest(self, what: str) -> dict[str, int]:
        return {title: max(getattr(each, what) for each in looks) for title, looks in self._looks.items()}

    def growth(self, what: str, least: float) -> dict[str, float]:
        """The growth of each process that was watched for at least `least` seconds."""
        long = {title: looks for title, looks in self._looks.items() if looks[-1].at - looks[0].at >= least}
        found = {title: grown(looks, what) for title, looks in long.items()}
        return {title: value for title, value in found.items() if value is not None}

    def problems(self, least: float) -> list[str]:
        grew = [
            f"{title}: its {what} grew by {value:,.0f}"
            for what, most in MOST.items()
            for title, value in self.growth(what, least).items()
            if value > most
        ]
        return grew + [
            f"{title}: it had {value} {what}"
            for what, most in HIGHEST.items()
            for title, value in self.highest(what).items()
            if value > most
        ]


def grown(looks: Sequence[Look], what: str) -> float | None:
    """Return how much a process grew once it was warm: 0 if less than its fluctuation, None if there are few looks.

    The warm time is cut into windows. The slope is the median of the slopes between the medians of any two windows: of
    the first half, the second half, or all, whichever is least, since a leak continues but a pool of connections fills
    up. The growth is that slope times the warm time. Around this line the process fluctuates: nine tenths of its looks
    are in a band, and only growth beyond its width counts.
    """
    begin, end = looks[0].at, looks[-1].at
    warm = [(each.at, getattr(each, what)) for each in looks if each.at >= begin + _WARM * (end - begin)]
    if len(warm) < _WINDOWS * _LOOKS:
        return None
    marks = [np.median(window, axis=0) for window in np.array_split(np.array(warm), _WINDOWS)]
    slope = min(map(_slope, (marks, marks[: _WINDOWS // 2], marks[_WINDOWS // 2 :])))
    times, values = np.array(warm).T
    low, high = np.percentile(values - slope * times, (5, 95))
    growth = slope * float(times[-1] - times[0])
    return growth if growth > high - low else 0.0


def _slope(marks: Sequence[NDArray[np.float64]]) -> float:
    """The median of the slopes between any two of these (time, level)."""
    return float(np.median([(high - low) / (end - begin) for (begin, low), (end, high) in combinations(marks, 2)]))
