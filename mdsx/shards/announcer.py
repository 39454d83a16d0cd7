"""Announces when one reader of a view needs its shards, for all processes of the node to evict by."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mdsx.storage.cache import Announcement, CacheDirectory, Needs

_CHEAP = 1e-3  # seconds of processor time
_PAUSE = 50.0  # times as long as an announcement takes that is not cheap, until the next one


class Announcer(Protocol):
    """What a reader uses."""

    def announce(self, needs: Callable[[], Needs]) -> None:
        """Announce what `needs` returns. Threads may share it. With millions of shards, it does so only at times."""

    def withdraw(self) -> None:
        """Announce nothing any more."""


class Folder(NamedTuple):
    """The shards that a reader reads of one folder of a cache."""

    cache: CacheDirectory
    shards: NDArray[np.int64]  # their numbers in the needs
    heads: NDArray[np.uint64]  # sorted
    largest: int  # bytes


class CacheAnnouncer:
    """The announcer of the real caches. Threads may share it; processes may not."""

    def __init__(self, folders: Mapping[str, Folder]) -> None:
        self._folders = folders
        self._lock = threading.Lock()
        self._made: dict[str, Announcement | None] = {}
        self._ended = False
        self._next = 0.0  # monotonic

    def announce(self, needs: Callable[[], Needs]) -> None:
        if not self._folders or time.monotonic() < self._next:
            return
        with self._lock:
            if not self._made and not self._ended:
                self._make(needs())
            started = time.thread_time()
            found = needs()
            for name, announcement in self._made.items():
                if announcement is not None:
                    announcement.update(found[name].seconds[self._folders[name].shards], found[name].epoch)
            took = time.thread_time() - started
            if took > _CHEAP:
                self._next = time.monotonic() + _PAUSE * took

    def withdraw(self) -> None:
        with self._lock:
            self._ended = True
            for announcement in self._made.values():
                if announcement is not None:
                    announcement.withdraw()
            self._made.clear()

    def _make(self, needs: Needs) -> None:
        """Make the files. This is not cheap, but happens only once."""
        for name, folder in self._folders.items():
            self._made[name] = folder.cache.announce(name, folder.heads, folder.largest, needs)
