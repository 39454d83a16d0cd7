"""Samples that a run leaves out from some tick on. They keep their positions in the order, which have no items then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class LeftOut(NamedTuple):
    """The samples that are left out of a component."""

    numbers: NDArray[np.int64]
    """Numbers of samples in the component."""
    since: NDArray[np.int64]
    """For each sample, the first tick at which it is left out."""


class Excluded:
    """The samples that are left out of a run. Shards are numbered component by component."""

    def __init__(self, counts: NDArray[np.int64], firsts: NDArray[np.int64], left_out: Mapping[int, LeftOut]) -> None:
        """`counts`: the number of samples in each shard; `firsts` [components + 1]: the number of each component's
        first shard."""
        edges = np.append(0, np.cumsum(counts))
        self._edges = edges[:-1]
        begins = edges[firsts]
        numbers = np.concatenate([np.zeros(0, np.int64), *(own.numbers + begins[at] for at, own in left_out.items())])
        since = np.concatenate([np.zeros(0, np.int64), *(own.since for own in left_out.values())])
        order = np.argsort(numbers)
        self._numbers, self._since = numbers[order], since[order]

    def kept(
        self, ticks: NDArray[np.int64], shards: NDArray[np.int64], samples: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Return which of the samples at these ticks are read."""
        if not len(self._numbers):
            return np.ones(len(ticks), np.bool_)
        numbers = self._edges[shards] + samples
        at = np.minimum(np.searchsorted(self._numbers, numbers), len(self._numbers) - 1)
        kept: NDArray[np.bool_] = (self._numbers[at] != numbers) | (ticks < self._since[at])
        return kept
