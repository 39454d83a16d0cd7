"""Groups, written from format-spec.md sentence by sentence: slow, in plain Python, without any code of mdsx. The tests
of this folder compare with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from tests.order.reference import ceil_div, key, permutation

Item = tuple[int, int, int]  # position, first value, number of values
Group = tuple[int, list[Item]]  # lane, items


class Rule(NamedTuple):
    kind: str
    capacity: int
    window: int
    oversize: str = "error"
    max_samples: int | None = None


def default_window(capacity: int, mean: float | None) -> int:
    """Return the default w."""
    least = max(2048, 128 * ceil(Fraction(capacity) / Fraction(mean))) if mean else 2048
    window = 1
    while window < least:
        window *= 2
    return window


def epoch_windows(start: int, stop: int, cut: int | None, size: int) -> list[list[int]]:
    """Return rule 1: the positions of each window of an epoch from position `start` to `stop`."""
    windows: list[list[int]] = []
    for p in range(start, stop):
        if not windows or len(windows[-1]) == size or (cut is not None and p % cut == 0):
            windows.append([])
        windows[-1].append(p)
    return windows


def items_of(p: int, length: int, rule: Rule) -> list[Item]:
    """Return the items of the sample at position `p`."""
    if length <= rule.capacity:
        return [(p, 0, length)]
    if rule.oversize == "truncate":
        return [(p, 0, rule.capacity)]
    assert rule.oversize == "split"
    pieces = ceil_div(length, rule.capacity)
    return [(p, i * rule.capacity, min(rule.capacity, length - i * rule.capacity)) for i in range(pieces)]


def packed(weights: Sequence[int], capacity: int) -> list[list[int]]:
    """Return rule 2 for rows: the items of each row, in the order in which the rows are begun."""
    rows: list[list[int]] = []
    room: list[int] = []
    for i in sorted(range(len(weights)), key=lambda i: (-weights[i], i)):
        fits = [row for row in range(len(rows)) if room[row] >= weights[i]]
        if fits:
            row = min(fits, key=lambda row: (room[row], row))
        else:
            row = len(rows)
            rows.append([])
            room.append(capacity)
        rows[row].append(i)
        room[row] -= weights[i]
    return [sorted(row) for row in rows]


def batched(weights: Sequence[int], capacity: int, max_samples: int | None) -> list[list[int]]:
    """Return rule 2 for length-bounded batches."""
    batches: list[list[int]] = []
    for i in sorted(range(len(weights)), key=lambda i: (weights[i], i)):
        full = not batches or (len(batches[-1]) + 1) * weights[i] > capacity or len(batches[-1]) == max_samples
        if full:
            batches.append([])
        batches[-1].append(i)
    return [sorted(batch) for batch in batches]


def window_groups(
    rule: Rule,
    positions: Sequence[int],
    length_of: Callable[[int], int],
    lane_of: Callable[[int], int],
    *,
    seed: int,
    epoch: int,
    window: int,
    lanes: int,
    shuffle: bool,
) -> list[Group]:
    """Return rules 2 to 4: the groups of a window in sequence order."""
    placed: list[tuple[int, int, list[Item]]] = []
    for c in range(lanes):
        items = [item for p in positions if lane_of(p) == c for item in items_of(p, length_of(p), rule)]
        weights = [max(1, size) for _, _, size in items]
        if rule.kind == "pack":
            groups = packed(weights, rule.capacity)
        else:
            groups = batched(weights, rule.capacity, rule.max_samples)
        if shuffle:
            order = permutation(key(seed, 7, epoch, window, c), len(groups))
        else:
            order = sorted(range(len(groups)), key=lambda group, groups=groups: groups[group][0])  # type: ignore[misc]
        for j, number in enumerate(order):
            placed.append(((2 * j + 1) * 2**31 // len(groups), c, [items[i] for i in groups[number]]))
    placed.sort(key=lambda group: group[:2])
    return [(c, items) for _, c, items in placed]


def places(step: Sequence[Group], lanes: int) -> list[Group]:
    """Return rule 5: the groups of a step by place."""
    n = len(step)
    result: list[Group | None] = [None] * n
    surplus: list[Group] = []
    for c in range(lanes):
        home = list(range(c * n // lanes, (c + 1) * n // lanes))
        for group in [group for group in step if group[0] == c]:
            if home:
                result[home.pop(0)] = group
            else:
                surplus.append(group)
    return [group if group is not None else surplus.pop(0) for group in result]
