"""An Order has every sample once, in the specified order, for any calls."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mdsx
from mdsx.errors import UsageError
from mdsx.order import MixtureOrder, Order
from mdsx.order.order import default_shuffle_block
from mdsx.order.pieces import cut, lane_starts, line_up
from tests.order import reference
from tests.order.strategies import blocks, lane_numbers, orders, shard_counts, uint64

Places = list[tuple[int, int]]


def places(order: Order, positions: Any = None) -> Places:
    shards, samples = order.locate(range(len(order)) if positions is None else positions)
    assert shards.dtype == samples.dtype == np.int64
    return list(zip(shards.tolist(), samples.tolist(), strict=True))


def all_samples(order: Order) -> Places:
    return [(shard, sample) for shard, count in enumerate(order.counts.tolist()) for sample in range(count)]


# --- the specification ---------------------------------------------------------------------------------------------


@given(orders())
def test_every_sample_has_exactly_one_position(order: Order) -> None:
    assert len(order) == order.counts.sum()
    assert sorted(places(order)) == all_samples(order)


@given(shard_counts, uint64, uint64, lane_numbers, blocks, st.booleans())
@settings(max_examples=100)
def test_the_order_equals_the_naive_implementation(
    counts: list[int], seed: int, epoch: int, lanes: int, shuffle_block: int, shuffle: bool
) -> None:
    order = Order(counts, seed=seed, epoch=epoch, shuffle=shuffle, lanes=lanes, shuffle_block=shuffle_block)
    assert places(order) == reference.whole_order(counts, seed, epoch, lanes, shuffle_block, shuffle)


@pytest.mark.parametrize("samples", [0, 1, 2, 3, *(2**k + d for k in (4, 8, 12, 16) for d in (-1, 0, 1))])
@pytest.mark.parametrize("lanes", [1, 8, 64])
def test_every_size_near_a_power_of_two_is_a_permutation(samples: int, lanes: int) -> None:
    _, located = Order([samples], seed=samples, lanes=lanes, shuffle_block=1024).locate(range(samples))
    assert np.array_equal(np.sort(located), np.arange(samples))


def test_many_lanes_and_tiny_blocks_follow_the_specification() -> None:
    counts = [300, 0, 5, 1000, 77]
    for lanes, block in [(1, 1), (1, 7), (100, 3), (2000, 1), (3, 50), (7, 10**18)]:
        order = Order(counts, seed=5, epoch=9, lanes=lanes, shuffle_block=block)
        assert places(order) == reference.whole_order(counts, 5, 9, lanes, block)


def test_without_shuffle_the_order_is_that_of_the_index() -> None:
    order = Order([2, 0, 3], seed=9, epoch=4, lanes=8, shuffle=False)
    assert places(order) == [(0, 0), (0, 1), (2, 0), (2, 1), (2, 2)]
    assert order.lanes == 1, "one lane: a global batch is then split over the ranks in order"


def fields_of(order: Order) -> dict[str, Any]:
    return {name: getattr(order, name) for name in ("seed", "epoch", "shuffle", "lanes", "shuffle_block")}


# --- calls ---------------------------------------------------------------------------------------------------------


@given(orders(), st.data())
def test_positions_in_any_calls_and_order_are_equal(order: Order, data: Any) -> None:
    expected = places(order)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(order)), max_size=5)))
    again = Order(order.counts, **fields_of(order))
    parts = [
        place for a, b in zip([0, *cuts], [*cuts, len(order)], strict=True) for place in places(again, range(a, b))
    ]
    assert parts == expected
    if len(order):
        anywhere = data.draw(st.lists(st.integers(0, len(order) - 1), max_size=30))  # repeated ones too
        assert places(again, anywhere) == [expected[p] for p in anywhere]


def test_positions_may_be_any_integers_in_one_dimension() -> None:
    order = Order([3, 4], seed=1)
    expected = places(order)
    for positions in (list(range(7)), np.arange(7, dtype=np.uint8), np.arange(7, dtype=np.uint64)):
        assert places(order, positions) == expected
    assert places(order, np.arange(7)[::-1]) == expected[::-1]
    assert places(order, []) == []
    given_array = np.arange(7)
    places(order, given_array)
    assert given_array.tolist() == list(range(7)), "the caller's array is left alone"


def test_threads_share_an_order() -> None:
    order = Order([2**20], seed=3, lanes=64, shuffle_block=64)
    one_lane = np.arange(5, 2**20, 64)  # their blocks evict each other from memory
    expected = order.locate(one_lane)[1].tolist()
    wrong: list[int] = []

    def read(number: int) -> None:
        some = np.random.default_rng(number).integers(0, len(one_lane), 300).tolist()
        wrong.extend(i for i in some if order.locate(one_lane[[i]])[1].tolist() != [expected[i]])

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


# --- epochs, seeds, lanes ------------------------------------------------------------------------------------------


@given(shard_counts, uint64, st.lists(uint64, min_size=2, max_size=3), lane_numbers, blocks)
def test_a_lane_has_the_same_samples_in_every_epoch(
    counts: list[int], seed: int, epochs: list[int], lanes: int, shuffle_block: int
) -> None:
    def lane_samples(epoch: int) -> list[Places]:
        order = Order(counts, seed=seed, epoch=epoch, lanes=lanes, shuffle_block=shuffle_block)
        return [sorted(places(order, range(lane, len(order), lanes))) for lane in range(lanes)]

    assert all(lane_samples(epoch) == lane_samples(epochs[0]) for epoch in epochs)


@given(orders(), uint64)
def test_at_epoch_is_the_order_of_that_epoch(order: Order, epoch: int) -> None:
    expected = Order(order.counts, **{**fields_of(order), "epoch": epoch})
    other = order.at_epoch(epoch)
    assert (other.epoch, other.seed, other.lanes) == (epoch, order.seed, order.lanes)
    assert places(other) == places(expected)


def test_epoch_and_seed_change_the_order() -> None:
    made = [Order([50] * 10, seed=seed, epoch=epoch) for seed in (0, 1, 7, 2**64 - 1) for epoch in (0, 1, 2, 2**64 - 1)]
    assert len({tuple(places(order)) for order in made}) == len(made)
    assert places(Order([50] * 10, seed=7, epoch=1)) != places(Order([50] * 10, seed=8, epoch=0)), (
        "not a sum of seed and epoch"
    )


def test_epochs_of_few_large_shards_differ() -> None:
    """Without chunks, one shard per lane would come at the same place in every epoch (correlation 0.996)."""
    order = Order([20_000] * 8, seed=3, lanes=8, shuffle_block=512)

    def positions(epoch: int) -> Any:
        shards, samples = order.at_epoch(epoch).locate(range(len(order)))
        at = np.empty(len(order))
        at[shards * 20_000 + samples] = np.arange(len(order))
        return at

    assert abs(np.corrcoef(positions(0), positions(1))[0, 1]) < 0.2


def test_batches_mix_as_many_shards_as_measured() -> None:
    shards, _ = Order([1000] * 100, seed=1, lanes=8, shuffle_block=10_000).locate(range(99_968))
    distinct = [len(set(batch)) for batch in shards.reshape(-1, 64).tolist()]
    assert np.mean(distinct) == pytest.approx(15.4, abs=0.7)


# --- options -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([], 1),
        ([0, 0], 1),
        ([1], 64),
        ([10, 10, 11], 64 * 11),
        ([10, 0], 64 * 5),  # empty shards count
        ([4096] * 10, 262144),
        ([4095] * 10, 262080),
        ([10**9], 262144),
    ],
)
def test_the_default_shuffle_block_is_about_64_shards(counts: list[int], expected: int) -> None:
    assert Order(counts).shuffle_block == expected


def test_lanes_may_be_more_than_samples() -> None:
    order = Order([2, 1], seed=4, lanes=100)
    assert sorted(places(order)) == [(0, 0), (0, 1), (1, 0)]
    assert [order.lane_length(lane) for lane in (0, 2, 3, 99)] == [1, 1, 0, 0]


def test_an_empty_order_has_no_positions() -> None:
    for counts in ([], [0], [0, 0, 0]):
        order = Order(counts)
        assert len(order) == 0
        assert places(order) == []
        with pytest.raises(UsageError, match="out of range"):
            order.locate([0])


@pytest.mark.parametrize(
    ("counts", "lanes"),
    [
        ([10**6] * 64, 64),
        ([10**6] * 200, 64),
        ([10**6] * 63, 32),  # a power of two
        ([60_000], 1),  # each lane has a shard
        ([60_000, 0, 0, 60_000], 2),
        ([1024] * 64, 64),
        ([1023] * 64, 32),  # and 1,024 samples
        ([48] * 21, 1),
        ([0], 1),
        ([], 1),
    ],
)
def test_by_default_each_lane_has_a_shard_and_1024_samples(counts: list[int], lanes: int) -> None:
    assert mdsx.Order(counts).lanes == lanes
    assert MixtureOrder([[5], counts, [60_000] * 2], [1, 0, 1]).lanes == max(lanes, 2), "of the largest component"


@pytest.mark.parametrize("samples", [1_000, 60_000])
def test_a_dataset_of_one_shard_is_mixed_as_by_an_exact_shuffle(samples: int) -> None:
    """It is sorted by class. Ten classes, drawn at random, give 5.7 different ones in 8 samples."""
    _, stored = mdsx.Order([samples], seed=7).locate(np.arange(samples // 8 * 8))
    classes = (stored * 10 // samples).reshape(-1, 8)
    assert np.mean([len(set(batch)) for batch in classes.tolist()]) == pytest.approx(10 * (1 - 0.9**8), rel=0.05)


def test_a_small_dataset_has_another_order_in_each_epoch() -> None:
    orders = [mdsx.Order([48], seed=7, epoch=epoch).locate(np.arange(48))[1].tolist() for epoch in range(4)]
    assert all(sorted(order) == list(range(48)) for order in orders)
    assert sum(np.equal(orders[0], order).sum() for order in orders[1:]) < 12


def test_an_order_has_resolved_values_and_is_immutable() -> None:
    counts = np.array([3, 4])
    order = mdsx.Order(counts, seed=5, epoch=6)
    counts[0] = 100
    assert order.counts.tolist() == [3, 4]
    assert (order.seed, order.epoch, order.lanes, order.shuffle_block, order.shuffle) == (5, 6, 1, 256, True)
    with pytest.raises(ValueError, match="read-only"):
        order.counts[0] = 1
    with pytest.raises(AttributeError, match="is immutable"):
        order.seed = 1
    with pytest.raises(AttributeError, match="is immutable"):
        del order.seed
    assert repr(order) == "Order(<2 shards, 7 samples>, seed=5, epoch=6, lanes=1, shuffle_block=256, shuffle=True)"


@given(orders())
def test_an_order_can_be_pickled(order: Order) -> None:
    for other in (pickle.loads(pickle.dumps(order)), copy.deepcopy(order)):
        assert repr(other) == repr(order)
        assert places(other) == places(order)
    places(order)
    assert len(pickle.dumps(order)) < 500 + 8 * len(order.counts), "blocks in use are not pickled"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": -1}, "seed is out of range .expected 0 to 18446744073709551615, found -1"),
        ({"seed": 2**64}, "seed is out of range"),
        ({"seed": 1.0}, "seed must be an integer"),
        ({"seed": True}, "seed must be an integer"),
        ({"epoch": -1}, "epoch is out of range"),
        ({"epoch": 2**64}, "epoch is out of range"),
        ({"lanes": 0}, "lanes is out of range"),
        ({"lanes": 2**20 + 1}, "lanes is out of range"),
        ({"lanes": "8"}, "lanes must be an integer"),
        ({"shuffle_block": 0}, "shuffle_block is out of range"),
        ({"counts": [1, -1]}, r"counts\[1\] is out of range"),
        ({"counts": [1.5]}, "counts must be integers"),
        ({"counts": [[1]]}, "counts must be one-dimensional"),
        ({"counts": [2**62]}, r"counts\[0\] is out of range"),
        ({"counts": [2**61] * 2}, "too many samples"),
        ({"counts": [2**62 - 1] * 4}, "too many samples"),  # beyond 2^63, where sums wrap
        ({"counts": [2**62 - 1] * 9}, "too many samples"),
    ],
)
def test_invalid_arguments_raise_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Order(**{"counts": [1], **options})


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        ([0, 7], r"positions\[1\] is out of range .expected 0 to 6, found 7"),
        ([-1], r"positions\[0\] is out of range"),
        ([2**64], "positions must be integers"),
        (np.array([2**63], np.uint64), "out of range"),
        ([0.0], "positions must be integers"),
        ([True], "positions must be integers"),
        (3, "one-dimensional"),
    ],
)
def test_positions_out_of_range_are_refused(positions: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Order([3, 4]).locate(positions)


@pytest.mark.parametrize("edge", [0, 2**64 - 1])
def test_seed_and_epoch_take_all_64_bits(edge: int) -> None:
    assert places(Order([9], seed=edge, epoch=edge, lanes=2, shuffle_block=4)) == reference.whole_order(
        [9], edge, edge, 2, 4
    )


@given(orders())
def test_blocks_have_the_same_samples_before_and_after_they_are_permuted(order: Order) -> None:
    positions = np.arange(len(order))
    firsts, sizes = order.blocks_of(positions)
    shuffled, stored = order.locate(positions), order.unshuffled(positions)
    for first in np.unique(firsts).tolist():
        block = firsts == first
        assert (sizes[block] == block.sum()).all()
        assert positions[block].tolist() == [first + order.lanes * number for number in range(int(block.sum()))]
        for one, other in zip(shuffled, stored, strict=True):
            assert np.array_equal(np.sort(one[block]), np.sort(other[block]))


@given(orders())
def test_unshuffled_blocks_have_pieces_in_order(order: Order) -> None:
    shards, samples = order.unshuffled(np.arange(0, len(order), order.lanes))  # lane 0
    same = np.diff(shards) == 0
    assert (np.abs(np.diff(samples)[same]) >= 1).all()
    assert sorted(zip(*order.unshuffled(np.arange(len(order))), strict=True)) == all_samples(order)


def lane_blocks(order: Order) -> list[list[list[tuple[int, int]]]]:
    return reference.epoch_lanes(order.counts.tolist(), order.seed, order.epoch, order.lanes, order.shuffle_block)


@given(orders(st.just(True)), st.data())
def test_blocks_are_those_of_the_specification(order: Order, data: Any) -> None:
    firsts, sizes = order.blocks_of(np.arange(len(order)))
    for lane, own_blocks in enumerate(lane_blocks(order)):
        assert order.lane_length(lane) == sum(map(len, own_blocks))
        own = slice(lane, None, order.lanes)
        edges = np.cumsum([0, *map(len, own_blocks)])
        assert firsts[own].tolist() == np.repeat(edges[:-1] * order.lanes + lane, np.diff(edges)).tolist()
        assert sizes[own].tolist() == np.repeat(np.diff(edges), np.diff(edges)).tolist()
        if own_blocks:
            first = data.draw(st.integers(0, int(edges[-1]) - 1))
            last = data.draw(st.integers(first + 1, int(edges[-1])))
            within = [
                block for block, a, b in zip(own_blocks, edges[:-1], edges[1:], strict=True) if a < last and b > first
            ]
            shards = {shard for block in within for shard, _ in block}
            assert order.drawn(lane, first, last).tolist() == sorted(shards)


@given(orders(st.just(True)))
def test_unshuffled_samples_are_the_pieces_one_after_the_other(order: Order) -> None:
    counts, lanes = order.counts.tolist(), order.lanes
    block = reference.ceil_div(order.shuffle_block, lanes)
    found = list(zip(*(part.tolist() for part in order.unshuffled(np.arange(len(order)))), strict=True))
    for c, lane in enumerate(reference.seed_lanes(counts, order.seed, lanes)):
        pieces = reference.pieces_of(lane, block)
        numbers = reference.permutation(reference.key(order.seed, 1, order.epoch, c), len(pieces))
        assert found[c::lanes] == [place for number in numbers for place in pieces[number]]


@given(shard_counts, uint64, lane_numbers, blocks, uint64)
def test_pieces_are_those_of_the_specification(
    counts: list[int], seed: int, lanes: int, shuffle_block: int, epoch: int
) -> None:
    block = reference.ceil_div(shuffle_block, lanes)
    expected = [reference.pieces_of(lane, block) for lane in reference.seed_lanes(counts, seed, lanes)]
    pieces = cut(np.array(counts, np.int64), seed=seed, lanes=lanes, block=block, shuffle=True)
    parts = zip(pieces.shards.tolist(), pieces.firsts.tolist(), pieces.sizes.tolist(), strict=True)
    assert list(parts) == [(*piece[0], len(piece)) for lane in expected for piece in lane]
    edges = np.cumsum([0, *map(len, expected)])
    assert pieces.lanes.tolist() == edges.tolist()
    line = line_up(pieces, seed=seed, epoch=epoch, shuffle=True)
    numbers = [reference.permutation(reference.key(seed, 1, epoch, c), len(own)) for c, own in enumerate(expected)]
    assert line.pieces.tolist() == [int(a) + n for a, own in zip(edges[:-1], numbers, strict=True) for n in own]
    assert line.starts.tolist() == (np.cumsum(pieces.sizes[line.pieces]) - pieces.sizes[line.pieces]).tolist()


@given(st.integers(0, 400), lane_numbers)
def test_lanes_are_back_to_back_with_equal_lengths(samples: int, lanes: int) -> None:
    starts = lane_starts(samples, lanes).tolist()
    lengths = [reference.lane_length(samples, lanes, c) for c in range(lanes)]
    assert starts == [sum(lengths[:c]) for c in range(lanes + 1)]


def test_without_shuffle_pieces_stay_in_order() -> None:
    counts = np.array([40, 0, 3])
    pieces = cut(counts, seed=5, lanes=1, block=10**6, shuffle=False)
    assert [part.tolist() for part in (pieces.shards, pieces.firsts, pieces.sizes)] == [[0, 2], [0, 0], [40, 3]]
    line = line_up(pieces, seed=5, epoch=1, shuffle=False)
    assert [line.pieces.tolist(), line.starts.tolist()] == [[0, 1], [0, 40]]


def test_limits_of_an_order_are_inclusive() -> None:
    for options in ({"seed": 2**64 - 1}, {"epoch": 2**64 - 1}, {"shuffle_block": 2**62}, {"lanes": 1}, {"seed": 0}):
        order = Order([1], **{"lanes": 2, **options})  # type: ignore[arg-type]
        assert [getattr(order, name) for name in options] == list(options.values())
    assert len(Order([2**62 - 1], lanes=1)) == 2**62 - 1
    with pytest.raises(UsageError, match="shuffle_block is out of range"):
        Order([1], shuffle_block=2**62 + 1)
    with pytest.raises(UsageError, match="too many samples in all"):
        Order([2**62 - 1, 1], lanes=1)


@pytest.mark.parametrize("epoch", [-1, 2**64, 1.5])
def test_another_epoch_out_of_range_is_named(epoch: Any) -> None:
    order = Order([5])
    with pytest.raises(UsageError, match=r"^epoch "):
        order.at_epoch(epoch)
    assert order.at_epoch(2**64 - 1).epoch == 2**64 - 1


def test_an_order_has_plain_defaults() -> None:
    order = Order([3])
    assert (order.seed, order.epoch, order.shuffle, order.lanes, order.shuffle_block) == (0, 0, True, 1, 192)
    assert Order([3], shuffle=1).shuffle is True  # type: ignore[arg-type]
    assert default_shuffle_block(0, 0) == default_shuffle_block(0, 5) == 1
    assert default_shuffle_block(100, 0) == 6400
    with pytest.raises(AttributeError, match=r"immutable \(seed\)"):
        order.seed = 1
    with pytest.raises(AttributeError, match=r"immutable \(seed\)"):
        del order.seed


def test_at_epoch_gives_a_copy_that_shares_no_blocks() -> None:
    order = Order([50] * 3, seed=1, lanes=2, shuffle_block=16)
    places(order)
    same, other = order.at_epoch(0), order.at_epoch(1)
    assert (order.epoch, same.epoch, other.epoch) == (0, 0, 1)
    assert same._line is order._line, "the same epoch's line is not computed again"
    assert not any(same._tiles)
    assert len(same._tiles) == len(order._tiles) == 4, "two blocks of each lane"


@pytest.mark.parametrize(("lanes", "shuffle_block"), [(1, 1), (1, 700), (3, 1), (3, 2000), (64, 1), (64, 80_000)])
def test_a_long_epoch_follows_the_specification_across_tiles(lanes: int, shuffle_block: int) -> None:
    """Small blocks are computed together, as tiles of 65,536 samples."""
    counts = [90_001, 3, 0, 110_000]
    order = Order(counts, seed=6, epoch=2, lanes=lanes, shuffle_block=shuffle_block)
    positions = np.random.default_rng(1).integers(0, 200_004, 12).tolist()
    expected = [reference.place_at(p, counts, 6, 2, lanes, shuffle_block) for p in positions]
    assert places(order, positions) == expected
