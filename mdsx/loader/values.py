"""Batches of NumPy arrays: how columns and samples become them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mdsx.format import numpy_values
from mdsx.loader.assembly import Kit
from mdsx.loader.collation import join_samples


def collate(samples: Sequence[Any]) -> Any:
    """Join samples into a batch: arrays and numbers to an array [n, ...], what does not fit into one to a list."""
    return join_samples(samples, _stacked, list, np.asarray)


def _stacked(values: list[Any]) -> Any:
    """Return arrays of one shape and type, or numbers of one type, as an array. Raise TypeError for others."""
    first = values[0]
    if isinstance(first, np.ndarray):
        same = all(
            isinstance(value, np.ndarray) and (value.shape, value.dtype) == (first.shape, first.dtype)
            for value in values
        )
        if not same:
            raise TypeError("the arrays differ")
        return np.stack(values)
    if isinstance(first, bool | int | float | np.generic) and len({type(value) for value in values}) == 1:
        return np.array(values)
    if hasattr(first, "__array__"):
        return _stacked([np.asarray(value) for value in values])
    raise TypeError("no numbers")


ARRAYS = Kit(array=numpy_values, column=numpy_values, listed=list, collate=collate)
