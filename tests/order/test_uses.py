"""When a shard is drawn on: so that a cache gives up first what is needed last."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mdsx.order import DatasetCourse, MixtureCourse, MixtureOrder, Order
from mdsx.order.needs import NEVER, ShardUses

orders = st.fixed_dictionaries(
    {
        "counts": st.lists(st.integers(0, 30), min_size=1, max_size=12),
        "seed": st.integers(0, 5),
        "epoch": st.integers(0, 3),
        "lanes": st.sampled_from([1, 2, 3, 8]),
        "shuffle_block": st.integers(1, 64),
        "shuffle": st.booleans(),
    }
)


@given(orders)
@settings(max_examples=100)
def test_a_shard_is_read_only_while_its_pieces_blocks_last(options: dict[str, Any]) -> None:
    order = Order(**options)
    uses = ShardUses(order)
    shards, _ = order.locate(range(len(order)))
    for shard in range(len(options["counts"])):
        read = np.flatnonzero(shards == shard).tolist()
        for position in read:
            assert uses.until(shard, position) > position
        for position in range(len(order)):
            used_up = uses.until(shard, position) <= position
            following = uses.after(shard, position)
            later = [place for place in read if place > position]
            if used_up and later:  # nothing is read before the position that is named
                assert following is not None
                assert following <= min(later)
            if used_up and following is None:
                assert not later


@given(orders, st.integers(0, 2))
@settings(max_examples=60)
def test_the_next_needs_of_all_shards_are_those_of_each(options: dict[str, Any], epoch: int) -> None:
    course = DatasetCourse(Order(**options))
    n, counts = course.samples, options["counts"]
    if not n:
        assert (course.next_needs(0) == NEVER).all()
        return
    shards, _ = course.locate(np.arange(epoch * n, (epoch + 2) * n))
    for position in range(epoch * n, (epoch + 1) * n, max(n // 5, 1)):
        needs = course.next_needs(position)
        for shard in range(len(counts)):
            read = [epoch * n + place for place in np.flatnonzero(shards == shard).tolist()]
            read = [place for place in read if place >= position]
            assert needs[shard] >= NEVER if counts[shard] == 0 else position <= needs[shard] <= min(read)
            if counts[shard] and needs[shard] > position:  # not drawn on now: as it would be told when it is let go
                assert needs[shard] == course.next_use(shard, position)


def test_the_next_use_lies_in_the_next_epoch_where_this_one_is_done_with_the_shard() -> None:
    course = DatasetCourse(Order([10] * 100, seed=1, lanes=4, shuffle_block=40))
    now, later = (course.locate(np.arange(start, start + 1000))[0] for start in (0, 1000))
    for shard in range(100):
        assert course.used_until(shard, int(np.flatnonzero(now == shard)[0])) <= 1000
        following = course.next_use(shard, 999)
        assert following <= 1000 + int(np.flatnonzero(later == shard)[0])
        assert following > 1000 + int(np.flatnonzero(later == shard)[0]) - 2 * 40 - 8  # and not far before it


def test_in_a_mixture_it_is_an_epoch_of_the_component_away() -> None:
    order = MixtureOrder([[100] * 4, [100] * 2], [3, 1], seed=1, phases=[(5000, [1, 0])])
    course = MixtureCourse(order, np.array([0, 4, 6]))
    assert course.next_use(1, 100) == 100 + 400 * 4 // 3
    assert course.next_use(5, 100) == 100 + 200 * 4
    assert course.next_use(5, 6000) > 2**60  # no weight: not needed any more
