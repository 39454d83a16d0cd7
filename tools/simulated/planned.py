"""The same setting, simulated from the dataset's index."""

from __future__ import annotations

import mdsx
from mdsx.order import DatasetCourse, Order
from mdsx.shards import View
from mdsx.simulating.clock import World
from mdsx.simulating.link import Link
from mdsx.simulating.node import Node
from mdsx.simulating.settings import Cluster, Loading
from mdsx.simulating.stored import stored_in
from mdsx.simulating.training import Data, SimulatedNode, train
from mdsx.simulating.view import Fetched
from mdsx.stream import Batching
from tools.simulated.exact import ReadShards
from tools.simulated.measured import Found, Place


def simulate(place: Place, latency: float) -> Found:
    """Simulate the setting, on a link whose requests take `latency` seconds."""
    setting = place.setting
    cache = mdsx.Cache(place.scratch / "no-cache", place.limit)
    view = View([mdsx.Dataset(place.url, cache=cache, storage_options=place.options(place.server.endpoint)).excerpt])
    stored = stored_in(view)
    if setting.needs_shards:
        stored = ReadShards.of(stored, view.parts[0].shards.index, place.folder)
    world, ranks = World(), range(setting.ranks)
    cluster = Cluster(1, setting.ranks, place.limit, setting.rate, latency)
    loading = Loading(setting.batch, setting.workers, 2, True, setting.step)
    link = Link(world, setting.rate, latency)
    node = SimulatedNode(0, ranks, Node(world, place.limit), link, Fetched())
    course = DatasetCourse(Order(view.counts, seed=0, shuffle=True, shuffle_block=setting.block))
    steps = Batching(course.epoch_samples, setting.batch, setting.ranks, True)
    train([(node, Data(course, lambda rank: steps, stored))], world, cluster, loading, _passes(setting.epochs), None)
    waits = [node.steps[rank].waited for rank in ranks]
    return Found(
        link.bytes,
        node.fetched.whole,
        link.requests - node.fetched.whole,
        waits,
        max(each[0] for each in waits),
        latency,
    )


def _passes(epochs: int) -> list[tuple[int, int]]:
    return [(epoch, 0) for epoch in range(epochs)]
