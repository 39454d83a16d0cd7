"""Courses: positions that continue over all epochs, epochs of any length, each rank's reads."""

from __future__ import annotations

import itertools
import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mdsx.errors import UsageError
from mdsx.order import Course, DatasetCourse, Excluded, MixtureCourse, MixtureOrder, Order, Tick
from mdsx.order.needs import active_shards
from tests.order import reference
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


def test_a_course_has_the_attributes_of_its_order() -> None:
    plain, mixed = dataset(lanes=2), mixture()
    assert (plain.samples, plain.epoch_samples, plain.lanes, plain.shuffle_block) == (N, N, 2, 16)
    assert (plain.cut, plain.run, plain.excluded) == (N, None, None), "no window of groups spans two epochs"
    assert (mixed.samples, mixed.epoch_samples, mixed.lanes, mixed.shuffle_block) == (5080, 5080, 4, 64)
    assert (mixed.cut, mixed.run, mixed.excluded) == (None, None, None)
    assert dataset(1).epoch_samples == mixture(1).epoch_samples == 1
    assert dataset(2**62).epoch_samples == mixture(2**62).epoch_samples == 2**62


def test_with_other_phases_a_mixture_keeps_all_else() -> None:
    order = MixtureOrder([[3000, 2000], [50, 30]], [3, 1], seed=4, lanes=4, shuffle_block=64)
    excluded = Excluded(np.array([3000, 2000, 50, 30]), np.array([0, 2, 4]), {})
    course = MixtureCourse(order, np.array([0, 2, 4]), 77, excluded).with_phases([(0, [3, 1]), (40, [0, 1])])
    assert (course.epoch_samples, course.excluded) == (77, excluded)
    assert located(course, range(40)) == located(mixture(), range(40))
    assert {shard for shard, _ in located(course, range(40, 200))} == {2, 3}


@pytest.mark.parametrize("samples", [1, 2, 9])
def test_the_lanes_of_a_dataset_begin_again_in_each_of_its_epochs(samples: int) -> None:
    course = DatasetCourse(Order([samples], lanes=4))
    ticks = np.arange(5 * samples)
    assert course.lanes_of(ticks).tolist() == [tick % samples % 4 for tick in range(5 * samples)]
    for tick in range(5 * samples):
        own = tick % samples
        for rank in range(3):
            places = reference.rank_batch(own, own + 6, 4, rank, 3)
            assert of_rank(course, tick, tick + 6, rank, 3).tolist() == [place + tick - own for place in places]
    assert mixture().lanes_of(ticks).tolist() == [tick % 4 for tick in range(5 * samples)]


def test_an_empty_dataset_has_empty_batches() -> None:
    course, nothing = DatasetCourse(Order([0, 0], lanes=4)), np.zeros(1, np.int64)
    assert located(course, []) == located(dataset(), []) == []
    assert course.lanes_of(nothing).tolist() == [0]
    assert [part.tolist() for part in course.rank_ticks(nothing, nothing, 0, 2)] == [[], [0]]
    assert course.active_shards(4) == 0
    assert course.shards_of(Tick(0), 4, 0, 1).tolist() == [False, False]
    course.prepare(Tick(0))


class Counted:
    """Counts how often an epoch's order is made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.epochs: list[int] = []
        at_epoch = Order.at_epoch

        def counted(order: Order, epoch: int) -> Order:
            self.epochs.append(epoch)
            return at_epoch(order, epoch)

        monkeypatch.setattr(Order, "at_epoch", counted)


def test_batches_across_epochs_make_the_order_of_each_epoch_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made, course = Counted(monkeypatch), dataset()
    for epoch in range(6):
        for _ in range(2):
            located(course, np.arange((epoch + 1) * N - 9, (epoch + 1) * N + 9))
    assert made.epochs == [1, 2, 3, 4, 5, 6]


def test_needs_make_the_uses_of_each_epoch_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made, course = Counted(monkeypatch), dataset()
    for tick in range(0, 4 * N, 10):
        course.next_needs(Tick(tick))
    assert made.epochs == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("tick", [0, N - 1, N, 2 * N + 50])
def test_prepare_computes_what_needs_use_up_to_the_end_of_the_next_epoch(
    tick: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    course, epoch = dataset(), tick // N
    made = Counted(monkeypatch)
    course.prepare(Tick(tick))
    assert made.epochs == [epoch, epoch + 1]
    for later in range(tick, (epoch + 1) * N, 9):
        course.next_needs(Tick(later))
    assert made.epochs == [epoch, epoch + 1]


def test_prepare_computes_what_needs_of_a_mixture_use(monkeypatch: pytest.MonkeyPatch) -> None:
    course, made = mixture(), Counted(monkeypatch)
    course.prepare(Tick(100))
    prepared = list(made.epochs)
    assert prepared
    course.next_needs(Tick(101))
    assert made.epochs == prepared


@pytest.mark.parametrize("far", [0, 3])
def test_what_a_course_computed_is_not_pickled(far: int) -> None:
    course = dataset()
    size = len(pickle.dumps(course))
    for epoch in range(far, far + 3):
        located(course, np.arange(epoch * N, (epoch + 1) * N))
        course.next_needs(Tick(epoch * N))
    other = pickle.loads(pickle.dumps(course))
    assert len(pickle.dumps(course)) == size
    assert located(other, range(3 * N)) == located(course, range(3 * N))
    assert other.next_needs(Tick(7)).tolist() == course.next_needs(Tick(7)).tolist()


def shards_of_lanes(counts: list[int], seed: int, lanes: int) -> list[set[int]]:
    return [{shard for shard, _ in lane} for lane in reference.seed_lanes(counts, seed, lanes)]


def lanes_from(starts: list[int], size: int, lanes: int, rank: int, world: int) -> set[int]:
    """Return the lanes that a rank reads in as many batches as differ."""
    begins = [start + number * size for start in starts for number in range(lanes)]
    return {place % lanes for at in begins for place in reference.rank_batch(at, at + size, lanes, rank, world)}


@given(st.integers(0, 3 * N), st.integers(1, 20), st.sampled_from([1, 2, 3, 5]), st.sampled_from([None, N, 50]))
@example(0, 2, 2, None)  # batches of two, whose first lanes are even if they begin at even ticks
@example(0, 2, 2, 50)
@example(0, 2, 2, N)
def test_a_rank_needs_exactly_the_shards_of_its_lanes(
    tick: int, size: int, world: int, epoch_samples: int | None
) -> None:
    course = DatasetCourse(Order([5] * 21, seed=4, lanes=6, shuffle_block=16), epoch_samples)
    mixed, of_lane = mixture(epoch_samples), shards_of_lanes([5] * 21, 4, 6)
    own = shards_of_lanes([3000, 2000], mixed.order._streams[0]._first.seed, 4)  # type: ignore[union-attr]
    for rank in range(world):
        found = course.shards_of(Tick(tick), size, rank, world)
        starts = [tick % N, 0] if epoch_samples != 50 else list(range(6))  # an epoch of 50 begins at any place
        lanes = lanes_from(starts, size, 6, rank, world)
        assert set(np.flatnonzero(found).tolist()) == set().union(*(of_lane[lane] for lane in lanes))
        following = (tick // mixed.epoch_samples + 1) * mixed.epoch_samples
        lanes = lanes_from([tick, following], size, 4, rank, world)
        found = mixed.shards_of(Tick(tick), size, rank, world)
        expected = set().union(*(own[lane] for lane in lanes))
        assert set(np.flatnonzero(found).tolist()) == expected | {2, 3}, "any lane may draw a small component"


@pytest.mark.parametrize("tick", [0, 1, 9])
@pytest.mark.parametrize("epoch_samples", [1, 3, 7])
def test_a_rank_of_a_mixture_needs_its_lanes_of_the_next_epoch_too(tick: int, epoch_samples: int) -> None:
    order = MixtureOrder([[900] * 10], [1], lanes=8, shuffle_block=64)
    of_lane = shards_of_lanes([900] * 10, order._streams[0]._first.seed, 8)  # type: ignore[union-attr]
    course = MixtureCourse(order, np.array([0, 10]), epoch_samples)
    following = (tick // epoch_samples + 1) * epoch_samples
    for rank in range(4):
        expected = set().union(*(of_lane[lane] for lane in lanes_from([tick, following], 4, 8, rank, 4)))
        assert set(np.flatnonzero(course.shards_of(Tick(tick), 4, rank, 4)).tolist()) == expected


def test_active_shards_are_those_in_the_middle_of_the_epoch() -> None:
    plain, mixed = dataset(lanes=3), mixture()
    for lanes in (0, 1, 2, 3, 8):
        chosen = range(min(lanes, 3))
        assert plain.active_shards(lanes) == active_shards(plain.order, N // 2, chosen)
    assert plain.active_shards(1) < plain.active_shards(3)
    large, small = (stream._first for stream in mixed.order._streams)  # type: ignore[union-attr]
    for lanes in (1, 2, 4, 9):
        expected = active_shards(large, 2500, range(min(lanes, 4))) + active_shards(small, 40, [0])
        assert mixed.active_shards(lanes) == expected
