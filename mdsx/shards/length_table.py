"""The lengths of one dataset's samples as one table, which is filled in by shard.

Rules:
- A dataset that is read through the cache has its table there, mapped and shared by the node's processes. Otherwise,
  or if the cache has no room, the table is this process's memory.
- A mark for each shard is written after its lengths: their hash, and 0 where they are missing. A process checks the
  mark before it uses a shard's lengths. So it does not matter which processes write a shard's, or when one of them
  dies: they all write the same.
- Where a dataset is mapped in place, its file of lengths is the table, and its trailer has the marks.
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
    """The lengths of all samples: `lengths` (uint32 [n]), by the number of the sample. `firsts` (int64 [S]): that of
    the first sample of each shard; `known` (bool [S]): the shards whose lengths are there and were checked."""

    def __init__(self, identity: LengthIdentity, counts: NDArray[np.int64]) -> None:
        self._identity, self._counts = identity, counts
        self.firsts = np.cumsum(counts) - counts
        self.known = counts == 0
        self.lengths: NDArray[np.uint32] = np.zeros(0, STORED_LENGTH)
        self._marks: NDArray[np.uint64] | None = None
        self._cache: tuple[CacheDirectory, CacheKey] | None = None

    @classmethod
    def in_cache(cls, identity: LengthIdentity, index: StoredIndex, cache: CacheDirectory, url: str) -> LengthTable:
        """Return the table that the cache has, or makes now; one in memory if it has no room."""
        counts = index.counts
        marks, size = _MARK.itemsize * len(counts), STORED_LENGTH.itemsize * int(counts.sum())
        hasher = xxhash.xxh3_128(identity.digest.encode())
        hasher.update(index.raw_hashes.tobytes())  # some formats' fingerprints do not show other contents
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
        """Return the table that a local file of lengths is; one in memory if it was removed or replaced."""
        table = cls(identity, counts)
        try:
            table.lengths = np.frombuffer(map_whole(path), STORED_LENGTH, int(counts.sum()))
        except (MissingError, ValueError):
            return cls.in_memory(identity, counts)
        table._marks = trailer.hashes
        return table

    def missing(self, shards: Iterable[int]) -> list[int]:
        """Return those of `shards` whose lengths are not there, after looking for what other processes wrote."""
        missing = []
        for shard in shards:
            if not self.known[shard] and self._marks is not None:
                mark = int(self._marks[shard])
                self.known[shard] = mark != 0 and mark == self._identity.hash(shard, self.lengths[self._cut(shard)])
            if not self.known[shard]:
                missing.append(shard)
        return missing

    def put(self, found: Sequence[tuple[int, NDArray[np.uint32]]]) -> None:
        """Fill in the lengths of shards."""
        if not self._write(found):
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
