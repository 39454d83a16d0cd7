"""Pack items into rows of a fixed capacity, best-fit decreasing."""

from __future__ import annotations

from bisect import bisect_left, insort

import numpy as np
from numpy.typing import NDArray


def pack(weights: NDArray[np.int64], capacity: int) -> tuple[NDArray[np.int64], int]:
    """Return the row of each item, and the number of rows, numbered in the order in which they are begun.

    Items are taken by weight, largest first, ties in their order. Each goes into the row with the least room among
    those where it fits, ties into the row begun first. If it fits in none, it begins a row. Weights are from 1 to
    `capacity`.
    """
    order = np.argsort(-weights, kind="stable")
    span = len(weights) + 1
    rooms: list[int] = []  # room * span + row, ascending
    rows: list[int] = []
    begun = 0
    for weight in weights[order].tolist():
        at = bisect_left(rooms, weight * span)
        if at < len(rooms):
            room = rooms.pop(at)
            rows.append(room % span)
        else:
            room = capacity * span + begun
            rows.append(begun)
            begun += 1
        insort(rooms, room - weight * span)
    result = np.empty_like(order)
    result[order] = rows
    return result, begun
