"""Numbers in storage form -> of another type, in storage form too (`bool` as uint8, `bfloat16` as its bits)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.format import SCALARS, ColumnType, numpy_values

_FLOATS = ("float16", "bfloat16", "float32", "float64")


def castable(source: str, target: str) -> bool:
    """Return whether numbers of type `source` may become `target`: not floats integers, and only bools bools."""
    return source == target or (target != "bool" and (target in _FLOATS or source not in _FLOATS))


def cast(items: NDArray[Any], source: str, target: str) -> NDArray[Any]:
    """Return `items` as `target`; the same array if that is their type. Integers must fit (see `first_outside`).

    Floats are rounded to nearest, ties to even; those too large become infinite.
    """
    if source == target:
        return items
    if source == "bfloat16":
        items = numpy_values(ColumnType(source), items)
    if source not in _FLOATS and target != "bfloat16":
        return items.astype(SCALARS[target])
    with np.errstate(over="ignore"):
        if target == "bfloat16":
            return _narrowed(items.astype(np.float32, copy=False))
        return items.astype(SCALARS[target], copy=False)


def always_fits(source: str, target: str) -> bool:
    """Return whether each number of type `source` is in the range of `target`."""
    return target in _FLOATS or np.can_cast(SCALARS[source], SCALARS[target], "safe")


def first_outside(items: NDArray[Any], target: str) -> int | None:
    """Return the place of the first item that an integer type `target` cannot hold, or None."""
    limits = np.iinfo(target)
    if not items.size or (limits.min <= int(items.min()) and int(items.max()) <= limits.max):
        return None
    return next(place for place, item in enumerate(items.flat) if not limits.min <= int(item) <= limits.max)


def _narrowed(items: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Return the upper 16 bits of each float32, rounded."""
    bits = items.view(np.uint32)
    rounded = (bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(16)
    return np.where(np.isnan(items), (bits >> np.uint32(16)) | np.uint32(0x40), rounded).astype(np.uint16)
