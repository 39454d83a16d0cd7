"""Choose some samples of a dataset, by number or by fraction, as a pure function: nothing is stored.

A fraction is chosen by a hash of each sample's number. So it stays the same when samples are appended, or when the
dataset is rewritten with other shards. A subset keeps the numbers of shards, but has fewer samples in each.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mdsx.errors import UsageError
from mdsx.order.draws import Weight, exact_weight
from mdsx.order.hashing import key, sort_keys
from mdsx.order.limits import MAX_SAMPLES, MAX_UINT64, integer, integers

_MODULUS = 2**64
_KEPT = 256  # shards whose chosen samples' numbers are kept in memory
_CHUNK = 2**20  # samples to hash at once
_NEAR = Fraction(1, 2**40)


class Subset(Protocol):
    """The chosen samples of each shard, in order."""

    counts: NDArray[np.int64]
    name: str  # identifies the choice, for the fingerprint; empty for all samples

    def samples(self, shard: int, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the stored numbers of the subset's samples `numbers` of `shard`."""
        ...


class AllSamples:
    """All samples of shards with `counts` samples."""

    name = ""

    def __init__(self, counts: ArrayLike) -> None:
        self.counts = integers(counts, "counts", MAX_SAMPLES)

    def samples(self, shard: int, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        return numbers


class _Slice:
    """Samples `start` up to `stop` of another subset, by their numbers in it."""

    def __init__(self, subset: Subset, start: int, stop: int) -> None:
        ends = np.cumsum(subset.counts)
        begins = ends - subset.counts
        self._subset = subset
        self._firsts = np.clip(start - begins, 0, subset.counts)
        self.counts = np.clip(stop - begins, 0, subset.counts) - self._firsts
        self.name = _joined(subset.name, start, stop)

    def samples(self, shard: int, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._subset.samples(shard, numbers + self._firsts[shard])


class _Fraction:
    """The samples of another subset whose hash is between two fractions of 2^64."""

    def __init__(self, subset: Subset, firsts: NDArray[np.int64], low: int, high: int, seed: int) -> None:
        self._subset = subset
        self._firsts = firsts  # the dataset's number of each shard's first stored sample
        self._low, self._high, self._seed = low, high, seed
        self._kept: dict[int, NDArray[np.int64]] = {}
        self.counts = np.array([self._count(shard) for shard in range(len(subset.counts))], np.int64)
        self.name = f"{subset.name} {low:016x}-{high:016x}@{seed}".strip()

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_kept": {}}

    def samples(self, shard: int, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        kept = self._kept.get(shard)
        if kept is None:
            chunks = [self._chosen(shard, start) for start in self._chunks(shard)]
            kept = np.concatenate(chunks) if chunks else np.zeros(0, np.int64)
            for oldest in list(self._kept)[: max(len(self._kept) + 1 - _KEPT, 0)]:
                self._kept.pop(oldest, None)  # another thread may have been faster
            self._kept[shard] = kept
        return kept[numbers]

    def _count(self, shard: int) -> int:
        return sum(len(self._chosen(shard, start)) for start in self._chunks(shard))

    def _chunks(self, shard: int) -> range:
        return range(0, int(self._subset.counts[shard]), _CHUNK)

    def _chosen(self, shard: int, start: int) -> NDArray[np.int64]:
        stop = min(start + _CHUNK, int(self._subset.counts[shard]))
        stored = self._subset.samples(shard, np.arange(start, stop))
        hashes = hashed(stored + self._firsts[shard], self._seed)
        if self._low < _MODULUS <= self._high:
            return stored[hashes >= np.uint64(self._low)]
        return stored[(hashes >= np.uint64(self._low % _MODULUS)) & (hashes < np.uint64(self._high % _MODULUS))]


def _joined(name: str, start: int, stop: int) -> str:
    """Return the name of samples `start` to `stop` of the subset `name`."""
    if start == stop:
        return "0:0"
    before, _, last = name.rpartition(" ")
    if match := re.fullmatch(r"(\d+):\d+", last):
        start, stop, name = start + int(match[1]), stop + int(match[1]), before
    return f"{name} {start}:{stop}".strip()


def select_run(subset: Subset, start: int, stop: int) -> Subset:
    """Return samples `start` to `stop` of `subset`; `subset` itself if these are all."""
    size = int(subset.counts.sum())
    stop = integer(stop, "stop", 0, size)
    start = integer(start, "start", 0, stop)
    return subset if stop - start == size else _Slice(subset, start, stop)


def select_fraction(subset: Subset, stored: NDArray[np.int64], start: Weight, stop: Weight, seed: int) -> Subset:
    """Return the samples of `subset` whose hash, as a fraction of 1, is at least `start` and below `stop`.

    Adjacent intervals share no sample and skip none. `stored`: the number of samples stored in each shard. This takes
    about 10 ns for each sample.
    """
    low, high = exact_weight(start, "start"), exact_weight(stop, "stop")
    if not low <= high <= 1:
        raise UsageError("fractions must be between 0 and 1, start before stop", found=f"{start} to {stop}")
    seed = integer(seed, "seed", 0, MAX_UINT64)
    firsts = np.cumsum(stored) - stored
    return _Fraction(subset, firsts, _point(low), _point(high), seed)


def share_edges(shares: Sequence[Weight]) -> list[Fraction]:
    """Return where the shares end. The first begins at 0, and each later one where the one before ends.

    Shares are numbers of at least 0. A sum within 2^-40 of 1 counts as 1, since 0.9 + 0.1 is more than 1 in binary.
    Raise UsageError if it is larger.
    """
    edges, end = [Fraction(0)], Fraction(0)
    for number, share in enumerate(shares):
        end += exact_weight(share, f"share {number}")
        edges.append(Fraction(1) if abs(end - 1) < _NEAR else end)
    if edges[-1] > 1:
        hint = "give shares that add up to at most 1, such as split(0.9, 0.1)"
        raise UsageError("the shares add up to more than 1", found=f"{float(end):g}", expected="at most 1", hint=hint)
    return edges


def shares_of(hashes: NDArray[np.uint64], edges: Sequence[Fraction], seed: int) -> NDArray[np.int64]:
    """Return the number of each value's share, of the shares that end at `edges`; `len(edges) - 1` if it is in none.
    `hashes`: the values' 64-bit hashes."""
    points = np.array([point for point in map(_point, edges) if point < _MODULUS], np.uint64)
    return np.searchsorted(points, hashed(hashes, seed), side="right") - 1


def hashed(places: NDArray[Any], seed: int) -> NDArray[np.uint64]:
    """Return the hashes that choose samples, from their numbers or from hashes of their values."""
    return sort_keys(np.array([key(seed, 6)], np.uint64), places)


def _point(fraction: Fraction) -> int:
    return int(fraction * _MODULUS)
