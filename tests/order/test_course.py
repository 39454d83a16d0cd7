"""Courses: positions that count on over all epochs, epochs of any length, and what a rank needs next."""

from __future__ import annotations

import itertools
import time
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


def needs_by_reading(course: Course, start: int, stop: int, batch: int, rank: int, world: int) -> list[tuple[int, int]]:
    """What `needs` promises of a run that is no dataset's own epochs, by looking at every position up to `stop`."""
    edges = [start]
    while edges[-1] < stop:
        edges.append(min(edges[-1] + batch, (edges[-1] // course.epoch_samples + 1) * course.epoch_samples))
    positions, sizes = course.rank_positions(np.array(edges[:-1]), np.array(edges[1:]), rank, world)
    shards, _ = course.locate(positions)
    listed: dict[int, int] = {}
    needs = []
    for begin, shard in zip(np.repeat(edges[:-1], sizes).tolist(), shards.tolist(), strict=True):
        if shard not in listed or begin - listed[shard] > 2 * course.shuffle_block:
            listed[shard] = begin
            needs.append((begin, shard))
    return needs


def listed_until(course: Course, start: int, stop: int, batch: int, rank: int, world: int) -> list[tuple[int, int]]:
    """What `needs` says, as far as it has looked when it reaches `stop`."""
    needs = itertools.takewhile(lambda need: need[0] < stop, course.needs(start, batch, rank, world))
    return [need for need in needs if need[1] != NOTHING_NEW]


component_counts = st.lists(st.one_of(st.just(0), st.integers(1, 60), st.integers(500, 4000)), min_size=1, max_size=5)
some_blocks = st.one_of(st.integers(1, 40), st.integers(100, 3000), st.just(10**7))


@given(
    st.lists(component_counts.filter(any), min_size=1, max_size=4),
    st.integers(1, 9),
    some_blocks,
    st.integers(0, 20_000),
    st.integers(1, 200),
    st.integers(1, 4),
    st.data(),
)
@settings(max_examples=30, deadline=None)
def test_needs_of_mixtures_are_those_found_by_reading(
    components: list[list[int]], lanes: int, block: int, start: int, batch: int, world: int, data: Any
) -> None:
    """Also with phases, components that come round many times, and blocks far larger than the datasets."""
    weights = st.lists(st.integers(0, 50), min_size=len(components), max_size=len(components)).filter(any)
    phases = [(place, data.draw(weights)) for place in sorted(data.draw(st.sets(st.integers(1, 25_000), max_size=2)))]
    order = MixtureOrder(components, data.draw(weights), seed=3, lanes=lanes, shuffle_block=block, phases=phases)
    firsts = np.cumsum([0, *map(len, components)])
    course = MixtureCourse(order, firsts, data.draw(st.one_of(st.none(), st.integers(50, 5000))))
    rank = data.draw(st.integers(0, world - 1))
    stop = start + 4000
    expected = needs_by_reading(course, start, stop, batch, rank, world)
    assert listed_until(course, start, stop, batch, rank, world) == expected


@given(
    component_counts.filter(any),
    st.integers(1, 9),
    some_blocks,
    st.integers(0, 20_000),
    st.integers(1, 200),
    st.integers(1, 4),
    st.integers(50, 5000),
    st.data(),
)
@settings(max_examples=30, deadline=None)
def test_needs_of_other_epochs_are_those_found_by_reading(
    counts: list[int], lanes: int, block: int, start: int, batch: int, world: int, epoch_samples: int, data: Any
) -> None:
    order = Order(counts, seed=5, lanes=lanes, shuffle_block=block, shuffle=data.draw(st.booleans()))
    course = DatasetCourse(order, epoch_samples if epoch_samples != sum(counts) else epoch_samples + 1)
    rank = data.draw(st.integers(0, world - 1))
    stop = start + 4000
    expected = needs_by_reading(course, start, stop, batch, rank, world)
    assert listed_until(course, start, stop, batch, rank, world) == expected


def large_mixture(shuffle_block: int) -> MixtureCourse:
    order = MixtureOrder([np.full(400, 10_000), np.full(20, 100)], [9, 1], seed=1, shuffle_block=shuffle_block)
    return MixtureCourse(order, np.array([0, 400, 420]))


def seconds(course: Course, reach: int) -> float:
    """CPU time of looking so far ahead."""
    began = time.process_time()
    for position, _ in course.needs(0, 32, 0, 1):
        if position >= reach:
            break
    return time.process_time() - began


def test_large_blocks_make_looking_ahead_no_slower() -> None:
    assert seconds(large_mixture(10**7), 4 * 10**6) < 8, "all shards of both are always in use: 4,000,000 positions"
    dataset = DatasetCourse(Order([100] * 20, seed=1, shuffle_block=10**7), epoch_samples=10**5)
    assert seconds(dataset, 4 * 10**6) < 4


@pytest.mark.parametrize("lanes", [8, 512])
def test_a_large_block_lets_the_first_needs_come_soon(lanes: int) -> None:
    """Its samples are permuted once, as a reader does; but not all of its positions are looked at."""
    order = Order(np.full(2000, 2000), seed=1, lanes=lanes, shuffle_block=10**7)
    began = time.process_time()
    order.locate(range(512))
    reading = time.process_time() - began
    began = time.process_time()
    next(DatasetCourse(order.at_epoch(0)).needs(0, 512, 0, 1))
    assert time.process_time() - began < 2 * reading + 0.3
