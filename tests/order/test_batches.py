"""Global batches are the same set for any world size, and each rank keeps its own lanes if the numbers allow."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mdsx.errors import UsageError
from mdsx.order import Order, better_lanes, lane_spread, own_lanes
from mdsx.order.course import lanes_read, rank_lanes
from tests.order import reference
from tests.order.positions import rank_positions
from tests.order.strategies import lane_numbers

starts = st.integers(0, 1000)
sizes = st.integers(0, 200)
worlds = st.one_of(st.integers(1, 9), st.integers(1, 300))


def batch(start: int, size: int, lanes: int, world_size: int) -> list[list[int]]:
    return [
        rank_positions(start, start + size, lanes=lanes, rank=rank, world_size=world_size).tolist()
        for rank in range(world_size)
    ]


@given(starts, sizes, lane_numbers, worlds)
def test_the_ranks_divide_a_batch_among_them(start: int, size: int, lanes: int, world_size: int) -> None:
    parts = batch(start, size, lanes, world_size)
    assert sorted(itertools.chain(*parts)) == list(range(start, start + size)), "nothing lost, nothing repeated"
    assert max(map(len, parts)) - min(map(len, parts)) <= 1, "in equal parts"


@given(starts, sizes, lane_numbers, worlds)
def test_each_rank_reads_what_the_specification_says(start: int, size: int, lanes: int, world_size: int) -> None:
    for rank, positions in enumerate(batch(start, size, lanes, world_size)):
        assert positions == reference.rank_batch(start, start + size, lanes, rank, world_size)


def test_a_batch_is_the_same_set_for_every_world_size() -> None:
    order = Order([7, 30, 12], seed=5, lanes=4)
    expected = {tuple(place) for place in np.stack(order.locate(range(8, 40)), axis=1).tolist()}
    for world_size in (1, 2, 3, 4, 8):
        read = np.concatenate([np.array(part, np.int64) for part in batch(8, 32, 4, world_size)])
        assert {tuple(place) for place in np.stack(order.locate(read), axis=1).tolist()} == expected


@pytest.mark.parametrize(("lanes", "world_size"), [(8, 1), (8, 2), (8, 4), (8, 8), (8, 16), (4, 8), (1, 3)])
def test_ranks_keep_their_lanes_if_the_numbers_allow(lanes: int, world_size: int) -> None:
    """The batch is a multiple of the lanes; lanes divide the world size, or the reverse."""
    each = max(1, lanes // world_size)
    for start in range(0, 480, 48):
        for rank, positions in enumerate(batch(start, 48, lanes, world_size)):
            first = rank * lanes // world_size
            assert {p % lanes for p in positions} == set(range(first, first + each))


def test_a_small_batch_leaves_some_ranks_empty() -> None:
    assert batch(10, 2, 8, 4) == [[], [10], [], [11]]
    assert batch(10, 0, 8, 2) == [[], []]


def test_far_positions_are_exact() -> None:
    start = 10**12 + 3
    assert batch(start, 100, 8, 3) == [reference.rank_batch(start, start + 100, 8, rank, 3) for rank in range(3)]


@given(starts, st.integers(1, 60), st.integers(1, 5), lane_numbers, worlds)
def test_rank_lanes_and_lanes_read_agree_with_rank_positions(
    start: int, size: int, batches: int, lanes: int, world_size: int
) -> None:
    begins = start + np.arange(batches) * size
    ends = begins + size
    by_rank = [batch(begin, size, lanes, world_size) for begin in begins.tolist()]
    for rank in {0, start % world_size, world_size - 1}:
        touched = {position % lanes for each in by_rank for position in each[rank]}
        assert set(rank_lanes(begins, ends, lanes=lanes, rank=rank, world_size=world_size).tolist()) == touched
        for starts in ((start,), None):
            read = lanes_read(starts, size, lanes=lanes, rank=rank, world_size=world_size)
            assert read[list(touched)].all()


@pytest.mark.parametrize(
    ("batch_size", "lanes", "world_size", "expected"),
    [
        (64, 8, 1, 1.0),
        (64, 8, 4, 1.0),
        (64, 8, 16, 2.0),  # two ranks per lane: no number of lanes below the ranks is better
        (96, 8, 3, 1.25),
        (80, 8, 5, 1.5),
        (96, 8, 6, 1.5),
        (56, 8, 7, 1.75),
        (35, 64, 7, 3.7),
    ],
)
def test_lane_spread_counts_the_lanes_of_all_ranks(
    batch_size: int, lanes: int, world_size: int, expected: float
) -> None:
    assert lane_spread(batch_size, lanes=lanes, world_size=world_size) == pytest.approx(expected, abs=0.02)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 12))
def test_better_lanes_give_each_rank_its_own_lanes(per_rank: int, lanes: int, world_size: int) -> None:
    batch_size = per_rank * world_size
    better = better_lanes(batch_size, lanes=lanes, world_size=world_size)
    assert lane_spread(batch_size, lanes=better, world_size=world_size) == max(1.0, world_size / better)


def test_better_lanes_stay_near_the_given_number() -> None:
    assert better_lanes(35, lanes=64, world_size=7) == 35
    assert better_lanes(96, lanes=8, world_size=3) == 6
    assert better_lanes(256, lanes=8, world_size=4) == 8, "good lanes stay"
    assert better_lanes(7, lanes=8, world_size=2) == 1, "one lane is always possible"


@given(st.integers(1, 40), st.integers(1, 8), st.integers(1, 8), st.integers(1, 6))
def test_own_lanes_are_those_of_a_nodes_ranks_or_one_more(lanes: int, here: int, nodes: int, size: int) -> None:
    world, stop = here * nodes, size * lanes
    own = own_lanes(lanes, ranks_here=here, world_size=world)
    read = [
        len({*np.concatenate([read_of(rank, stop, lanes, world) for rank in range(first, first + here)]).tolist()})
        for first in range(0, world, here)
    ]
    assert max(read) <= own <= max(read) + 1
    if not lanes % nodes:
        assert own == lanes // nodes


def read_of(rank: int, stop: int, lanes: int, world: int) -> NDArray[np.int64]:
    """Return the lanes that a rank reads of one batch of `stop` samples."""
    return rank_lanes(np.array([0]), np.array([stop]), lanes=lanes, rank=rank, world_size=world)


@given(starts, st.integers(1, 30), st.integers(1, 10), st.integers(1, 5))
def test_lanes_read_are_exactly_those_of_any_number_of_batches(
    start: int, size: int, lanes: int, world_size: int
) -> None:
    for rank in range(world_size):
        for begins in ((start,), (start, start + 5), None):
            at = [first + number * size for first in (begins or range(lanes)) for number in range(lanes)]
            touched = {
                p % lanes for begin in at for p in reference.rank_batch(begin, begin + size, lanes, rank, world_size)
            }
            found = lanes_read(begins, size, lanes=lanes, rank=rank, world_size=world_size)
            assert found.tolist() == [lane in touched for lane in range(lanes)]


@pytest.mark.parametrize(("size", "starts"), [(1, (5,)), (2, (0, 1)), (2, None)])
def test_lanes_read_may_be_all_lanes_if_more_than_200_batches_differ(size: int, starts: Any) -> None:
    """Of a batch of one sample, the first of many ranks reads nothing."""
    assert not lanes_read(starts, size, lanes=200, rank=0, world_size=7).any()
    assert lanes_read(starts, size, lanes=202, rank=0, world_size=7).all()


def test_batches_of_whole_lanes_read_the_same_lanes_wherever_they_begin() -> None:
    found = lanes_read(None, 1024, lanes=512, rank=0, world_size=4)
    assert found.tolist() == [True] * 128 + [False] * 384


@given(st.integers(1, 40), st.integers(1, 14), st.integers(1, 5))
def test_lane_spread_is_the_sum_of_the_lanes_that_ranks_touch(size: int, lanes: int, world_size: int) -> None:
    touched = [
        {
            p % lanes
            for at in range(lanes)
            for p in reference.rank_batch(at * size, (at + 1) * size, lanes, rank, world_size)
        }
        for rank in range(world_size)
    ]
    assert lane_spread(size, lanes=lanes, world_size=world_size) == sum(map(len, touched)) / lanes


def test_lane_spread_counts_at_most_200_batches() -> None:
    assert lane_spread(1, lanes=199, world_size=1) == lane_spread(1, lanes=200, world_size=1) == 1
    assert lane_spread(1, lanes=400, world_size=1) == 200 / 400


@pytest.mark.parametrize(("name", "most"), [("global_batch_size", 2**36), ("lanes", 2**20), ("world_size", 2**24)])
def test_an_impossible_lane_spread_names_the_argument(name: str, most: int) -> None:
    for value in (0, most + 1, 1.5):
        options: dict[str, Any] = {"global_batch_size": 64, "lanes": 8, "world_size": 2, name: value}
        with pytest.raises(UsageError, match=f"^{name} "):
            lane_spread(**options)
    assert lane_spread(2**36, lanes=1, world_size=1) == 1
    assert lane_spread(2**20, lanes=2**20, world_size=1) == 1
