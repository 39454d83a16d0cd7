"""The advice about lanes and caches: which of them fit a job, and when a warning names better ones."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdsx.errors import UsageError
from mdsx.order import (
    DatasetCourse,
    Order,
    better_lanes,
    block_bytes,
    fitting_lanes,
    lanes_for_nodes,
    own_lanes,
    room_ahead,
    shared_lanes,
    small_cache,
)


def apart(lanes: int, batch: int, world_size: int) -> bool:
    return not batch % lanes and (not lanes % world_size or not world_size % lanes)


# --- lanes


@given(st.integers(1, 300), st.integers(1, 70), st.integers(1, 12))
def test_better_lanes_are_the_nearest_that_keep_ranks_apart(batch: int, lanes: int, world_size: int) -> None:
    fits = [n for n in range(1, min(batch, 4 * lanes) + 1) if apart(n, batch, world_size)]
    nearest = min(fits, key=lambda n: abs(math.log(n / lanes)))
    assert better_lanes(batch, lanes=lanes, world_size=world_size) == nearest


def test_better_lanes_are_at_most_four_times_as_many() -> None:
    assert better_lanes(29, lanes=8, world_size=1) == 29
    assert better_lanes(29, lanes=7, world_size=1) == 1, "29 is more than 4 * 7"
    assert better_lanes(37, lanes=8, world_size=1) == 1


@pytest.mark.parametrize("name", ["global_batch_size", "lanes", "world_size"])
def test_a_wrong_number_is_named(name: str) -> None:
    with pytest.raises(UsageError, match=f"^{name} is out of range"):
        better_lanes(**{"global_batch_size": 64, "lanes": 8, "world_size": 4, name: 0})


def test_lanes_keep_nodes_apart_before_ranks() -> None:
    assert better_lanes(12, lanes=4, world_size=6) == 3, "with 3 lanes, 2 nodes share one"
    assert lanes_for_nodes(12, lanes=4, world_size=6, nodes=2) == 4
    assert better_lanes(24, lanes=8, world_size=2) == 8
    assert lanes_for_nodes(24, lanes=8, world_size=6, nodes=2) == 6, "which keeps ranks apart, too"


@given(st.integers(1, 400), st.integers(1, 4), st.integers(1, 4))
def test_fitting_lanes_are_all_multiples_of_the_nodes_that_keep_ranks_apart(batch: int, nodes: int, each: int) -> None:
    world_size = nodes * each
    found = [n for n in range(1, batch + 1) if not n % nodes and apart(n, batch, world_size)]
    near = [better_lanes(batch, lanes=world_size, world_size=world_size)]
    assert fitting_lanes(batch, world_size=world_size, nodes=nodes) == (found or near)


def test_lanes_that_keep_only_ranks_apart_do_not_fit() -> None:
    assert fitting_lanes(6, world_size=6, nodes=2) == [2, 6], "not 3"


def test_fitting_lanes_are_at_most_8192_or_the_nodes() -> None:
    assert fitting_lanes(2**15, world_size=4096, nodes=4096) == [4096, 8192]
    assert fitting_lanes(2 * 8193, world_size=1, nodes=1)[-1] == 5462, "8,193 is one too many"
    assert fitting_lanes(20_000, world_size=10_000, nodes=10_000) == [10_000]


def test_a_node_reads_the_lanes_of_its_ranks() -> None:
    assert own_lanes(8, ranks_here=2, world_size=4) == 4
    assert own_lanes(4, ranks_here=8, world_size=16) == 2, "four ranks share one"
    assert own_lanes(11, ranks_here=1, world_size=4) == 4, "the third node has ends of two others"
    assert own_lanes(3, ranks_here=1, world_size=2) == 3, "there are no more"


def warns_of_sharing(lanes: int, batch: int, ranks_here: int, world_size: int) -> str | None:
    course = DatasetCourse(Order([100] * 16, lanes=lanes))
    return shared_lanes(course, batch, ranks_here=ranks_here, world_size=world_size)


def test_ranks_of_one_node_may_share_lanes() -> None:
    assert warns_of_sharing(lanes=8, batch=96, ranks_here=3, world_size=3) is None
    assert warns_of_sharing(lanes=8, batch=96, ranks_here=1, world_size=3) is not None


def test_nodes_may_share_lanes_only_as_far_as_they_must() -> None:
    assert warns_of_sharing(lanes=8, batch=64, ranks_here=2, world_size=4) is None
    assert warns_of_sharing(lanes=4, batch=64, ranks_here=1, world_size=8) is None, "two nodes for each lane"
    assert warns_of_sharing(lanes=8, batch=96, ranks_here=1, world_size=12) is not None, "1.5 nodes for each lane"


def test_a_warning_of_shared_lanes_names_lanes_that_avoid_it() -> None:
    message = warns_of_sharing(lanes=5, batch=30, ranks_here=2, world_size=3)  # the second node has one rank
    assert message is not None
    assert message.startswith("with 5 lanes and a global batch of 30 samples, some of the 2 nodes share lanes")
    assert "downloaded about 1.2 times over all nodes instead of 1;" in message
    better = int(re.findall(r"Shuffle\(lanes=(\d+)\)", message)[0])
    assert better == lanes_for_nodes(30, lanes=5, world_size=3, nodes=2) == 6
    assert warns_of_sharing(better, batch=30, ranks_here=2, world_size=3) is None


# --- caches


@pytest.mark.parametrize(
    ("block", "largest", "spare", "expected"),
    [
        (5, 1, None, 5),
        (2**31, 1, None, 2**30),
        (10, 3, 103, 25),  # a fourth of the spare bytes
        (40, 3, 100, 40),  # the next block needs more
        (200, 3, 100, 100),  # but there is no room
        (10, 3, 10_000, 192),  # more than 64 shards do not help
        (10, 2**25, 2**40, 2**30),
        (1, 50, 20, 50),  # a shard at least
    ],
)
def test_a_process_prefetches_what_helps_and_has_room(
    block: int, largest: int, spare: int | None, expected: int
) -> None:
    assert room_ahead(block, largest, spare) == expected


def test_a_block_of_a_lane_has_its_part_of_all_bytes() -> None:
    assert block_bytes(1000, samples=100, lanes=4, shuffle_block=40) == 100
    assert block_bytes(1000, samples=1, lanes=4, shuffle_block=2) == 500
    assert block_bytes(0, samples=0, lanes=4, shuffle_block=40) == 0


COURSE = DatasetCourse(Order([100] * 40, seed=1, lanes=4, shuffle_block=400))
ONE_BY_ONE = DatasetCourse(Order([100] * 40, seed=1, lanes=4, shuffle_block=4))
"""Its blocks have one sample each."""


def warns_of_cache(
    course: DatasetCourse, limit: int | None, *, window: int = 0, ranks_here: int = 1, shards: int = 40
) -> str | None:
    return small_cache(
        course,
        limit,
        lambda number: 1000 * number,
        shards=shards,
        window=window,
        ranks_here=ranks_here,
        world_size=2,
    )


@pytest.mark.parametrize("ranks_here", [1, 2])
def test_a_cache_must_hold_the_shards_of_the_blocks_in_use(ranks_here: int) -> None:
    active = COURSE.active_shards(2 * ranks_here)
    needed = 1000 * active
    assert warns_of_cache(COURSE, needed, ranks_here=ranks_here) is None
    message = warns_of_cache(COURSE, needed // 2, ranks_here=ranks_here)
    assert message is not None
    assert f"about {active} shards ({needed / 1000:.3g} kB) are in use" in message
    assert "about 50% of the samples will be fetched one by one" in message
    assert "up to 2,000 requests to storage instead of 40," in message
    less = "fewer than 4 lanes and a smaller shuffle_block than 400, as mdsx doctor --cache-limit recommends"
    assert message.endswith(f"give cache=mdsx.Cache(limit={needed}) or more, or {less}")


def test_one_lane_cannot_become_fewer() -> None:
    course = DatasetCourse(Order([100] * 40, seed=1, lanes=1, shuffle_block=400))
    message = str(warns_of_cache(course, 1000))
    assert message.endswith(" or more, or a smaller shuffle_block than 400, as mdsx doctor --cache-limit recommends")


def test_an_epoch_has_at_least_one_request_for_each_shard() -> None:
    needed = 1000 * COURSE.active_shards(2)
    assert "up to 40 requests to storage instead of 40," in str(warns_of_cache(COURSE, needed - 1))


@pytest.mark.parametrize(
    ("window", "ranks_here", "active"),
    [
        (1000, 2, 10),
        (1001, 2, 11),  # a part of the last shard
        (1001, 1, 5),  # a node with half of the lanes
        (10**6, 2, 40),  # there are no more
    ],
)
def test_a_cache_must_hold_the_shards_of_a_window(window: int, ranks_here: int, active: int) -> None:
    needed = 1000 * active
    assert warns_of_cache(ONE_BY_ONE, needed, window=window, ranks_here=ranks_here) is None
    message = str(warns_of_cache(ONE_BY_ONE, needed - 1, window=window, ranks_here=ranks_here))
    assert f"about {active} shards" in message
    assert message.endswith(f"limit={needed}) or more, or a smaller window")


def test_a_window_that_needs_no_more_than_the_blocks_is_not_to_blame() -> None:
    assert ONE_BY_ONE.active_shards(2) == 2
    assert str(warns_of_cache(ONE_BY_ONE, 1999, window=400)).endswith(
        " shuffle_block than 4, as mdsx doctor --cache-limit recommends"
    )


def test_shards_read_in_place_and_empty_datasets_need_no_cache() -> None:
    assert warns_of_cache(COURSE, None) is None
    assert warns_of_cache(DatasetCourse(Order([0], lanes=4)), 1, shards=1) is None
