"""Values from anywhere in memory, by their addresses: the only place that reads memory by address.

NumPy gathers from one array, but the samples of a batch lie in dozens of mapped shards. So `read_records` lays an array
over all of them, with a record at each byte from the first one wanted to the last; only the wanted items are touched.
Its caller guarantees every address (`Selection.addresses` checks them against the rows that it holds), and keeps the
memory alive until the call returns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class _Span:
    """`count` overlapping records of `size` bytes, one at each byte from address `start` on, as NumPy's protocol."""

    def __init__(self, start: int, count: int, size: int) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (start, True),
            "shape": (count,),
            "strides": (1,),
            "typestr": f"|V{size}",
        }


def read_records(addresses: NDArray[np.int64], dtype: np.dtype[Any], sizes: Sequence[int]) -> Iterator[NDArray[Any]]:
    """Yield the values of `dtype` (maybe a subarray or structured) at `addresses`, [n, ...]: the first `sizes[0]`, the
    next `sizes[1]` and so on, each as an array of its own. Addresses need not be aligned."""
    start, size = 0, dtype.itemsize
    if len(addresses) and size:
        low = int(addresses.min())
        span = np.asarray(_Span(low, int(addresses.max()) - low + 1, size))
        addresses = addresses - low
    for count in sizes:
        shape = (count, *dtype.shape)
        if count and size:
            yield span[addresses[start : start + count]].view(dtype.base).reshape(shape)
        else:
            yield np.empty(shape, dtype.base)
        start += count
