"""The randomness of order version 1: a 64-bit hash, keys made with it, and permutations by sorting hashes.

All arithmetic is exact modulo 2^64, so that every language gets the same results. There is no random stream. The
finalizer is that of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

G = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio, made odd
_MASK = 2**64 - 1
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def mix64(x: int) -> int:
    """Apply SplitMix64's finalizer, a bijection of the integers below 2^64."""
    x = (x ^ (x >> 30)) * _FIRST & _MASK
    x = (x ^ (x >> 27)) * _SECOND & _MASK
    return x ^ (x >> 31)


def mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply `mix64` to each item of `x` in place, and return `x`."""
    x ^= x >> np.uint64(30)
    x *= np.uint64(_FIRST)
    x ^= x >> np.uint64(27)
    x *= np.uint64(_SECOND)
    x ^= x >> np.uint64(31)
    return x


def key(*parts: int) -> int:
    """Return the key of a sequence of uint64 numbers."""
    result = 0
    for part in parts:
        result = mix64((result + G + part) & _MASK)
    return result


def keys(parent: int, parts: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the keys of the sequence with key `parent`, continued with each of `parts`."""
    return mixed(parts.astype(np.uint64) + np.uint64((parent + G) & _MASK))


def sample_seeds(seed: int, epochs: NDArray[np.int64], positions: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the seed of the sample at each of `positions` of `epochs`: `key(seed, 8, epoch, position)`."""
    seeds = np.empty(len(positions), np.uint64)
    for epoch in np.unique(epochs).tolist():
        here = epochs == epoch
        seeds[here] = keys(key(seed, 8, epoch), positions[here])
    return seeds


def sort_keys(keys: NDArray[np.uint64], places: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the sort keys of permutations with `keys` at `places`, which broadcast. Distinct for distinct places."""
    return mixed((places.astype(np.uint64) + np.uint64(1)) * np.uint64(G) + keys)


def permutations(keys: NDArray[np.uint64], n: int) -> NDArray[np.int64]:
    """Return [len(keys), n]: the permutation of 0..n-1 by each key."""
    order: NDArray[np.int64] = np.argsort(sort_keys(keys[:, None], np.arange(n)), axis=1)  # no ties: any sort will do
    return order


def permutation(key: int, n: int) -> NDArray[np.int64]:
    """Return the permutation of 0..n-1 by `key`."""
    return permutations(np.array([key], np.uint64), n).ravel()
