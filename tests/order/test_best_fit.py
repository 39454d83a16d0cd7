"""Packing many items at a time gives the rows of best-fit decreasing, item by item."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdsx.order import best_fit
from mdsx.order.sorting import stable_order
from tests.conftest import Often
from tests.order.reference_groups import packed


def check(lanes: Sequence[Sequence[int]], capacity: int) -> None:
    """Compare the rows of `lanes`, a list of weights each, with the reference."""
    edges = np.cumsum([0, *map(len, lanes)])
    rows, counts = best_fit.pack(np.array([weight for lane in lanes for weight in lane], np.int64), edges, capacity)
    for weights, count, (first, last) in zip(lanes, counts.tolist(), pairwise(edges.tolist()), strict=True):
        expected = packed(weights, capacity)
        assert count == len(expected)
        assert [np.flatnonzero(rows[first:last] == row).tolist() for row in range(count)] == expected


def some_lanes(chance: random.Random) -> tuple[list[list[int]], int]:
    """Return the weights of some lanes, all of one kind of mix, and a capacity."""
    capacity = chance.choice([1, 2, 7, 50, 100, 1000, 100_000, 2**32 - 1])
    few = [chance.randint(1, capacity) for _ in range(5)]
    kinds: list[Callable[[], int]] = [
        lambda: chance.randint(1, capacity),
        lambda: chance.choice(few),
        lambda: int(capacity * chance.random() ** 4),
        lambda: int(capacity * 0.15 * chance.lognormvariate(0, 1)),
        lambda: int(capacity * chance.uniform(*chance.choice([(0.55, 0.65), (0.02, 0.1), (0.02, 0.1)]))),
    ]
    weight = chance.choice(kinds)
    sizes = [chance.randint(0, chance.choice([3, 60, 250])) for _ in range(chance.randint(1, 5))]
    return [[min(max(weight(), 1), capacity) for _ in range(size)] for size in sizes], capacity


def test_rounds_place_items_like_single_steps(often: Often) -> None:
    for seed in range(often(60, 3000)):
        chance = random.Random(seed)
        lanes, capacity = some_lanes(chance)
        few, together = chance.choice([1, 1, 3, 30]), chance.choice([1, 200, 10**6])
        with patch.object(best_fit, "_FEW", few), patch.object(best_fit, "_TOGETHER", together):
            check(lanes, capacity)


@pytest.mark.parametrize(
    "lanes",
    [
        [[40, 30], [100, 30]],  # only one lane has a row with room
        [[100, 30], [40, 30]],
        [[51, 51, *[10] * 12]],  # the second of two rows with much room takes what the first cannot
        [[51, 51, 51, *[10] * 20], [51, *[10] * 3], [10] * 25],
    ],
)
def test_rounds_fill_rows_with_much_room_one_after_another(lanes: list[list[int]]) -> None:
    with patch.object(best_fit, "_FEW", 1):
        check(lanes, 100)


@pytest.mark.parametrize("capacity", [4096, 131072])
def test_large_windows_are_packed_exactly(capacity: int) -> None:
    spread = (np.arange(4 * 1024) * 0.6180339887498949) % 1
    weights = np.clip(np.rint(120 / (1.02 - spread)), 1, capacity).astype(np.int64).reshape(4, 1024)
    check(weights.tolist(), capacity)


@given(st.lists(st.integers(0, 5)), st.sampled_from([6, 2**62]))
def test_sorting_is_stable(keys: list[int], stop: int) -> None:
    assert stable_order(np.array(keys, np.int64), stop).tolist() == sorted(range(len(keys)), key=keys.__getitem__)
