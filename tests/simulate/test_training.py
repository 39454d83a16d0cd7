"""Simulated ranks run the loader's own code: each sample is read, and the cache stays within its limit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mdsx.order import DatasetCourse, Order
from mdsx.simulate.clock import World
from mdsx.simulate.course import NodeCourse, node_lanes, pieces_of, shards_between
from mdsx.simulate.link import Link
from mdsx.simulate.node import Node
from mdsx.simulate.settings import Cluster, Loading
from mdsx.simulate.stored import Stored, made_up
from mdsx.simulate.training import Data, SimulatedNode, train
from mdsx.simulate.view import Fetched
from mdsx.stream import Cursor, SampleSteps

STORED = made_up(20_000, 1000, 2**17)
CLUSTER = Cluster(1, 1, 2**30, 20e6, 0.01)
LOADING = Loading(32, 0, False, 0.002)


def simulated(
    cluster: Cluster, loading: Loading, *, epochs: int = 1, stored: Stored = STORED, ranks: range | None = None
) -> SimulatedNode:
    """Return one node after its epochs."""
    world = World()
    node = SimulatedNode(
        0, ranks or range(cluster.ranks_per_node),
        Node(world, cluster.cache), Link(world, cluster.rate, cluster.latency),
        Fetched(),
    )  # fmt: skip
    course = DatasetCourse(Order(stored.counts, seed=0, shuffle=True, lanes=8))
    steps = SampleSteps(course.epoch_samples, loading.batch_size, cluster.world_size, loading.drop_last)
    data = Data(course, lambda rank: steps, stored)
    train([(node, data)], world, cluster, loading, [Cursor(epoch) for epoch in range(epochs)], None)
    return node


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("ranks", [1, 3])
def test_with_room_for_all_each_shard_comes_once_in_two_epochs(workers: int, ranks: int) -> None:
    node = simulated(replace(CLUSTER, ranks_per_node=ranks), replace(LOADING, num_workers=workers), epochs=2)
    assert sorted(node.fetched.whole) == [*range(len(STORED.counts))]
    assert node.cache.peak == STORED.cached.sum()
    assert {len(waits) for waits in node.waits.values()} == {2 * -(-20_000 // (32 * ranks))}


def test_a_cache_that_is_too_small_costs_bytes_and_never_exceeds_its_limit() -> None:
    half = int(STORED.cached.sum()) // 2
    node = simulated(replace(CLUSTER, cache=half), LOADING, epochs=2)
    assert node.cache.peak <= half
    assert len(node.fetched.whole) > len(STORED.counts)


def test_a_link_slower_than_the_steps_makes_them_wait_for_what_is_missing() -> None:
    slow = simulated(replace(CLUSTER, rate=4e6), LOADING)
    steps = len(slow.waits[0]) * LOADING.step
    least = slow.link.bytes / 4e6 - steps  # if the last byte came before the last step
    assert least < sum(slow.waits[0]) < least + 0.5
    fast = simulated(replace(CLUSTER, rate=400e6), LOADING)
    assert sum(fast.waits[0]) < 0.1


def test_the_same_settings_give_the_same_result() -> None:
    first, second = (simulated(replace(CLUSTER, cache=2**23), LOADING, epochs=2) for _ in range(2))
    assert first.waits == second.waits
    assert (first.link.bytes, first.link.requests) == (second.link.bytes, second.link.requests)


def test_a_node_that_knows_only_its_own_shards_decides_the_same() -> None:
    """The shards that a node does not read are left out of the vector of needs, and nothing changes."""
    order = Order(STORED.counts, seed=0, shuffle=True, lanes=4, shuffle_block=512)
    cluster = Cluster(2, 2, 2**22, 20e6, 0.01)
    steps = SampleSteps(len(order), 32, 4, True)
    found = []
    for restricted in (False, True):
        world, ranks = World(), range(2)
        node = SimulatedNode(0, ranks, Node(world, cluster.cache), Link(world, 20e6, 0.01), Fetched())
        data = Data(DatasetCourse(order), lambda rank: steps, STORED)
        if restricted:
            pieces, lanes = pieces_of(order), node_lanes(order, steps.step_samples, ranks, 4)
            chosen = shards_between(pieces, lanes, 0, 60 * steps.step_samples, order=order, world_size=4)
            assert len(chosen) < len(STORED.counts)
            data = Data(NodeCourse(order, pieces, chosen), lambda rank: steps, STORED.chosen(chosen))
        train([(node, data)], world, cluster, LOADING, [Cursor()], 60)
        found.append((node.link.bytes, node.link.requests, node.waits))
    assert found[0] == found[1]
