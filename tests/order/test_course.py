"""Courses: positions that continue over all epochs, epochs of any length, each rank's reads."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mdsx.errors import UsageError
from mdsx.order import Course, DatasetCourse, MixtureCourse, MixtureOrder, Order
from tests.order.positions import rank_positions

COUNTS = [40, 7, 0, 33, 25]
N = sum(COUNTS)


def mixture(epoch_samples: int | None = None) -> MixtureCourse:
    order = MixtureOrder([[3000, 2000], [50, 30]], [3, 1], seed=4, lanes=4, shuffle_block=64)
    return MixtureCourse(order, np.array([0, 2, 4]), epoch_samples)


def dataset(epoch_samples: int | None = None, lanes: int = 4) -> DatasetCourse:
    return DatasetCourse(Order(COUNTS, seed=4, lanes=lanes, shuffle_block=16), epoch_samples)


def located(course: Course, positions: Any) -> list[tuple[int, int]]:
    shards, samples = course.locate(np.asarray(positions, np.int64))
    return list(zip(shards.tolist(), samples.tolist(), strict=True))


def test_positions_continue_through_the_datasets_epochs() -> None:
    order = Order(COUNTS, seed=4, lanes=4, shuffle_block=16)
    for epoch in range(3):
        shards, samples = order.at_epoch(epoch).locate(range(N))
        expected = list(zip(shards.tolist(), samples.tolist(), strict=True))
        assert located(dataset(), np.arange(epoch * N, (epoch + 1) * N)) == expected


@given(st.lists(st.integers(0, 10 * N), max_size=30))
def test_positions_of_several_epochs_in_one_call(positions: list[int]) -> None:
    course = dataset()
    assert located(course, positions) == [located(dataset(), [p])[0] for p in positions]


@pytest.mark.parametrize("epoch_samples", [1, 10, N - 1, N, N + 1, 3 * N + 5])
def test_epochs_of_any_length_leave_nothing_out(epoch_samples: int) -> None:
    course = dataset(epoch_samples)
    epochs = -(-2 * N // epoch_samples)
    read = [
        place
        for epoch in range(epochs)
        for place in located(course, np.arange(epoch * epoch_samples, (epoch + 1) * epoch_samples))
    ]
    assert set(Counter(read[: 2 * N]).values()) == {2}


def of_rank(course: Course, start: int, stop: int, rank: int, world: int) -> NDArray[np.int64]:
    """Return what `rank` reads of the batch `[start, stop)`."""
    positions, sizes = course.rank_ticks(np.array([start]), np.array([stop]), rank, world)
    assert sizes.tolist() == [len(positions)]
    return positions


@given(st.integers(0, 2 * N), st.lists(st.integers(0, 40), min_size=1, max_size=9), st.integers(1, 7))
def test_many_batches_equal_single_ones(start: int, sizes: list[int], world: int) -> None:
    edges = np.cumsum([start, *sizes])
    for course in (dataset(N // 2), dataset(), mixture()):
        for rank in range(world):
            positions, counts = course.rank_ticks(edges[:-1], edges[1:], rank, world)
            each = [of_rank(course, a, b, rank, world).tolist() for a, b in itertools.pairwise(edges.tolist())]
            assert positions.tolist() == list(itertools.chain(*each))
            assert counts.tolist() == list(map(len, each))


@given(st.integers(0, 3 * N), st.integers(1, 40), st.sampled_from([1, 2, 3, 4, 7]))
def test_ranks_split_batches_that_cross_an_epoch(start: int, size: int, world: int) -> None:
    for course in (dataset(N // 2), mixture()):
        parts = [of_rank(course, start, start + size, rank, world).tolist() for rank in range(world)]
        assert sorted(itertools.chain(*parts)) == list(range(start, start + size))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_rank_keeps_its_lanes_in_every_epoch_of_the_dataset() -> None:
    """N is not a multiple of the lanes, so lanes count from the start of the dataset's epoch."""
    course = dataset(epoch_samples=20)
    for epoch in range(4):
        begin = epoch * N
        for start in range(0, N - 8, 8):
            positions = of_rank(course, begin + start, begin + start + 8, 1, 4) - begin
            assert positions.tolist() == rank_positions(start, start + 8, lanes=4, rank=1, world_size=4).tolist()
            assert set(positions % 4) == {1}


@pytest.mark.parametrize("epoch_samples", [0, -1, 1.5, True, 2**62 + 1])
def test_an_impossible_epoch_is_refused(epoch_samples: Any) -> None:
    with pytest.raises(UsageError, match="epoch_samples"):
        dataset(epoch_samples)
