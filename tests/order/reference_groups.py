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
    oversize: str | None = "error"
    max_samples: int | None = None


def default_window(capacity: int, mean: float | Fraction | None, kind: str = "pack", lanes: int = 1) -> int:
    """Return the default w."""
    least = 2048
    if mean:
        groups = ceil(Fraction(capacity) / Fraction(mean))
        least = max(256, max(8, ceil_div(1024, lanes)) * groups) if kind == "concat" else max(2048, 128 * groups)
    least, window = min(least, 2**31), 1
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


def concatenated(lanes: Sequence[Sequence[tuple[int, int]]], capacity: int) -> list[list[list[Item]]]:
    """Return rule 2 for concatenated rows: those of each lane, by number, from (position, length) of its samples."""
    rows: list[list[list[Item]]] = []
    left: list[tuple[int, int, int | None]] = []  # lane, position, value; None: a sample of 0 values
    for c, samples in enumerate(lanes):
        own = sum(length for _, length in samples) // capacity
        made: list[list[tuple[int, int | None]]] = [[] for _ in range(own)]
        at, row = 0, 0
        for p, length in samples:
            for value in range(length):
                row = at // capacity
                at += 1
                if row < own:
                    made[row].append((p, value))
                else:
                    left.append((c, p, value))
            if not length:
                if row < own:
                    made[row].append((p, None))
                else:
                    left.append((c, p, None))
        rows.append([_joined(values) for values in made])
    shared: list[list[tuple[int, int, int | None]]] = []
    at, row = 0, 0
    for entry in left:
        if entry[2] is not None:
            row = at // capacity
            at += 1
        while len(shared) <= row:
            shared.append([])
        shared[row].append(entry)
    for values in shared:
        rows[values[0][0]].append(_joined([entry[1:] for entry in values]))
    return rows


def _joined(values: Sequence[tuple[int, int | None]]) -> list[Item]:
    """Return the items of a row from the position and the value's number of each value in it."""
    items: list[Item] = []
    for p, value in values:
        if items and items[-1][0] == p:
            items[-1] = (p, items[-1][1], items[-1][2] + 1)
        else:
            items.append((p, value or 0, value is not None))
    return [(p, first, int(size)) for p, first, size in items]


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
    by_lane = [[p for p in positions if lane_of(p) == c] for c in range(lanes)]
    if rule.kind == "concat":
        rows = concatenated([[(p, length_of(p)) for p in of_lane] for of_lane in by_lane], rule.capacity)
    else:
        rows = [fitted(rule, of_lane, length_of) for of_lane in by_lane]
    for c, groups in enumerate(rows):
        if shuffle:
            order = permutation(key(seed, 7, epoch, window, c), len(groups))
        elif rule.kind == "concat":
            order = list(range(len(groups)))
        else:
            order = sorted(range(len(groups)), key=lambda group, groups=groups: groups[group][0])  # type: ignore[misc]
        for j, number in enumerate(order):
            placed.append(((2 * j + 1) * 2**31 // len(groups), c, groups[number]))
    placed.sort(key=lambda group: group[:2])
    return [(c, items) for _, c, items in placed]


def fitted(rule: Rule, positions: Sequence[int], length_of: Callable[[int], int]) -> list[list[Item]]:
    """Return rule 2 for the other kinds: the groups of a lane by number."""
    items = [item for p in positions for item in items_of(p, length_of(p), rule)]
    weights = [max(1, size) for _, _, size in items]
    if rule.kind == "pack":
        groups = packed(weights, rule.capacity)
    else:
        groups = batched(weights, rule.capacity, rule.max_samples)
    return [[items[i] for i in group] for group in groups]


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


def dealt(placed: Sequence[Group], balance: tuple[int, int], world: int, node: int) -> list[list[int]]:
    """Return the places of the rows that each rank has, from a step's rows by place: those of a node dealt by cost."""
    n = len(placed)
    costs = [sum(balance[0] * size + balance[1] * size**2 for _, _, size in items) for _, items in placed]
    rooms = [(rank + 1) * n // world - rank * n // world for rank in range(world)]
    shares: list[list[int]] = [[] for _ in range(world)]
    for first in range(0, world, node):
        ranks = range(first, first + node)
        places = range(first * n // world, (first + node) * n // world)
        for place in sorted(places, key=lambda place: (-costs[place], place)):
            free = [rank for rank in ranks if len(shares[rank]) < rooms[rank]]
            rank = min(free, key=lambda rank: (sum(costs[p] for p in shares[rank]), rank))
            shares[rank].append(place)
    return shares
