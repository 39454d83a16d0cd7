"""When the shards of a view are needed next, those of joined datasets included, and announcing it to the node.

A joined dataset, a *side*, has the same samples, by number, as its *main* dataset, but in other shards.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mdsx.order import NEVER, Tick
from mdsx.storage.cache import Announcement, CacheDirectory, Needs

_CHEAP = 1e-3  # seconds of processor time
_PAUSE = 50.0  # after an announcement that was not cheap: pause, as a multiple of the time that it took

NextNeeds = Callable[[Tick, NDArray[np.int64] | None], NDArray[np.int64]]
"""(position, shards) -> the position at which each of these shards, or with None every shard, is needed next."""


class Join:
    """How the shards of a side correspond to those of its main dataset.

    Both have the same samples, by number. `main` and `side`: the number of samples in each of their shards.
    """

    def __init__(self, main: NDArray[np.int64], side: NDArray[np.int64]) -> None:
        self._main = np.concatenate((np.zeros(1, np.int64), np.cumsum(main)))
        self._side = np.concatenate((np.zeros(1, np.int64), np.cumsum(side)))

    def locate(self, shards: NDArray[np.int64], samples: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        """Locate samples of the main dataset in the side: shards, and sample numbers in them."""
        numbers = self._main[shards] + samples
        found = np.searchsorted(self._side, numbers, side="right") - 1
        return found, numbers - self._side[found]

    def overlaps(self) -> NDArray[np.int64]:
        """Return [2, S]: for each of the side's S shards, the first main shard with its samples, and the one after the
        last."""
        first = np.searchsorted(self._main[1:], self._side[:-1], side="right")
        return np.stack((first, np.maximum(np.searchsorted(self._main[:-1], self._side[1:], side="left"), first)))


class SideNeeds:
    """When the shards of sides are needed: whenever a main shard is that they overlap.

    Main shards are numbered before those of the sides. `overlaps`: int64 [2, side shards], main shard numbers;
    `unread`: main shards that are not read, because none of their columns is.
    """

    def __init__(self, main: int, overlaps: Sequence[NDArray[np.int64]], unread: NDArray[np.bool_]) -> None:
        self._main, self._unread = main, unread
        self._overlaps = np.concatenate([np.zeros((2, 0), np.int64), *overlaps], axis=1)

    def next_needs(self, of_main: NextNeeds) -> NextNeeds:
        """Extend `of_main` to all shards."""
        if not self._overlaps.shape[1]:
            return of_main

        def of_all(tick: Tick, shards: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
            if shards is None:
                shards = np.arange(self._main + self._overlaps.shape[1])
            is_main = shards < self._main
            firsts, stops = shards.copy(), shards + 1
            firsts[~is_main], stops[~is_main] = self._overlaps[:, shards[~is_main] - self._main]
            sizes = stops - firsts
            begins = np.cumsum(sizes) - sizes
            drawn = np.arange(int(sizes.sum())) + np.repeat(firsts - begins, sizes)
            wanted, places = np.unique(drawn, return_inverse=True)
            needs, some = np.full(len(shards), NEVER), sizes > 0
            if len(drawn):
                needs[some] = np.minimum.reduceat(of_main(tick, wanted)[places], begins[some])
            return needs

        return of_all

    def spread(self, main: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return bool [all shards]: the shards that are read with the main shards marked in `main`."""
        if not self._overlaps.shape[1]:
            return main
        before = np.concatenate((np.zeros(1, np.int64), np.cumsum(main)))
        firsts, stops = self._overlaps
        return np.concatenate((main & ~self._unread, before[stops] > before[firsts]))


# --- announcements, by which all processes of the node evict


class Announcer(Protocol):
    """Announces to the node when a reader needs shards."""

    def announce(self, needs: Callable[[], Needs]) -> None:
        """Announce the result of `needs`. Threads may share it. With millions of shards, some calls do nothing."""

    def withdraw(self) -> None:
        """Withdraw the announcement."""


class Folder(NamedTuple):
    """A reader's shards in one folder of a cache."""

    cache: CacheDirectory
    shards: NDArray[np.int64]  # their indices in the needs
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
            if self._ended:
                return
            if not self._made:
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
        """Make the files. This is slow, but happens only once."""
        for name, folder in self._folders.items():
            self._made[name] = folder.cache.announce(name, folder.heads, folder.largest, needs)
