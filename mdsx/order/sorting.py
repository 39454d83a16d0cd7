"""Stable sorting of integers, several times as fast as NumPy's."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def stable_order(keys: NDArray[np.int64], stop: int) -> NDArray[np.int64]:
    """Return the indices that sort `keys`, integers from 0 to `stop` exclusive. Equal keys keep their order."""
    bits = len(keys).bit_length()
    if stop << bits > 2**63:
        return np.argsort(keys, kind="stable")
    packed = keys << bits
    packed |= np.arange(len(keys))
    packed.sort()
    packed &= (1 << bits) - 1
    return packed
