"""Permutations that can compute single items, for the shuffles with which mdsx is compared.

mdsx's own order sorts hashes instead. That is a better permutation, but it needs all items at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsx.order import G, keys, mix64, mixed

_ROUNDS = 4
_MULTIPLIERS = tuple(np.uint64(mix64(G + number) | 1) for number in range(_ROUNDS))
_MASK = 2**64 - 1
_CHUNK = 2**16


def permuted(key: int | NDArray[np.uint64], places: NDArray[np.int64], n: int | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the items at `places` of the permutation of 0..n-1 by `key`. Keys and sizes broadcast against places.

    A few rounds of adding, multiplying and shifting permute the numbers below the next power of 2. A number that is not
    below `n` is permuted again until it is.
    """
    found = places.astype(np.uint64)
    if isinstance(n, int) and isinstance(key, int):
        for start in range(0, len(found) if n > 1 else 0, _CHUNK):  # a chunk stays in the processor's cache
            _permute(found[start : start + _CHUNK], _rounds_of(key), n)
    else:
        sizes = np.broadcast_to(np.asarray(n, np.uint64), places.shape)
        _permute_each(found, np.broadcast_to(np.asarray(key, np.uint64), places.shape), sizes)
    return found.view(np.int64)


def permutation_of(key: int, n: int) -> NDArray[np.int64]:
    """Return the whole permutation, as int64 [n]."""
    return permuted(key, np.arange(n), n)


def drawn_below(key: int, places: NDArray[np.int64], n: int | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a number from 0 to n-1 for each of `places`; numbers may repeat."""
    drawn: NDArray[np.int64] = (keys(key, places) % np.asarray(n, np.uint64)).astype(np.int64)
    return drawn


def shares(key: int, places: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return a float above 0 and below 1 for each of `places`."""
    return ((keys(key, places) >> np.uint64(12)).astype(np.float64) + 0.5) / 2**52


def _rounds_of(key: int) -> list[np.uint64]:
    """Return the number that each round adds."""
    adding = [mix64((key + G) & _MASK)]
    while len(adding) < _ROUNDS:
        adding.append(mix64((adding[-1] + G) & _MASK))
    return [np.uint64(number) for number in adding]


def _permute(x: NDArray[np.uint64], adding: list[np.uint64], n: int) -> None:
    """Permute the numbers below `n` in place."""
    bits = (n - 1).bit_length()
    mask, half = np.uint64(2**bits - 1), np.uint64((bits + 1) // 2)
    todo: NDArray[np.int64] | slice = slice(None)
    while True:
        part = x[todo]
        for more, multiplier in zip(adding, _MULTIPLIERS, strict=True):
            part = (part + more) * multiplier & mask
            part ^= part >> half
        x[todo] = part
        todo = np.flatnonzero(x >= np.uint64(n))
        if not len(todo):
            return


def _permute_each(x: NDArray[np.uint64], own: NDArray[np.uint64], sizes: NDArray[np.uint64]) -> None:
    """Permute each number below its own size, with its own key, in place."""
    todo = np.flatnonzero(sizes > 1)
    while len(todo):
        bits = np.ceil(np.log2(sizes[todo].astype(np.float64))).astype(np.uint64)
        mask, half = (np.uint64(1) << bits) - np.uint64(1), (bits + np.uint64(1)) >> np.uint64(1)
        part, adding = x[todo], own[todo]
        for multiplier in _MULTIPLIERS:
            adding = mixed(adding + np.uint64(G))
            part = (part + adding) * multiplier & mask
            part ^= part >> half
        x[todo] = part
        todo = todo[part >= sizes[todo]]
