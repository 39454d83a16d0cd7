"""Which shards leave first: those needed last. Pure.

A process that reads a dataset in order knows when each of its shards is needed next, whatever the pace: it has a
`Foresight` of them. Of other files it knows the access time, which is the time of the next need (in the future)
or of the last use (in the past); what is furthest from now, either way, is needed last as far as anyone can tell. A
`.part` goes before all of them: if it can be evicted, its maker is dead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from mdsx.storage.cache import filenames


class Cached(NamedTuple):
    """A file of the cache as a scan found it. `needed`: its access time, in seconds."""

    path: str
    size: int
    needed: float


class Foresight(Protocol):
    """What a process knows of one dataset's shards. Called with the cache's lock held: it must not wait."""

    def needs(self, raw_hashes: Sequence[str]) -> Sequence[int | None]:
        """The position from which on each of these shards is needed next; None for one that it knows nothing of."""

    def seconds_to(self, position: int) -> float:
        """Until the run reaches that position, at its present pace; 0 where it was reached."""


Foresights = Mapping[str, Foresight]  # by fingerprint


class Candidate(NamedTuple):
    """A file that may be evicted: how far away its next need was when it was looked at, and the need's position."""

    distance: float
    file: Cached
    position: int | None


def candidates(files: Iterable[Cached], now: float, foresights: Foresights) -> list[Candidate]:
    """`files`, the last to evict first; ties by name, so that processes agree."""
    by_dataset: dict[str, list[Cached]] = {}
    for file in files:
        by_dataset.setdefault(_fingerprint(file), []).append(file)
    found = []
    for fingerprint, members in by_dataset.items():
        needs: Sequence[int | None] = [None] * len(members)
        if (foresight := foresights.get(fingerprint)) is not None:
            needs = foresight.needs([filenames.raw_hash(file.path) for file in members])
        for file, position in zip(members, needs, strict=True):
            found.append(Candidate(_distance(file, position, now, foresight), file, position))
    found.sort()
    return found


def distance(candidate: Candidate, now: float, foresights: Foresights) -> float:
    """Seconds between now and the file's next need, or its last use; infinite for a `.part`."""
    _, file, position = candidate
    return _distance(file, position, now, foresights.get(_fingerprint(file)))


def _distance(file: Cached, position: int | None, now: float, foresight: Foresight | None) -> float:
    if foresight is not None and position is not None:
        return foresight.seconds_to(position)
    return math.inf if filenames.is_unfinished(file.path) else abs(now - file.needed)


def _fingerprint(file: Cached) -> str:
    return file.path.rsplit("/", 2)[-2] if "/" in file.path else ""


def may_evict(distance: float, needed_in: float) -> bool:
    """Whether a shard that is needed in `needed_in` seconds (0: now) may take the place of one at that distance."""
    return needed_in <= 0 or distance > needed_in
