"""Announces when one reader of a view needs its shards, for all processes of the node to evict by."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mdsx.storage.cache import Announcement, CacheDirectory, Needs


class Announcer(Protocol):
    """What a reader uses."""

    def announce(self, needs: Needs) -> None:
        """Announce `needs`. Threads may share it."""

    def withdraw(self) -> None:
        """Announce nothing any more."""


class Folder(NamedTuple):
    """The shards that a reader reads of one folder of a cache."""

    cache: CacheDirectory
    shards: NDArray[np.int64]  # their numbers in the needs
    heads: NDArray[np.uint64]  # sorted


class CacheAnnouncer:
    """The announcer of the real caches. Threads may share it; processes may not."""

    def __init__(self, folders: Mapping[str, Folder]) -> None:
        self._folders = folders
        self._lock = threading.Lock()
        self._made: dict[str, Announcement | None] = {}
        self._ended = False

    def announce(self, needs: Needs) -> None:
        with self._lock:
            for name, folder in self._folders.items():
                if name not in self._made and not self._ended:
                    self._made[name] = folder.cache.announce(name, folder.heads)
                announcement = self._made.get(name)
                if announcement is not None:
                    announcement.update(needs[name].seconds[folder.shards], needs[name].epoch)

    def withdraw(self) -> None:
        with self._lock:
            self._ended = True
            for announcement in self._made.values():
                if announcement is not None:
                    announcement.withdraw()
            self._made.clear()
