"""The lengths of one dataset's samples in a table that is filled shard by shard.

Rules:
- If a dataset is read through the cache, the table is a file there, which the node's processes map and share.
  Otherwise, or if the cache has no room, the table is in this process's memory.
- After a shard's lengths, their hash is written as the shard's mark, which is 0 while they are missing. A process
  checks the mark before it uses a shard's lengths. So several processes may write the same shard's lengths, and may die
  at any time: all write the same.
- If a dataset and its index are mapped in place, the table is its file of lengths, whose trailer has the marks.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.errors import MissingError
from mdsx.format import STORED_LENGTH, LengthIdentity, LengthTrailer, StoredIndex
from mdsx.storage import map_whole
from mdsx.storage.cache import CacheDirectory, CacheKey, Verdict

_MARK = np.dtype("<u8")
_PATIENCE = 5.0  # seconds to wait for another process that makes the file
_PAUSE = 0.01


class LengthTable:
    """`lengths` (uint32 [n]): the lengths of all samples, by sample number. `firsts` (int64 [S]): the number of each
    shard's first sample. `known` (bool [S]): the shards whose lengths are present and checked."""

    def __init__(self, identity: LengthIdentity, counts: NDArray[np.int64]) -> None:
        self._identity, self._counts = identity, counts
        self.firsts = np.cumsum(counts) - counts
        self.known = counts == 0
        self.lengths: NDArray[np.uint32] = np.zeros(0, STORED_LENGTH)
        self._marks: NDArray[np.uint64] | None = None
        self._cache: tuple[CacheDirectory, CacheKey] | None = None

    @classmethod
    def in_cache(cls, identity: LengthIdentity, index: StoredIndex, cache: CacheDirectory, url: str) -> LengthTable:
        """Open or make the table in the cache. Return a table in memory if the cache has no room."""
        counts = index.counts
        marks, size = _MARK.itemsize * len(counts), STORED_LENGTH.itemsize * int(counts.sum())
        hasher = xxhash.xxh3_128(identity.digest.encode())
        hasher.update(index.raw_hashes.tobytes())  # some formats have one fingerprint for different contents
        key = CacheKey(identity.fingerprint, hasher.hexdigest(), marks + size, kind="lengths")
        deadline = time.monotonic() + _PATIENCE
        found = cache.fetch(key, None, source=url) if size else Verdict.NO_ROOM
        while found is Verdict.BUSY and time.monotonic() < deadline:
            time.sleep(_PAUSE)
            found = cache.fetch(key, None, source=url)
        if isinstance(found, Verdict):
            return cls.in_memory(identity, counts)
        table = cls(identity, counts)
        table._cache = cache, key
        table._marks = np.frombuffer(found, _MARK, len(counts))
        table.lengths = np.frombuffer(found, STORED_LENGTH, offset=marks)
        return table

    @classmethod
    def in_memory(cls, identity: LengthIdentity, counts: NDArray[np.int64]) -> LengthTable:
        table = cls(identity, counts)
        table.lengths = np.zeros(int(counts.sum()), STORED_LENGTH)
        return table

    @classmethod
    def in_place(
        cls, identity: LengthIdentity, counts: NDArray[np.int64], path: Path, trailer: LengthTrailer
    ) -> LengthTable:
        """Return a local file of lengths as a table. Return one in memory if the file was removed or replaced."""
        table = cls(identity, counts)
        try:
            table.lengths = np.frombuffer(map_whole(path), STORED_LENGTH, int(counts.sum()))
        except (MissingError, ValueError):
            return cls.in_memory(identity, counts)
        table._marks = trailer.hashes
        return table

    def missing(self, shards: Iterable[int]) -> list[int]:
        """Return those of `shards` whose lengths are missing, after checking what other processes have written."""
        missing = []
        for shard in shards:
            if not self.known[shard] and self._marks is not None:
                mark = int(self._marks[shard])
                self.known[shard] = mark != 0 and mark == self._identity.hash(shard, self.lengths[self._cut(shard)])
            if not self.known[shard]:
                missing.append(shard)
        return missing

    def put(self, found: Sequence[tuple[int, NDArray[np.uint32]]]) -> None:
        """Store the lengths of shards."""
        written = self._write(found)  # into another file than the mapped one, if the cache was removed meanwhile
        if not (written and all(np.array_equal(self.lengths[self._cut(shard)], lengths) for shard, lengths in found)):
            if not self.lengths.flags.writeable:
                self.lengths, self._marks, self._cache = self.lengths.copy(), None, None
            for shard, lengths in found:
                self.lengths[self._cut(shard)] = lengths
        for shard, _ in found:
            self.known[shard] = True

    def _write(self, found: Sequence[tuple[int, NDArray[np.uint32]]]) -> bool:
        if self._cache is None:
            return False
        (cache, key), start = self._cache, _MARK.itemsize * len(self._counts)
        pieces: list[tuple[int, bytes]] = []
        for shard, lengths in found:
            mark = np.array([self._identity.hash(shard, lengths)], _MARK)
            pieces.append((start + STORED_LENGTH.itemsize * int(self.firsts[shard]), lengths.tobytes()))
            pieces.append((_MARK.itemsize * shard, mark.tobytes()))
        return cache.write(key, pieces)

    def _cut(self, shard: int) -> slice:
        first = int(self.firsts[shard])
        return slice(first, first + int(self._counts[shard]))
