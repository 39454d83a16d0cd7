"""A shuffle buffer, as in WebDataset and Hugging Face's `datasets`.

It is filled with the first samples of a stream. Then each output is a random sample of the buffer, and the stream's
next sample takes its slot. At the end of the stream, the remaining samples come in random order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsx.order import key
from mdsx.simulate.orders import FOLLOWED, KEYS, ShardLine
from mdsx.simulate.permuted import drawn_below, permuted, shares

_CHUNK = 2**18  # outputs to search back at a time


class Buffer:
    """A stream of shards, in the order of `line`, through a buffer of `size` samples."""

    method = "buffer"

    def __init__(self, line: ShardLine, size: int, seed: int = 0) -> None:
        self.line, self.samples = line, line.samples
        self.held = self.size = max(1, min(size, self.samples))
        self.work = 8 * self.size if self.size <= FOLLOWED else 1
        self._slots, self._rest, self._gaps = (key(KEYS, 5, seed, part) for part in range(3))

    def numbers(self, start: int, stop: int) -> NDArray[np.int64]:
        if self.size > FOLLOWED and (start, stop) != (0, self.samples):
            return self.drawn(np.arange(start, stop))
        return self.line.numbers_at(self._items(start, stop))

    def drawn(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Draw how long ago a slot was filled, from a geometric distribution."""
        times = np.minimum(positions, self.samples - self.size)
        chance = 1 / self.size
        ago = np.ones(len(positions), np.int64)
        if self.size > 1:
            ago += np.floor(np.log(shares(self._gaps, positions)) / np.log1p(-chance)).astype(np.int64)
        slots = self._slots_at(positions)
        return self.line.numbers_at(np.where(ago > times, slots, times - ago + self.size))

    def _items(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the place in the stream of each output from `start` up to `stop`.

        The output at time t is the sample that took its slot last: at time u < t, it was the stream's item u + size. A
        slot that no output has freed still has its first item.
        """
        full = self.samples - self.size  # from then on, no sample takes a freed slot
        inside, first = max(0, min(stop, full) - start), min(start, full)
        slots = self._slots_at(np.arange(start, stop))
        last = np.full(stop - start, -1, np.int64)
        by_slot = np.argsort(slots, kind="stable")
        same = slots[by_slot][1:] == slots[by_slot][:-1]
        earlier, later = by_slot[:-1][same], by_slot[1:][same]
        freed = earlier < inside  # later outputs free no slot, and have each slot once
        last[later[freed]] = start + earlier[freed]
        missing = np.flatnonzero(last < 0)
        last[missing] = self._last_before(first, slots[missing])
        return np.where(last < 0, slots, last + self.size)

    def _slots_at(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        full = self.samples - self.size
        slots = drawn_below(self._slots, times, self.size)
        rest = np.flatnonzero(times >= full)
        slots[rest] = permuted(self._rest, times[rest] - full, self.size)
        return slots

    def _last_before(self, stop: int, slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the last time before `stop` at which each of `slots` was freed; -1 if never. They are distinct."""
        found = np.full(self.size, -1, np.int64)
        sought = np.zeros(self.size, np.bool_)
        sought[slots] = True
        left = len(slots)
        while stop > 0 and left:
            times = np.arange(max(0, stop - _CHUNK), stop)
            freed = drawn_below(self._slots, times, self.size)
            wanted = np.flatnonzero(sought[freed])
            found[freed[wanted]] = times[wanted]  # the last of several times stays
            sought[freed[wanted]] = False
            left = int(np.count_nonzero(sought[slots]))
            stop = int(times[0])
        return found[slots]
