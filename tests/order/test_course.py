"""Courses: positions that count on over all epochs, epochs of any length, and what a rank needs next."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mdsx.errors import UsageError
from mdsx.order import NOTHING_NEW, Course, DatasetCourse, MixtureCourse, MixtureOrder, Order, rank_positions

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


def test_a_dataset_goes_through_its_epochs() -> None:
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
    """What `rank` reads of the one batch `[start, stop)`."""
    positions, sizes = course.rank_positions(np.array([start]), np.array([stop]), rank, world)
    assert sizes.tolist() == [len(positions)]
    return positions


@given(st.integers(0, 2 * N), st.lists(st.integers(0, 40), min_size=1, max_size=9), st.integers(1, 7))
def test_many_batches_together_are_each_by_itself(start: int, sizes: list[int], world: int) -> None:
    edges = np.cumsum([start, *sizes])
    for course in (dataset(N // 2), dataset(), mixture()):
        for rank in range(world):
            positions, counts = course.rank_positions(edges[:-1], edges[1:], rank, world)
            each = [of_rank(course, a, b, rank, world).tolist() for a, b in itertools.pairwise(edges.tolist())]
            assert positions.tolist() == list(itertools.chain(*each))
            assert counts.tolist() == list(map(len, each))


@given(st.integers(0, 3 * N), st.integers(1, 40), st.sampled_from([1, 2, 3, 4, 7]))
def test_ranks_split_every_batch_also_where_the_dataset_begins_anew(start: int, size: int, world: int) -> None:
    for course in (dataset(N // 2), mixture()):
        parts = [of_rank(course, start, start + size, rank, world).tolist() for rank in range(world)]
        assert sorted(itertools.chain(*parts)) == list(range(start, start + size))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_rank_keeps_its_lanes_in_every_epoch_of_the_dataset() -> None:
    """N is no multiple of the lanes: the lanes are counted from where the dataset's epoch begins."""
    course = dataset(epoch_samples=20)
    for epoch in range(4):
        begin = epoch * N
        for start in range(0, N - 8, 8):
            positions = of_rank(course, begin + start, begin + start + 8, 1, 4) - begin
            assert positions.tolist() == rank_positions(start, start + 8, lanes=4, rank=1, world_size=4).tolist()
            assert set(positions % 4) == {1}


@given(st.sampled_from(["dataset", "whole", "mixture"]), st.integers(0, 2 * N), st.integers(1, 30), st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_needs_name_every_shard_before_its_rank_reads_it(kind: str, start: int, batch: int, world: int) -> None:
    courses: dict[str, Course] = {"dataset": dataset(60), "whole": dataset(), "mixture": mixture(500)}
    course = courses[kind]
    reach, rank = 3 * N, world - 1
    first: dict[int, int] = {}
    begin = start
    while begin < start + reach:
        end = min(begin + batch, (begin // course.epoch_samples + 1) * course.epoch_samples)
        shards, _ = course.locate(of_rank(course, begin, end, rank, world))
        for shard in shards.tolist():
            first.setdefault(shard, begin)
        begin = end
    needs = list(itertools.takewhile(lambda need: need[0] < start + 2 * reach, course.needs(start, batch, rank, world)))
    needs = [need for need in needs if need[1] != NOTHING_NEW]
    assert [position for position, _ in needs] == sorted(position for position, _ in needs)
    told: dict[int, int] = {}
    for position, shard in needs:
        told.setdefault(shard, position)
    if kind == "whole":  # its batches begin with the dataset's epochs
        assert {shard: told[shard] // N for shard in first} == {shard: place // N for shard, place in first.items()}
    else:
        assert {shard: told[shard] for shard in first} == first


def test_what_is_needed_again_after_a_while_is_named_again() -> None:
    order = MixtureOrder([[3000, 2000], [50]], [399, 1], seed=4, lanes=1, shuffle_block=16)
    course = MixtureCourse(order, np.array([0, 2, 3]))
    needs = itertools.takewhile(lambda need: need[0] < 40_000, course.needs(0, 20, 0, 1))
    assert Counter(shard for _, shard in needs)[2] > 10  # seldom drawn


def test_looking_for_needs_does_not_go_on_for_ever_in_one_step() -> None:
    """All shards are always in use, and a rank beyond the batch never reads any: the search says how far it came."""
    course = mixture(500)
    told = list(itertools.islice(course.needs(0, 2, 0, 4), 50))
    assert {shard for _, shard in told} == {NOTHING_NEW}
    assert [position for position, _ in told] == sorted({position for position, _ in told})


def test_an_empty_dataset_needs_nothing() -> None:
    course = DatasetCourse(Order([], seed=1))
    assert list(course.needs(0, 4, 0, 1)) == []
    assert located(course, []) == []


@pytest.mark.parametrize("epoch_samples", [0, -1, 1.5, True, 2**62 + 1])
def test_an_impossible_epoch_is_refused(epoch_samples: Any) -> None:
    with pytest.raises(UsageError, match="epoch_samples"):
        dataset(epoch_samples)
