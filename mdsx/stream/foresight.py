"""What a run knows of the future: when each shard is needed next. By it a process judges what may leave the cache.

Needs are positions of the order, so which of two shards is needed later is exact, whatever the pace. The pace turns
them into seconds, to compare them with the shards of other jobs that share the cache.
"""

from __future__ import annotations

import re
import weakref
from collections import deque
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mdsx.order import Course
from mdsx.shards import View

_HASH = re.compile("[0-9a-f]{32}")
_EPOCH = 3600.0  # seconds that an epoch is taken to last, before the first positions were reached


class Pace:
    """Where a run stands, and how fast it goes: over the last epoch or half of it, as batches are made in bursts."""

    def __init__(self, samples: int) -> None:
        self._samples = max(samples, 1)
        self._marks: deque[tuple[int, float]] = deque(maxlen=2)
        self._rate = self._samples / _EPOCH
        self.position = 0

    def reached(self, position: int, now: float) -> None:
        """The run stands at `position`, which counts on over the epochs, at the time `now`, in seconds."""
        if not 0 <= position - self.position <= self._samples:  # set_epoch, or a state was loaded
            self._marks.clear()
        if not self._marks or 2 * (position - self._marks[-1][0]) >= self._samples:
            self._marks.append((position, now))
        first, since = self._marks[0]
        if now > since and position > first:
            self._rate = (position - first) / (now - since)
        self.position = position

    def seconds_to(self, position: int) -> float:
        """Until the run reaches that position; 0 where it did."""
        return max(position - self.position, 0) / self._rate


_paces: weakref.WeakKeyDictionary[Course, Pace] = weakref.WeakKeyDictionary()


def pace_of(course: Course) -> Pace:
    """The pace of this process's run: of all readers of a course, as each epoch may have one of its own."""
    return _paces.setdefault(course, Pace(course.samples))


class DatasetForesight:
    """What is known of one dataset, whose shards a view shows from each of the numbers `firsts` on."""

    def __init__(self, course: Course, pace: Pace, raw_hashes: NDArray[np.uint8], firsts: Sequence[int]) -> None:
        """`raw_hashes`: uint8 [shards, 16]."""
        self._course, self._pace, self._hashes, self._firsts = course, pace, raw_hashes, firsts

    def needs(self, raw_hashes: Sequence[str]) -> Sequence[int | None]:
        """See mdsx.storage.cache.Foresight."""
        needs = self._course.next_needs(self._pace.position)
        if needs is None:
            return [None] * len(raw_hashes)
        numbers = self._numbers(raw_hashes)
        first = np.min([needs[firsts:][numbers] for firsts in self._firsts], axis=0)
        return [need if number >= 0 else None for number, need in zip(numbers.tolist(), first.tolist(), strict=True)]

    def seconds_to(self, position: int) -> float:
        """See mdsx.storage.cache.Foresight."""
        return self._pace.seconds_to(position)

    def _numbers(self, raw_hashes: Sequence[str]) -> NDArray[np.int64]:
        """int64 [n]: the numbers of the shards with these hashes, -1 where there is none."""
        by_head, sorted_heads = self._by_head
        if not len(by_head):
            return np.full(len(raw_hashes), -1)
        names = [name if _HASH.fullmatch(name) else "0" * 32 for name in raw_hashes]
        hashes = np.frombuffer(bytes.fromhex("".join(names)), np.uint8).reshape(-1, 16)
        places = np.minimum(np.searchsorted(sorted_heads, _heads(hashes)), len(by_head) - 1)
        numbers = by_head[places]
        return np.where((self._hashes[numbers] == hashes).all(axis=1), numbers, -1)

    @cached_property
    def _by_head(self) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """The shards in the order of the first 8 bytes of their hashes, and those."""
        heads = _heads(self._hashes)
        by_head = np.argsort(heads)
        return by_head, heads[by_head]


def _heads(hashes: NDArray[np.uint8]) -> NDArray[np.uint64]:
    return np.ascontiguousarray(hashes[:, :8]).view(np.uint64).ravel()


def foresee(view: View, course: Course, pace: Pace) -> list[DatasetForesight]:
    """Tell the caches of `view` what the run knows, for as long as the result is kept."""
    indexes = {
        excerpt.shards.index.fingerprint: excerpt.shards.index
        for excerpt in view.excerpts
        if excerpt.shards.cache is not None
    }
    kept = []
    for fingerprint, index in indexes.items():
        places = zip(view.excerpts, view.firsts[:-1].tolist(), strict=True)
        firsts = [first for excerpt, first in places if excerpt.shards.index.fingerprint == fingerprint]
        kept.append(DatasetForesight(course, pace, index.raw_hashes, firsts))
        for excerpt in view.excerpts:
            if excerpt.shards.cache is not None:
                excerpt.shards.cache.foresee(fingerprint, kept[-1])
    return kept
