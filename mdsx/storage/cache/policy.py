"""Which shards leave first: those needed last. Pure.

A process that reads a dataset in order gives the cache a `ShardNeeds` of each dataset. For other files the cache uses
the access time, which is the time of the next need (in the future) or of the last use (in the past). The file furthest
from now, either way, is probably needed last. A `.part` is evicted before all of them: if it can be locked, its maker
is dead.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.storage.cache import filenames

_HASH = re.compile("[0-9a-f]{32}")


class Cached(NamedTuple):
    """A file of the cache as a scan found it. `needed`: its access time, in seconds."""

    path: str
    size: int
    needed: float


class ShardNames:
    """The shards of a dataset by the names of their files."""

    def __init__(self, raw_hashes: NDArray[np.uint8]) -> None:
        """`raw_hashes`: uint8 [shards, 16]."""
        self._hashes = raw_hashes
        heads = _heads(raw_hashes)
        self._by_head = np.argsort(heads)
        self._sorted_heads = heads[self._by_head]

    def numbers(self, raw_hashes: Sequence[str]) -> NDArray[np.int64]:
        """Return int64 [n]: the numbers of the shards with these hashes, -1 if there is none."""
        if not len(self._by_head):
            return np.full(len(raw_hashes), -1)
        names = [name if _HASH.fullmatch(name) else "0" * 32 for name in raw_hashes]
        hashes = np.frombuffer(bytes.fromhex("".join(names)), np.uint8).reshape(-1, 16)
        places = np.minimum(np.searchsorted(self._sorted_heads, _heads(hashes)), len(self._by_head) - 1)
        numbers = self._by_head[places]
        return np.where((self._hashes[numbers] == hashes).all(axis=1), numbers, -1)


def _heads(hashes: NDArray[np.uint8]) -> NDArray[np.uint64]:
    return np.ascontiguousarray(hashes[:, :8]).view(np.uint64).ravel()


class ShardNeeds(NamedTuple):
    """When a process needs each shard of a dataset next, in seconds from now. 0: it needs it now."""

    names: ShardNames
    seconds: NDArray[np.float64]

    def of(self, raw_hashes: Sequence[str]) -> list[float | None]:
        """Return the seconds of each of these shards; None for one that the dataset does not have."""
        numbers = self.names.numbers(raw_hashes)
        if not len(self.seconds):
            return [None] * len(raw_hashes)
        seconds = self.seconds[numbers].tolist()
        return [known if number >= 0 else None for number, known in zip(numbers.tolist(), seconds, strict=True)]


Needs = Mapping[str, ShardNeeds]
"""By fingerprint."""


class Candidate(NamedTuple):
    """A file that may be evicted, and the seconds to its next need or from its last use when it was scanned."""

    distance: float
    file: Cached
    known: bool  # from the process's needs


def candidates(files: Iterable[Cached], now: float, needs: Needs) -> list[Candidate]:
    """Return `files`, the last to evict first; ties by name, so that processes agree."""
    by_dataset: dict[str, list[Cached]] = {}
    for file in files:
        by_dataset.setdefault(_fingerprint(file), []).append(file)
    found = []
    for fingerprint, members in by_dataset.items():
        known: Sequence[float | None] = [None] * len(members)
        if fingerprint in needs:
            known = needs[fingerprint].of([filenames.raw_hash(file.path) for file in members])
        for file, seconds in zip(members, known, strict=True):
            distance = _distance(file, now) if seconds is None else seconds
            found.append(Candidate(distance, file, seconds is not None))
    found.sort()
    return found


def _distance(file: Cached, now: float) -> float:
    return math.inf if filenames.is_unfinished(file.path) else abs(now - file.needed)


def _fingerprint(file: Cached) -> str:
    return file.path.rsplit("/", 2)[-2] if "/" in file.path else ""


def may_evict(distance: float, needed_in: float) -> bool:
    """Return whether a shard that is needed in `needed_in` seconds (0: now) may replace one at that distance."""
    return needed_in <= 0 or distance > needed_in
