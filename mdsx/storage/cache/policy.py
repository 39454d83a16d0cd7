"""Which shards leave first: those needed last. Pure.

A file's modification time is the time of its next need (in the future) or of its last use (in the past); what is
furthest from now, either way, is needed last as far as anyone can tell. A `.part` goes before all of them: if it can be
evicted, its maker is dead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

PART = ".part"


class Cached(NamedTuple):
    """A file of the cache as a scan found it. `mtime` in seconds."""

    path: Path
    size: int
    mtime: float


def eviction_order(files: Iterable[Cached], now: float) -> list[Cached]:
    """`files`, the first to evict first; ties by name, so that processes agree."""
    return sorted(files, key=lambda file: (-distance(file, now), str(file.path)))


def distance(file: Cached, now: float) -> float:
    """Seconds between now and the file's next need or last use; infinite for a `.part`."""
    return math.inf if file.path.suffix == PART else abs(now - file.mtime)


def may_evict(file: Cached, now: float, needed_in: float) -> bool:
    """Whether a shard that is needed in `needed_in` seconds (0: now) may take the place of `file`."""
    return needed_in <= 0 or distance(file, now) > needed_in
