"""Stratified shares: each has its part of every stratum, as exactly as whole samples allow."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from mdsx.order.subset import hashed


def stratified_shares(strata: NDArray[np.uint64], edges: Sequence[Fraction], seed: int) -> NDArray[np.int64]:
    """Return which of the shares that end at `edges` has each sample; `len(edges) - 1` if none has.

    `strata`: 64 bits for each sample, equal in a stratum. The result depends on the samples' numbers and on nothing
    else: format-spec.md, 12.1, has the rule.
    """
    places = np.arange(len(strata))
    order = np.lexsort((places, hashed(places, seed), strata))
    _, sizes = np.unique(strata, return_counts=True)
    proportions = [high - low for low, high in pairwise(edges)]
    proportions.append(1 - edges[-1])  # of the samples that no share has
    owed = [Fraction(0)] * len(proportions)
    counts = np.array([_counts(size, proportions, owed) for size in sizes.tolist()], np.int64)
    found = np.empty(len(strata), np.int64)
    found[order] = np.repeat(np.tile(np.arange(len(proportions)), len(counts)), counts.reshape(-1))
    return found


def _counts(size: int, proportions: Sequence[Fraction], owed: list[Fraction]) -> list[int]:
    """Return how many samples of a stratum each share gets. `owed`: how many it lacks of the strata before; changed."""
    exact = [proportion * size for proportion in proportions]
    counts = [int(amount) for amount in exact]
    for share, amount in enumerate(exact):
        owed[share] += amount - counts[share]
    fractional = [share for share, amount in enumerate(exact) if amount.denominator > 1]
    fractional.sort(key=lambda share: (-owed[share], share))
    for share in fractional[: size - sum(counts)]:
        counts[share] += 1
        owed[share] -= 1
    return counts
