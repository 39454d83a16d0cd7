"""When each shard is needed next, and how many at once, for prefetch, eviction and the cache's warning."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mdsx.errors import UsageError
from mdsx.order import Course, DatasetCourse, MixtureCourse, MixtureOrder, Order, Tick
from mdsx.order.needs import NEVER, ShardUses, active_shards
from tests.order import reference
from tests.order.strategies import orders

small_orders = st.fixed_dictionaries(
    {
        "counts": st.lists(st.integers(0, 30), min_size=1, max_size=12),
        "seed": st.integers(0, 5),
        "epoch": st.integers(0, 3),
        "lanes": st.sampled_from([1, 2, 3, 8]),
        "shuffle_block": st.integers(1, 64),
        "shuffle": st.booleans(),
    }
)


def first_reads(course: Course, start: int, stop: int) -> dict[int, int]:
    """Return the position of each shard's first sample, found by reading."""
    shards, _ = course.locate(np.arange(start, stop))
    found: dict[int, int] = {}
    for position, shard in zip(range(start, stop), shards.tolist(), strict=True):
        found.setdefault(shard, position)
    return found


@given(small_orders)
@settings(max_examples=40)
def test_a_shard_is_read_only_within_its_blocks(options: dict[str, Any]) -> None:
    order = Order(**options)
    uses, everything = ShardUses(order), np.arange(len(options["counts"]))
    shards, _ = order.locate(range(len(order)))
    for position, shard in enumerate(shards.tolist()):
        away = uses.away(position, everything)
        assert away[shard] == 0
        for other in everything.tolist():
            later = np.flatnonzero(shards[position:] == other)
            assert not len(later) or away[other] <= later[0]
            assert uses.away(position, np.array([other])) == away[other]


@given(small_orders, st.integers(0, 2), st.sampled_from([None, 1, 13, 500]))
@settings(max_examples=25)
def test_no_shard_is_read_before_its_next_need(options: dict[str, Any], epoch: int, epoch_samples: int | None) -> None:
    course = DatasetCourse(Order(**options), epoch_samples)
    n, counts = course.samples, options["counts"]
    if not n:
        assert (course.next_needs(Tick(0)) == NEVER).all()
        return
    for position in range(epoch * n, (epoch + 1) * n, max(n // 5, 1)):
        needs = course.next_needs(Tick(position))
        reads = first_reads(course, position, (epoch + 2) * n)
        for shard in range(len(counts)):
            assert needs[shard] >= NEVER if counts[shard] == 0 else position <= needs[shard] <= reads[shard]
        some = np.arange(0, len(counts), 2)
        assert (course.next_needs(Tick(position), some) == needs[some]).all()


def test_the_next_need_is_close_to_the_next_read() -> None:
    course = DatasetCourse(Order([10] * 100, seed=1, lanes=4, shuffle_block=40))
    for position in (0, 333, 999):
        needs, reads = course.next_needs(Tick(position)), first_reads(course, position, 2000)
        for shard in range(100):
            assert reads[shard] - 2 * 40 - 8 < needs[shard] <= reads[shard]


@given(
    st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=5), min_size=1, max_size=3),
    st.sampled_from([1, 2, 8]),
    st.integers(1, 300),
    st.integers(0, 5000),
    st.data(),
)
@settings(max_examples=15, deadline=None)
def test_a_mixture_needs_the_shards_it_reads(
    components: list[list[int]], lanes: int, block: int, position: int, data: Any
) -> None:
    weights = st.lists(st.integers(1, 50), min_size=len(components), max_size=len(components))
    phases = [(place, data.draw(weights)) for place in sorted(data.draw(st.sets(st.integers(1, 5000), max_size=2)))]
    order = MixtureOrder(components, data.draw(weights), seed=3, lanes=lanes, shuffle_block=block, phases=phases)
    course = MixtureCourse(order, np.cumsum([0, *map(len, components)]))
    shards, _ = course.locate(np.arange(position, position + 20))
    for place, shard in enumerate(shards.tolist(), position):
        assert course.next_needs(Tick(place), np.array([shard])) == place
    assert (course.next_needs(Tick(position)) >= position).all()


def test_a_mixture_predicts_later_needs_closely() -> None:
    """Small blocks: each shard is read soon after its block begins."""
    order = MixtureOrder([[3000] * 20, [50] * 10], [3, 1], seed=4, lanes=4, shuffle_block=64)
    course = MixtureCourse(order, np.array([0, 20, 30]))
    for position in (0, 12_345, 100_003):
        needs, reads = course.next_needs(Tick(position)), first_reads(course, position, position + 100_000)
        assert len(reads) == 30
        for shard, read in reads.items():
            assert read - 1500 < needs[shard] < read + 300


def test_a_component_without_weight_is_not_needed() -> None:
    order = MixtureOrder([[100] * 4, [100] * 2], [3, 1], seed=1, phases=[(5000, [1, 0])])
    course = MixtureCourse(order, np.array([0, 4, 6]))
    assert course.next_needs(Tick(100)).max() < 2000
    needs = course.next_needs(Tick(6000))
    assert needs[:4].max() < 8000
    assert set(needs[4:].tolist()) == {NEVER}


def read_by(course: Course, start: int, stop: int, size: int, rank: int, world: int) -> NDArray[np.int64]:
    """Return the shards that `rank` reads in whole batches from `start` to the end of its epoch."""
    starts = np.arange(start, stop - size + 1, size)
    positions, _ = course.rank_ticks(starts, starts + size, rank, world)
    return np.unique(course.locate(positions)[0])


@given(st.integers(1, 40), st.sampled_from([1, 2, 3, 4, 7, 16]), st.integers(0, 300), st.booleans(), st.data())
@settings(max_examples=25, deadline=None)
def test_a_ranks_shards_are_those_its_batches_read(size: int, world: int, start: int, mixture: bool, data: Any) -> None:
    rank = data.draw(st.integers(0, world - 1))
    course: Course = DatasetCourse(
        Order([20] * 30, seed=2, lanes=8, shuffle_block=80), data.draw(st.sampled_from([None, 130]))
    )
    if mixture:
        both = MixtureOrder([[3000] * 9, [30] * 4], [3, 1], seed=4, lanes=4, shuffle_block=64)
        course = MixtureCourse(both, np.array([0, 9, 13]))
    mine = course.shards_of(Tick(start), size, rank, world)
    end = (start // course.epoch_samples + 1) * course.epoch_samples
    assert mine[read_by(course, start, min(end, start + 3000), size, rank, world)].all()
    assert mine[read_by(course, end, end + min(course.epoch_samples, 3000), size, rank, world)].all()


def test_ranks_with_lanes_of_their_own_share_few_shards() -> None:
    course = DatasetCourse(Order([1000] * 800, seed=1))
    mine = np.array([course.shards_of(Tick(0), 512, rank, 4) for rank in range(4)])
    assert mine.any(axis=0).all()
    assert mine.sum() <= 800 + 8


def test_needs_of_a_large_epoch_are_computed_fast() -> None:
    order = Order(np.full(200_000, 5_000_000), seed=1)  # 10^12 samples
    course, began = DatasetCourse(order), time.process_time()
    needs = course.next_needs(Tick(10**11))
    assert time.process_time() - began < 15
    assert (needs >= 10**11).all()
    began = time.process_time()
    for step in range(100):
        course.next_needs(Tick(10**11 + step), np.arange(500))
    assert time.process_time() - began < 10


def test_an_empty_dataset_needs_nothing() -> None:
    course = DatasetCourse(Order([], seed=1))
    assert course.next_needs(Tick(0)).tolist() == course.shards_of(Tick(0), 4, 0, 1).tolist() == []


@given(orders(st.just(True)), st.data())
def test_active_shards_are_those_of_the_current_blocks(order: Order, data: Any) -> None:
    position = data.draw(st.integers(0, len(order)))
    lanes = sorted(data.draw(st.sets(st.integers(0, order.lanes - 1), max_size=5)))
    blocks = reference.epoch_lanes(order.counts.tolist(), order.seed, order.epoch, order.lanes, order.shuffle_block)
    expected: set[int] = set()
    for lane in lanes:
        left = len(range(lane, position, order.lanes))  # offsets of this lane that were read
        for block in blocks[lane]:
            if 0 <= left < len(block):
                expected.update(shard for shard, _ in block)
            left -= len(block)
    assert active_shards(order, position, lanes) == len(expected)


def test_active_shards_stay_near_64_plus_two_per_lane() -> None:
    for samples in (10, 1000, 4096):
        order = Order(np.full(2000, samples), seed=2)
        active = [active_shards(order, position) for position in range(0, len(order), len(order) // 20)]
        assert 16 < max(active) <= 64 + 2 * order.lanes
    order = Order(np.full(2000, 10**6), seed=2)
    assert active_shards(order, 10**8) <= 2 * order.lanes, "only a part of large shards at a time"
    assert active_shards(order, 10**8, [3]) <= 2
    assert active_shards(order, len(order)) == 0


# --- exactly -------------------------------------------------------------------------------------------------------


Range = tuple[int, int, int]  # shard, first position, last position (exclusive)


def pieces_drawn(order: Order) -> list[Range]:
    """Return the pieces of a shuffled epoch with the positions of the blocks that draw on them, by format-spec.md."""
    counts, lanes, found = order.counts.tolist(), order.lanes, []
    block = reference.ceil_div(order.shuffle_block, lanes)
    for c, lane in enumerate(reference.seed_lanes(counts, order.seed, lanes)):
        edges = [0, *range(-(-block * (c + 1) // lanes), len(lane), block), len(lane)]
        pieces, at = reference.pieces_of(lane, block), 0
        for number in reference.permutation(reference.key(order.seed, 1, order.epoch, c), len(pieces)):
            end = at + len(pieces[number])
            start = max(edge for edge in edges if edge <= at)
            stop = min(edge for edge in edges if edge >= end)
            found.append((pieces[number][0][0], start * lanes + c, (stop - 1) * lanes + c + 1))
            at = end
    return found


few_orders = orders(st.just(True)).filter(lambda order: len(order) / order.shuffle_block < 3000)


@given(few_orders)
def test_pieces_are_drawn_by_the_blocks_of_the_specification(order: Order) -> None:
    assert sorted(zip(*(part.tolist() for part in order.pieces_drawn()), strict=True)) == sorted(pieces_drawn(order))


def distance(ranges: Iterable[Range], shard: int, position: int) -> int:
    return min((max(start - position, 0) for s, start, stop in ranges if s == shard and stop > position), default=NEVER)


@given(small_orders, st.data())
def test_the_distance_of_a_shard_is_that_of_its_next_blocks(options: dict[str, Any], data: Any) -> None:
    order = Order(**options)
    uses, shards, lanes = ShardUses(order), len(order.counts), order.lanes
    ranges = list(zip(*(part.tolist() for part in order.pieces_drawn()), strict=True))
    some = np.array(data.draw(st.lists(st.integers(0, shards - 1), unique=True)), np.int64)
    places = st.integers(-50, len(order) + 50)
    position = data.draw(places)
    expected = [distance(ranges, shard, position) for shard in range(shards)]
    assert uses.away(position, np.arange(shards)).tolist() == expected
    assert uses.away(position, some).tolist() == [expected[shard] for shard in some.tolist()]
    at = np.array([data.draw(places) for _ in range(lanes)])
    by_lane = [[each for each in ranges if each[1] % lanes == lane] for lane in range(lanes)]
    for shard, away in zip(some.tolist(), uses.away(at, some).tolist(), strict=True):
        assert away == min(distance(own, shard, place) for own, place in zip(by_lane, at.tolist(), strict=True))
    chosen = np.array([data.draw(st.booleans()) for _ in range(lanes)])
    drawn = {shard for lane in np.flatnonzero(chosen).tolist() for shard, _, _ in by_lane[lane]}
    assert np.flatnonzero(uses.in_lanes(chosen)).tolist() == sorted(drawn)


def test_shards_may_be_asked_for_in_any_order() -> None:
    uses, shards = ShardUses(Order([9] * 20, lanes=2, shuffle_block=4)), np.arange(20)
    assert uses.away(7, shards[::-1]).tolist() == uses.away(7, shards).tolist()[::-1]
    uses = ShardUses.of(np.arange(3), np.array([20, 10, 15]), np.array([30, 15, 20]), 3, 1)
    away = uses.away(7, np.arange(3))
    assert away.tolist() == [13, 3, 8]
    for asked in product(range(3), repeat=3):
        assert uses.away(7, np.array(asked)).tolist() == away[list(asked)].tolist()


def test_uses_may_be_kept_of_some_pieces() -> None:
    uses = ShardUses.of(np.array([3, 1, 3]), np.array([40, 10, 4]), np.array([50, 20, 8]), 5, 6)
    assert uses.away(0, np.arange(5)).tolist() == [NEVER, 10, NEVER, 4, NEVER]
    assert uses.away(15, np.array([3, 1])).tolist() == [25, 0]
    assert uses.away(20, np.array([1])).tolist() == [NEVER], "a range ends before its last position"
    assert uses.away(np.full(6, 8), np.array([1, 3])).tolist() == [2, 32]
    assert uses.in_lanes(np.arange(6) == 4).tolist() == [False, True, False, True, False]
    assert uses.in_lanes(np.arange(6) == 5).tolist() == [False] * 5


@given(small_orders, st.integers(0, 400))
def test_the_next_need_in_a_dataset_is_exact(options: dict[str, Any], tick: int) -> None:
    course = DatasetCourse(Order(**options))
    n, ranges = course.samples, []
    for epoch in range(tick // n, tick // n + 2) if n else ():
        drawn = zip(*(part.tolist() for part in course.order.at_epoch(epoch).pieces_drawn()), strict=True)
        ranges += [(shard, start + epoch * n, stop + epoch * n) for shard, start, stop in drawn]
    away = [distance(ranges, shard, tick) for shard in range(len(options["counts"]))]
    expected = [NEVER if far == NEVER else tick + far for far in away]
    assert course.next_needs(Tick(tick)).tolist() == expected
    assert course.next_needs(Tick(tick), np.array([0])).tolist() == expected[:1]


@pytest.mark.parametrize("position", [0, 1, 5000, 9_999, 10_001, 30_000])
@pytest.mark.parametrize("run", [None, 128])
def test_the_needs_of_a_mixture_follow_from_the_distances_in_its_components(position: int, run: int | None) -> None:
    """The first component is read lane by lane, the second in one line; epoch after epoch."""
    weights, share = [3, 1], (0.75, 0.25)
    counts = [[*[40] * 140, 2], [90, 0, 30, 300]]
    mixture = MixtureOrder(counts, weights, seed=4, lanes=4, shuffle_block=64, run=run)
    course = MixtureCourse(mixture, np.array([0, 141, 145]), 1280)
    drawn = mixture.locate(range(position))[0]
    needs = course.next_needs(Tick(position)).tolist()
    for component, lanes, first, shards in ((0, 4, 0, 141), (1, 1, 141, 4)):
        own = mixture._streams[component]
        away = [NEVER] * shards
        for lane in range(lanes):
            read = int((drawn[lane::lanes] == component).sum())
            length = len(range(lane, own.size, lanes))
            for epoch in range(read // length, read // length + 2):
                order = own._first.at_epoch(epoch)  # type: ignore[union-attr]
                for shard, start, stop in zip(*(part.tolist() for part in order.pieces_drawn()), strict=True):
                    begin, end = (start // lanes) + epoch * length, (stop - 1) // lanes + 1 + epoch * length
                    if start % lanes == lane and end > read:
                        away[shard] = min(away[shard], max(begin - read, 0) * lanes)
        if run is None:
            expected = [NEVER if far == NEVER else position + math.ceil(far / share[component]) for far in away]
        else:
            expected = mixture._draws.expected(component, position, np.array(away)).tolist()
        assert needs[first : first + shards] == expected
        some = np.array([first + shards - 1, first])
        assert course.next_needs(Tick(position), some).tolist() == [expected[-1], expected[0]]


@pytest.mark.parametrize("value", [-1, 8, 1.5])
def test_active_shards_name_a_wrong_argument(value: Any) -> None:
    order = Order([7], lanes=4)
    with pytest.raises(UsageError, match=r"^position "):
        active_shards(order, value)
    with pytest.raises(UsageError, match=r"^lane "):
        active_shards(order, 0, [value])
    with pytest.raises(UsageError, match=r"^lane .*0 to 3"):
        active_shards(order, 7, [4])
