"""Summaries of arrays: extremes, mean, a histogram, and a line that keeps each peak."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.view.trees import number_text

BINS = 40
POINTS = 600
"""About the most points of a line. Each pair of points is the smallest and largest item of a stretch."""

_HEAD = 64  # items shown as numbers


def summary(array: NDArray[Any]) -> dict[str, Any]:
    """Return a summary of an array of numbers or bools: strict JSON, small for any size of the array.

    `line`, for one dimension only, is {"x": places, "y": values}, where None is an item that is not finite.
    `histogram` is {"edges": n + 1 values, "counts": n numbers}. Both are None if there is nothing to draw.
    """
    found: dict[str, Any] = {
        "shape": list(array.shape),
        "dtype": str(array.dtype),
        "size": array.size,
        "bytes": array.nbytes,
        "head": [scalar_text(item) for item in array.ravel()[:_HEAD]],
        "line": None,
        "histogram": None,
    }
    if not array.size:
        return found
    values = array.astype(np.float64, copy=False).ravel()
    finite = np.isfinite(values)
    whole = bool(finite.all())
    usable = values if whole else values[finite]
    found["not_finite"] = array.size - usable.size
    if not usable.size:
        return found
    exact = array if whole else array.ravel()[finite]
    found |= {
        "min": scalar_text(exact.min()),
        "max": scalar_text(exact.max()),
        "mean": f"{_mean(usable):.6g}",
        "zeros": int(array.size - np.count_nonzero(array)),
    }
    found["histogram"] = histogram(usable)
    if array.ndim == 1 and array.size > 1:
        found["line"] = line(values)
    return found


def scalar_text(item: Any) -> str:
    """Return a NumPy scalar as text, with the digits of its own type: 0.1 of float32 is not 0.10000000149011612."""
    if isinstance(item, np.floating) and np.isfinite(item):
        return str(item)
    value = item.item() if isinstance(item, np.generic) else item
    return ("true" if value else "false") if isinstance(value, bool) else number_text(value)


def _mean(values: NDArray[np.float64]) -> float:
    """Return the mean, even if the sum would overflow."""
    return float((values / len(values)).sum())


def histogram(values: NDArray[np.float64]) -> dict[str, Any] | None:
    """Return a histogram of finite values: one bin per value for a few integers, otherwise `BINS` equal bins."""
    low, high = float(values.min()), float(values.max())
    if not np.isfinite(high - low):
        return None
    exact = max(-low, high) < 2**53  # otherwise both edges of an integer's bin are the same float
    if exact and high - low < BINS and (values == np.rint(values)).all():
        edges = np.arange(low, high + 2) - 0.5
    else:
        edges = np.linspace(low, high, BINS + 1)
        if not (np.diff(edges) > 0).all():  # neighbours among floats
            return None
    counts, _ = np.histogram(values, edges)
    return {"edges": edges.tolist(), "counts": counts.tolist()}


def line(values: NDArray[np.float64]) -> dict[str, Any]:
    """Return the points of a line through `values` [n]: all of them, or the extremes of equal stretches."""
    places = np.arange(len(values))
    if len(values) > POINTS:
        places = _extremes(values, POINTS // 2)
    return {"x": places.tolist(), "y": [value if np.isfinite(value) else None for value in values[places].tolist()]}


def _extremes(values: NDArray[np.float64], stretches: int) -> NDArray[np.int64]:
    """Return the places of the smallest and the largest item of each stretch, ascending."""
    edges = np.linspace(0, len(values), stretches + 1).astype(np.int64)
    low, high = np.where(np.isnan(values), np.inf, values), np.where(np.isnan(values), -np.inf, values)
    places = set[int]()
    for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        places.update((start + int(low[start:stop].argmin()), start + int(high[start:stop].argmax())))
    return np.array(sorted(places), np.int64)
