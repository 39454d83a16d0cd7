"""Copies equal-sized records from wherever they lie in this process's memory, many with one NumPy call.

NumPy gathers from one array, but the samples of a batch lie in dozens of mapped shards. So an array is laid over all of
them, with a record at each byte from the first one wanted to the last: only the items that are asked for are touched.
This is the one place that reads memory by address. Who calls vouches for every address (`Selection.addresses` checks
them against the rows that it holds) and keeps the memory alive until the call is done.
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
    """The values of `dtype` (which may be a subarray or structured) at `addresses`, [n, ...]: the first `sizes[0]`,
    the next `sizes[1]` and so on, each an array of its own. They need not be aligned."""
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


def keep_freed_memory() -> None:
    """Have glibc keep up to 64 MiB of freed memory, so that the next batches take it without a page fault a page.

    It raises these thresholds by itself when a large block is freed first (mallopt(3), M_MMAP_THRESHOLD), and this is
    such a block, of which no byte is touched. For images of 100 kB that is 2.5 times the speed; elsewhere, nothing.
    """
    np.empty(2**25 - 2**16, np.uint8)
