"""Kind concat: rows of exactly L values, cut from the successive samples of each lane of a window."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mdsx.errors import UsageError
from mdsx.order import GROUPS_VERSION, Grouping, Groups, GroupSequence, Order, concat, default_window, group_window
from mdsx.order.concat import concatenate
from tests.order import reference_groups
from tests.order.test_groups import CONCAT, listed

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "groups-concat-v1.json").read_text(encoding="utf-8")
)


def with_lengths(order: Order, lengths: list[int]) -> NDArray[np.int64]:
    """Return the length of each sample, from those at the positions of the order."""
    shards, samples = order.locate(np.arange(len(lengths)))
    assert not shards.any()
    found = np.empty(len(lengths), np.int64)
    found[samples] = lengths
    return found


def test_the_version_is_that_of_the_vectors() -> None:
    assert VECTORS["groups_version"] == GROUPS_VERSION


@pytest.mark.parametrize("number", range(len(VECTORS["concat"])))
def test_rows_follow_the_vectors(number: int) -> None:
    vector = VECTORS["concat"][number]
    n, epoch = len(vector["lengths"]), vector["epoch"]
    options = {name: vector[name] for name in ("epoch", "lanes", "shuffle")}
    order = Order([n], seed=int(vector["seed"]), **options)
    lengths = with_lengths(order, vector["lengths"])
    groups = Groups(order, lengths, kind="concat", capacity=vector["capacity"], window=vector["window"])
    rows = [row for window in groups for row in listed(window)]
    found = [[lane, [[p - epoch * n, first, size] for p, first, size in items]] for lane, items in rows]
    assert found == vector["value"]


# --- the specification


@given(st.integers(1, 40), st.lists(st.tuples(st.integers(0, 5), st.sampled_from([0, 0, 1, 5, 8, 40, 100]))))
def test_rows_of_any_lanes_follow_the_specification(capacity: int, samples: list[tuple[int, int]]) -> None:
    lanes, lengths = (np.array([sample[i] for sample in samples], np.int64) for i in (0, 1))
    rule = Grouping("concat", capacity, 2**20)
    for shuffle in (False, True):
        found = group_window(rule, lengths, lanes, seed=3, epoch=1, window=2, shuffle=shuffle, lane_count=6)
        expected = reference_groups.window_groups(
            reference_groups.Rule("concat", capacity, 2**20, None),
            range(len(samples)),
            lengths.tolist().__getitem__,
            lanes.tolist().__getitem__,
            seed=3,
            epoch=1,
            window=2,
            lanes=6,
            shuffle=shuffle,
        )
        items = list(zip(found.items.tolist(), found.firsts.tolist(), found.sizes.tolist(), strict=True))
        edges = found.edges.tolist()
        rows = [(lane, items[edges[g] : edges[g + 1]]) for g, lane in enumerate(found.lanes.tolist())]
        assert rows == expected


@pytest.mark.parametrize("capacity", [1, 2, 3])
def test_rows_of_a_few_short_samples_follow_the_specification(capacity: int) -> None:
    for lengths in product(range(4), repeat=3):  # samples of 0 values and cuts fall on all ends of rows
        found = concatenate(np.array(lengths), np.zeros(3, np.int64), capacity, 1, place="a window")
        items = list(zip(found.items.tolist(), found.firsts.tolist(), found.sizes.tolist(), strict=True))
        rows = [items[first:last] for first, last in pairwise(found.edges.tolist())]
        assert rows == reference_groups.concatenated([list(enumerate(lengths))], capacity)[0]


@given(
    st.integers(1, 2**32 - 1),
    st.fractions(0, 2**32 - 1),
    st.one_of(st.integers(1, 2000), st.sampled_from([1023, 1024, 2**20])),
)
def test_the_default_window_follows_the_specification(capacity: int, mean: Fraction, lanes: int) -> None:
    expected = reference_groups.default_window(capacity, mean, "concat", lanes)
    assert default_window(capacity, mean, kind="concat", lanes=lanes) == expected


@pytest.mark.parametrize("number", range(len(CONCAT["default_window"])))
def test_default_windows_follow_the_vectors(number: int) -> None:
    vector = CONCAT["default_window"][number]
    assert default_window(vector["capacity"], vector["mean"], kind="concat", lanes=vector["lanes"]) == vector["value"]


def test_the_default_window_is_that_of_the_mean_and_the_lanes() -> None:
    groups = Groups(Order([3], lanes=8), [3, 3, 4], capacity=160, kind="concat")
    assert groups.grouping == Grouping("concat", 160, 8192)  # 1024 / 8 rows of 48 samples
    assert Groups(Order([3], lanes=512), [3, 3, 4], capacity=160, kind="concat").grouping.window == 512
    assert Groups(Order([3], lanes=512), [3, 3, 4], capacity=4, kind="concat").grouping.window == 256
    assert Groups(Order([3]), [0, 0, 0], capacity=4, kind="concat").grouping.window == 2048


def test_the_default_window_is_a_power_of_two_that_is_large_enough() -> None:
    assert default_window(19, 1, kind="concat", lanes=38) == 1024  # 27 rows of 19 samples are 513
    assert default_window(16, 1, kind="concat", lanes=32) == 512  # 32 rows of 16 samples are 512


def test_rows_follow_the_worked_example() -> None:
    lengths = np.array([7, 2, 12, 5, 0, 4, 3, 6])
    found = group_window(
        Grouping("concat", 10, 4), lengths, np.arange(8) % 2, seed=7, epoch=0, window=0, shuffle=True, lane_count=2
    )
    rows = [[(6, 1, 2), (5, 3, 1), (7, 0, 6)], [(0, 0, 7), (2, 0, 3)], [(1, 0, 2), (3, 0, 5), (5, 0, 3)]]
    rows.append([(2, 3, 9), (4, 0, 0), (6, 0, 1)])
    items = list(zip(found.items.tolist(), found.firsts.tolist(), found.sizes.tolist(), strict=True))
    assert [items[a:b] for a, b in pairwise(found.edges.tolist())] == rows
    assert found.lanes.tolist() == [0, 0, 1, 0]
    step = GroupSequence(found.lanes, found.edges, found.items, found.firsts, found.sizes)
    order = Order([8], lanes=2)
    groups = Groups(order, lengths, kind="concat", capacity=10, window=4, balance=(0, 1), ranks_per_node=2)
    shares = [groups.share(step, rank, 2) for rank in range(2)]
    squares = [np.add.reduceat(share.sizes**2, share.edges[:-1]).tolist() for share in shares]
    assert squares == [[82, 38], [58, 41]]


# --- promises


@pytest.mark.parametrize(("counts", "lanes", "capacity"), [([700, 300, 505], 4, 64), ([90], 64, 4096), ([40], 1, 1)])
def test_every_value_is_in_one_row(counts: list[int], lanes: int, capacity: int) -> None:
    order = Order(counts, seed=3, lanes=lanes)
    lengths = np.arange(sum(counts)) * 37 % 211
    lengths[::5] = 0
    starts = np.cumsum([0, *counts[:-1]])
    for rows in Groups(order, lengths, kind="concat", capacity=capacity, window=16):
        shards, samples = order.locate(np.unique(rows.positions))
        stored = dict(zip(np.unique(rows.positions).tolist(), lengths[starts[shards] + samples].tolist(), strict=True))
        pieces: dict[int, list[tuple[int, int]]] = {}
        for p, first, size in zip(rows.positions.tolist(), rows.firsts.tolist(), rows.sizes.tolist(), strict=True):
            pieces.setdefault(p, []).append((first, size))
        for p, found in pieces.items():
            ends = [first + size for first, size in sorted(found)]
            assert [first for first, _ in sorted(found)] == [0, *ends[:-1]]
            assert ends[-1] == stored[p]


def test_only_the_last_row_of_a_window_is_short() -> None:
    lengths = np.arange(3000) * 37 % 211
    for rows in Groups(Order([3000], lanes=8, seed=5), lengths, kind="concat", capacity=128, window=64):
        sizes = np.add.reduceat(rows.sizes, rows.edges[:-1])
        assert np.count_nonzero(sizes != 128) <= 1
        assert rows.sizes.sum() == sizes.sum()


def test_no_row_has_two_pieces_of_a_sample() -> None:
    lengths = np.arange(3000) * 37 % 211
    for rows in Groups(Order([3000], lanes=8, seed=5), lengths, kind="concat", capacity=30, window=64):
        row = np.repeat(np.arange(len(rows)), np.diff(rows.edges))
        assert len(np.unique(np.stack((row, rows.positions)), axis=1).T) == len(row)


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({"oversize": "truncate"}, "invalid oversize for kind concat"),
        ({"oversize": "error"}, "invalid oversize for kind concat"),
        ({"max_samples": 3}, "max_samples"),
    ],
)
def test_what_does_not_apply_is_refused(rule: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Groups(Order([3], shuffle=False), [1, 10, 2], capacity=20, kind="concat", **rule)


@pytest.mark.parametrize("lengths", [[2**32 - 1], [2**32 - 1] * 1000])
def test_a_window_of_too_many_rows_is_refused(lengths: list[int]) -> None:
    with pytest.raises(UsageError, match=r"window 0 of epoch 0: a window has too many rows in a lane .* smaller"):
        list(Groups(Order([len(lengths)]), lengths, capacity=1, kind="concat", window=256))


@pytest.mark.parametrize("length", [2**61, 2**62])  # the sum of two is the least that is refused, or beyond int64
def test_the_values_of_a_window_fit_into_int64(length: int) -> None:
    lengths, lanes = np.array([length, length]), np.arange(2)
    with pytest.raises(UsageError, match=rf"^here: a window has too many rows .* found {2 * length // 2**20}"):
        concatenate(lengths, lanes, 2**20, 2, place="here")


def test_a_lane_may_have_all_rows_but_one_for_the_rest_of_each_lane() -> None:
    with patch.object(concat, "MAX_ROWS", 8):
        lanes = np.arange(2)
        assert len(concatenate(np.array([5, 5]), lanes, 1, 2, place="here").lanes) == 10
        with pytest.raises(UsageError, match=r"^here: a window has too many rows .* found 6"):
            concatenate(np.array([5, 6]), lanes, 1, 2, place="here")
