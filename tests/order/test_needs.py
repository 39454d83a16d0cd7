"""Which shards a rank needs next, and how many at once: what the prefetch and the cache's warning go by."""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdsx.errors import UsageError
from mdsx.order import Order, active_shards, rank_positions, shards_needed
from tests.order import reference
from tests.order.strategies import orders


def needs_by_reading(order: Order, start: int, stop: int, size: int, rank: int, world_size: int) -> dict[int, int]:
    """By shard, in the order of first need: the start of the batch. Found by reading it all."""
    needs: dict[int, int] = {}
    for begin in range(start, stop, size):
        positions = rank_positions(begin, min(begin + size, stop), lanes=order.lanes, rank=rank, world_size=world_size)
        for shard in order.locate(positions)[0].tolist():
            needs.setdefault(shard, begin)
    return needs


@given(orders(), st.integers(1, 40), st.integers(1, 5), st.data())
def test_shards_come_in_the_order_of_first_need(order: Order, size: int, world_size: int, data: Any) -> None:
    start = data.draw(st.integers(0, len(order)))
    stop = data.draw(st.one_of(st.none(), st.integers(start, len(order))))
    rank = data.draw(st.integers(0, world_size - 1))
    needed = list(shards_needed(order, start=start, batch_size=size, rank=rank, world_size=world_size, stop=stop))
    end = len(order) if stop is None else stop
    assert needed == list(needs_by_reading(order, start, end, size, rank, world_size).items())


@pytest.mark.parametrize(("size", "world_size"), [(64, 1), (96, 3), (35, 7), (512, 8), (5000, 2)])
def test_also_over_many_blocks_and_lanes_that_ranks_share(size: int, world_size: int) -> None:
    order = Order([100, 0, 350, 1, *[217] * 90], seed=6, epoch=2, shuffle_block=1000)
    for rank in range(world_size):
        needed = list(shards_needed(order, start=1234, batch_size=size, rank=rank, world_size=world_size))
        assert needed == list(needs_by_reading(order, 1234, len(order), size, rank, world_size).items())


def test_the_first_shards_are_known_at_once_however_large_the_epoch() -> None:
    order = Order(np.full(200_000, 5_000_000), seed=1)  # 10^12 samples
    began = time.process_time()
    needs = shards_needed(order, start=10**11, batch_size=256, rank=3, world_size=8)
    first = next(needs)
    assert time.process_time() - began < 0.5
    assert first[1] == 10**11
    later = list(itertools.islice(needs, 5))
    assert all(position >= 10**11 and (position - 10**11) % 256 == 0 for _, position in later)
    assert time.process_time() - began < 5


def test_looking_ahead_costs_far_less_than_reading() -> None:
    order = Order(np.full(96, 10**7), seed=1)
    began = time.process_time()
    assert len(list(shards_needed(order, start=0, batch_size=512, rank=5, world_size=8))) == 12
    assert time.process_time() - began < 3, "120,000,000 positions of this rank, of which few are computed"


def test_looking_ahead_leaves_the_reader_its_blocks() -> None:
    order = Order(np.full(1000, 1000), seed=1)
    order.locate(range(64))
    in_use = list(order._tiles)
    assert len(list(shards_needed(order, start=0, batch_size=64, rank=0, world_size=1))) == 1000
    assert all(before is after for before, after in zip(in_use, order._tiles, strict=True))


def test_nothing_is_needed_where_nothing_is_left() -> None:
    assert list(shards_needed(Order([5]), start=5, batch_size=2, rank=0, world_size=1)) == []
    assert list(shards_needed(Order([]), start=0, batch_size=2, rank=0, world_size=1)) == []


@pytest.mark.parametrize(
    "options", [{"start": 11}, {"start": -1}, {"stop": 11}, {"batch_size": 0}, {"rank": 1}, {"world_size": 0}]
)
def test_what_cannot_be_meant_is_refused_by_the_call_itself(options: dict[str, Any]) -> None:
    arguments = {"start": 0, "batch_size": 2, "rank": 0, "world_size": 1, **options}
    with pytest.raises(UsageError):
        shards_needed(Order([10]), **arguments)


@given(orders(st.just(True)), st.data())
def test_active_shards_are_those_that_the_current_blocks_draw_on(order: Order, data: Any) -> None:
    position = data.draw(st.integers(0, len(order)))
    lanes = sorted(data.draw(st.sets(st.integers(0, order.lanes - 1), max_size=5)))
    blocks = reference.epoch_lanes(order.counts.tolist(), order.seed, order.epoch, order.lanes, order.shuffle_block)
    expected: set[int] = set()
    for lane in lanes:
        left = len(range(lane, position, order.lanes))  # offsets of this lane that are behind us
        for block in blocks[lane]:
            if 0 <= left < len(block):
                expected.update(shard for shard, _ in block)
            left -= len(block)
    assert active_shards(order, position, lanes) == len(expected)


def test_active_shards_stay_near_64_and_two_a_lane() -> None:
    for samples in (10, 1000, 4096):
        order = Order(np.full(2000, samples), seed=2)
        active = [active_shards(order, position) for position in range(0, len(order), len(order) // 20)]
        assert 16 < max(active) <= 64 + 2 * order.lanes
    order = Order(np.full(2000, 10**6), seed=2)
    assert active_shards(order, 10**8) <= 2 * order.lanes, "of large shards only a part at a time"
    assert active_shards(order, 10**8, [3]) <= 2
    assert active_shards(order, len(order)) == 0
