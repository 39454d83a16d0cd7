"""Indices of equal values, for loops over what many positions have in common."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray


def groups(values: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each distinct value, ascending, with the indices where it stands, in any order."""
    if not len(values):
        return
    order = np.argsort(values)
    ordered = values[order]
    edges = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(values)]
    for first, last in pairwise(edges):
        yield int(ordered[first]), order[first:last]
