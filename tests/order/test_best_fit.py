"""Packing many items at a time gives the rows of best-fit decreasing, item by item."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdsx.order import best_fit
from mdsx.order.sorting import stable_order
from tests.order.reference_groups import packed


def check(lanes: Sequence[Sequence[int]], capacity: int) -> None:
    """Compare the rows of `lanes`, a list of weights each, with the reference."""
    edges = np.cumsum([0, *map(len, lanes)])
    rows, counts = best_fit.pack(np.array([weight for lane in lanes for weight in lane], np.int64), edges, capacity)
    for weights, count, (first, last) in zip(lanes, counts.tolist(), pairwise(edges.tolist()), strict=True):
        expected = packed(weights, capacity)
        assert count == len(expected)
        assert [np.flatnonzero(rows[first:last] == row).tolist() for row in range(count)] == expected


@st.composite
def some_lanes(draw: st.DrawFn) -> tuple[list[list[int]], int]:
    capacity = draw(st.sampled_from([1, 2, 7, 30, 100, 1000, 2**32 - 1]))
    few = draw(st.lists(st.integers(1, capacity), min_size=1, max_size=4))
    small, large = st.integers(1, max(1, capacity // 6)), st.integers(capacity // 2, capacity)
    weights = draw(
        st.sampled_from([st.integers(1, capacity), st.sampled_from(few), small, st.one_of(small, large.filter(bool))])
    )
    return draw(st.lists(st.lists(weights, max_size=60), min_size=1, max_size=4)), capacity


@given(some_lanes(), st.sampled_from([1, 3, 20]), st.sampled_from([1, 50, 10**6]))
def test_rounds_place_items_like_single_steps(case: tuple[list[list[int]], int], few: int, together: int) -> None:
    with patch.object(best_fit, "_FEW", few), patch.object(best_fit, "_TOGETHER", together):
        check(*case)


@pytest.mark.parametrize("capacity", [4096, 131072])
def test_large_windows_are_packed_exactly(capacity: int) -> None:
    spread = (np.arange(4 * 1024) * 0.6180339887498949) % 1
    weights = np.clip(np.rint(120 / (1.02 - spread)), 1, capacity).astype(np.int64).reshape(4, 1024)
    check(weights.tolist(), capacity)


@given(st.lists(st.integers(0, 5)), st.sampled_from([6, 2**62]))
def test_sorting_is_stable(keys: list[int], stop: int) -> None:
    assert stable_order(np.array(keys, np.int64), stop).tolist() == sorted(range(len(keys)), key=keys.__getitem__)
