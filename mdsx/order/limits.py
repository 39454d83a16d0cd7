"""Limits, and checks of integer arguments, which raise a UsageError that names the argument."""

from __future__ import annotations

import operator
from typing import SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mdsx.errors import UsageError, shown

MAX_SAMPLES = 2**62  # also for positions and shuffle blocks: the sum of two fits into int64
MAX_LANES = 2**20  # memory and time grow with the lanes
MAX_PHASES = 4096  # of a mixture, for the same reason
MAX_UINT64 = 2**64 - 1


def integer(value: SupportsIndex, name: str, low: int, high: int) -> int:
    """Return `value` as an int. Raise UsageError unless it is an integer (not a bool) from `low` to `high`."""
    if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
        raise UsageError(f"{name} must be an integer", found=shown(value))
    number = operator.index(value)
    if not low <= number <= high:
        raise UsageError(f"{name} is out of range", found=shown(number), expected=f"{low} to {high}")
    return number


def integers(values: ArrayLike, name: str, stop: int) -> NDArray[np.int64]:
    """Return `values` as a 1-D int64 array, maybe a view. Raise UsageError unless they are integers from 0 to
    `stop` exclusive."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise UsageError(f"{name} must be one-dimensional", found=f"{array.ndim} dimensions")
    if array.size == 0:
        return np.zeros(0, np.int64)
    if array.dtype.kind not in "iu":
        raise UsageError(f"{name} must be integers", found=f"dtype {array.dtype}")
    if int(array.min()) < 0 or int(array.max()) >= stop:
        first = int(np.flatnonzero((array < 0) | (array >= stop))[0])
        raise UsageError(f"{name}[{first}] is out of range", found=int(array[first]), expected=f"0 to {stop - 1}")
    return array.astype(np.int64, copy=False)
