"""Which shards of a dataset have the samples of another one's shards, by the numbers of the samples in both."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from mdsx.order import NEVER

NextNeeds = Callable[[int, NDArray[np.int64] | None], NDArray[np.int64]]
"""(position, shards) -> the position at which each of them is needed next; None: all shards."""


class Join:
    """The shards of a joined dataset, its *side*, beside those of the dataset whose samples are located, its *main*.

    Both have the same samples, by number. `main` and `side` are their shards' numbers of samples.
    """

    def __init__(self, main: NDArray[np.int64], side: NDArray[np.int64]) -> None:
        self._main = np.concatenate((np.zeros(1, np.int64), np.cumsum(main)))
        self._side = np.concatenate((np.zeros(1, np.int64), np.cumsum(side)))

    def locate(self, shards: NDArray[np.int64], samples: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        """Return where the side has these samples of the main: shards, and numbers in them."""
        numbers = self._main[shards] + samples
        found = np.searchsorted(self._side, numbers, side="right") - 1
        return found, numbers - self._side[found]

    def overlaps(self) -> NDArray[np.int64]:
        """Return [2, S]: for each of the side's S shards, the first main shard with samples of it, and the one after
        the last."""
        first = np.searchsorted(self._main[1:], self._side[:-1], side="right")
        return np.stack((first, np.maximum(np.searchsorted(self._main[:-1], self._side[1:], side="left"), first)))


class SideNeeds:
    """When the shards of sides are needed: when any of the main shards is that they overlap.

    Main shards have the numbers before those of the sides. `overlaps`: int64 [2, sides], by those numbers; `unread`:
    main shards that are not read, since no column is.
    """

    def __init__(self, main: int, overlaps: Sequence[NDArray[np.int64]], unread: NDArray[np.bool_]) -> None:
        self._main, self._unread = main, unread
        self._overlaps = np.concatenate([np.zeros((2, 0), np.int64), *overlaps], axis=1)

    def next_needs(self, of_main: NextNeeds) -> NextNeeds:
        """Return the same as `of_main` for all shards."""
        if not self._overlaps.shape[1]:
            return of_main

        def of_all(position: int, shards: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
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
                needs[some] = np.minimum.reduceat(of_main(position, wanted)[places], begins[some])
            return needs

        return of_all

    def spread(self, main: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return bool [all shards]: those that are read with the main shards that are True in `main`."""
        if not self._overlaps.shape[1]:
            return main
        before = np.concatenate((np.zeros(1, np.int64), np.cumsum(main)))
        firsts, stops = self._overlaps
        return np.concatenate((main & ~self._unread, before[stops] > before[firsts]))
