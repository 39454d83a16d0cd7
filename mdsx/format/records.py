"""Read values by their addresses in memory. No other module reads memory by address.

NumPy gathers from one array, but the samples of a batch lie in dozens of mapped shards. So `read_records` lays an array
over all of them, with a record at each byte from the first wanted one to the last. Only the wanted items are touched.
The caller guarantees every address (`Selection.addresses` checks them against its rows), and keeps the memory alive
until the call returns. `read_joined` reads values of several sizes in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SHORT = 64  # up to this mean size, gather byte by byte instead of value by value
_AT_ONCE = 2**14  # values
_FEW = 256  # records: with fewer, detecting a regular distance does not pay


class _Span:
    """`count` records of `size` bytes, one at every `step` bytes from address `start` on, as NumPy's protocol."""

    def __init__(self, start: int, count: int, size: int, step: int = 1) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (start, True),
            "shape": (count,),
            "strides": (step,),
            "typestr": f"|V{size}",
        }


def read_records(addresses: NDArray[np.int64], dtype: np.dtype[Any], sizes: Sequence[int]) -> Iterator[NDArray[Any]]:
    """Yield the values of `dtype` (maybe a subarray or structured) at `addresses`, [n, ...]: an array of the first
    `sizes[0]`, of the next `sizes[1]`, and so on. Addresses need not be aligned."""
    start, size = 0, dtype.itemsize
    if len(addresses) and size:
        low = int(addresses.min())
        span = np.asarray(_Span(low, int(addresses.max()) - low + 1, size))
    for count in sizes:
        shape = (count, *dtype.shape)
        if count and size:
            here = addresses[start : start + count]
            step = _step(here)
            if step:
                found = np.array(np.asarray(_Span(int(here[0]), count, size, step)).view(_word(size)))
            else:
                found = span[here - low]
            yield found.view(dtype.base).reshape(shape)
        else:
            yield np.empty(shape, dtype.base)
        start += count


def _step(addresses: NDArray[np.int64]) -> int:
    """Return the distance of equally spaced addresses, such as those of a shard's rows in order; otherwise 0."""
    if len(addresses) < _FEW:
        return 0
    step = int(addresses[1]) - int(addresses[0])
    if int(addresses[-1]) - int(addresses[0]) != step * (len(addresses) - 1):  # usually, as samples are shuffled
        return 0
    return step if (addresses[1:] - addresses[:-1] == step).all() else 0


def _word(size: int) -> np.dtype[Any]:
    """Return the dtype with which NumPy copies records of `size` bytes fastest."""
    return np.dtype(f"<u{size}" if size in (1, 2, 4, 8) else f"V{size}")


def read_joined(addresses: NDArray[np.int64], sizes: NDArray[np.int64]) -> bytes | memoryview:
    """Return a copy of the values at `addresses`, of `sizes` bytes (int64 [n]), back to back.

    Values that are consecutive in memory are copied together.
    """
    total = int(sizes.sum())
    if not total:
        return b""
    there = sizes > 0
    if not there.all():
        addresses, sizes = addresses[there], sizes[there]
    firsts = np.flatnonzero(np.diff(addresses) != sizes[:-1]) + 1
    if len(firsts) + 1 < len(sizes):
        firsts = np.concatenate(([0], firsts))
        addresses, sizes = addresses[firsts], np.add.reduceat(sizes, firsts)
    size, low = int(sizes[0]), int(addresses.min())
    if len(sizes) > 1 and (sizes == size).all():
        (found,) = read_records(addresses, np.dtype((np.uint8, (size,))), [len(sizes)])
        return found.reshape(-1).data
    starts = addresses - low
    span = np.asarray(_Span(low, int((starts + sizes).max()), 1)).view(np.uint8)
    if total > _SHORT * len(sizes):
        cuts = map(slice, starts.tolist(), (starts + sizes).tolist())
        return b"".join(map(span.data.__getitem__, cuts))
    return _gathered(span, starts, sizes).data


def _gathered(span: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Copy short values byte by byte, some at a time, to bound the memory of the bytes' indices."""
    stops = np.cumsum(sizes)
    shifts = starts - (stops - sizes)  # from a byte's index in the result to its index in `span`
    found = np.empty(int(stops[-1]), np.uint8)
    for first in range(0, len(sizes), _AT_ONCE):
        here = slice(first, first + _AT_ONCE)
        begin, end = int(stops[first] - sizes[first]), int(stops[here][-1])
        found[begin:end] = span[np.repeat(shifts[here], sizes[here]) + np.arange(begin, end)]
    return found
