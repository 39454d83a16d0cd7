"""The values of a packed column, wherever they are: in stored shards, in lists, or in one array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.format import ColumnType
from mdsx.shards import StoredValues

PlaceOf = Callable[[int], str]
"""From a sample's number among the given samples to its place, for messages."""


class Source(NamedTuple):
    """Values of a packed column: value i has `counts[i]` items from byte `begins[i]` of `heaps[sources[i]]` on.

    `check()` raises for damaged values.
    """

    begins: NDArray[np.int64]
    counts: NDArray[np.int64]
    heaps: list[memoryview]
    sources: NDArray[np.int64] | int
    check: Callable[[], object]


def source_of(kind: ColumnType, values: StoredValues | NDArray[Any] | list[Any]) -> Source:
    if isinstance(values, StoredValues):
        return Source(*values.items(), values.heaps, values.sources, values.decode)
    if isinstance(values, list):
        arrays = [np.zeros(0, kind.item_dtype) if value is None else value for value in values]
        counts = np.fromiter(map(len, arrays), np.int64, len(arrays))
        values = np.concatenate(arrays) if arrays else np.zeros(0, kind.item_dtype)
    else:
        counts = np.full(len(values), values.shape[1], np.int64)
    items = np.ascontiguousarray(values, None if values.dtype == np.bool_ else kind.item_dtype).reshape(-1)
    return Source((np.cumsum(counts) - counts) * items.itemsize, counts, [items.view(np.uint8).data], 0, list)
