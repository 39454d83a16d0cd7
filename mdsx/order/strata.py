"""Stratified shares: each gets its part of every stratum, as exactly as whole samples allow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from math import lcm
from operator import add

import numpy as np
from numpy.typing import NDArray

from mdsx.order.subset import hashed


def stratified_shares(
    strata: NDArray[np.uint64],
    nulls: NDArray[np.bool_],
    numbers: NDArray[np.int64],
    edges: Sequence[Fraction],
    seed: int,
) -> NDArray[np.int64]:
    """Return the number of each sample's share, of the shares that end at `edges`; `len(edges) - 1` if it is in none.

    `strata`: 64 bits for each sample, equal within a stratum. `nulls`: the samples without a value, a separate stratum.
    `numbers`: the samples' numbers in their dataset. The result depends only on these arguments: format-spec.md, 12.1,
    specifies it.
    """
    order = np.lexsort((numbers, hashed(numbers, seed), strata, ~nulls))
    strata, nulls = strata[order], nulls[order]
    first = np.ones(len(order), np.bool_)  # whether a sample is the first of its stratum
    first[1:] = (strata[1:] != strata[:-1]) | (nulls[1:] != nulls[:-1])
    sizes = np.diff(np.append(np.flatnonzero(first), len(order)))
    proportions = [high - low for low, high in pairwise(edges)]
    proportions.append(1 - edges[-1])  # of the samples in no share
    counts = np.array(list(_counts(sizes.tolist(), proportions)), np.int64)
    found = np.empty(len(order), np.int64)
    found[order] = np.repeat(np.tile(np.arange(len(proportions)), len(counts)), counts.reshape(-1))
    return found


def _counts(sizes: Sequence[int], proportions: Sequence[Fraction]) -> Iterator[list[int]]:
    """Yield how many samples of each stratum the shares get."""
    whole = lcm(*(proportion.denominator for proportion in proportions))
    parts = [int(proportion * whole) for proportion in proportions]
    owed = [0] * len(parts)  # how much each share lacks from earlier strata, in parts of `whole`
    known = dict[int, tuple[list[int], list[int], list[int]]]()  # by size: whole samples, rests, shares with a rest
    for size in sizes:
        if size not in known:
            certain, rests = map(list, zip(*(divmod(part * size, whole) for part in parts), strict=True))
            known[size] = certain, rests, [share for share, rest in enumerate(rests) if rest]
        certain, rests, able = known[size]
        counts = certain.copy()
        if able:
            owed = list(map(add, owed, rests))
            for share in sorted(able, key=owed.__getitem__, reverse=True)[: sum(rests) // whole]:
                counts[share] += 1
                owed[share] -= whole
        yield counts
