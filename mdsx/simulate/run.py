"""The simulated training: exact if that is quick, otherwise some nodes and a stretch of the epoch, scaled up.

To scale up, a node's needs in the whole epoch are computed exactly (needs.py). The simulated stretch shows how often
their bytes are fetched, and how long a step waits. The stretch begins cold, so waits in its first half count only for
that half.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from mdsx.errors import UsageError
from mdsx.order import Order
from mdsx.simulate.clock import World
from mdsx.simulate.course import NodeCourse, Pieces, last_lanes, node_lanes, pieces_of, shards_between
from mdsx.simulate.link import Link
from mdsx.simulate.needs import NodeNeeds, needs_of_nodes, ranks_of
from mdsx.simulate.node import Node
from mdsx.simulate.settings import Cluster, Loading
from mdsx.simulate.source import SimulatedData
from mdsx.simulate.training import Data, SimulatedNode, train
from mdsx.simulate.view import Fetched
from mdsx.stream import Cursor

_EXACT = 12.0  # seconds that an exact simulation may take
_PER_STEP, _PER_SHARD, _PER_VALUE = 3e-5, 1e-3, 2e-7  # seconds: of each rank's step, each fetch, each shard per fetch
_NODES = 3  # simulated if not all are
_BLOCKS = 6  # in a stretch
_LEAST, _MOST = 16, 4096  # steps of a stretch
_BUSIEST = 100  # steps examined for the busiest rank
_FETCHES = 500  # about this many per node in a stretch


@dataclass(frozen=True)
class SimulationPlan:
    """What to simulate: everything, or `nodes` for `steps` of one epoch."""

    exact: bool
    nodes: Sequence[int]
    steps: int | None
    epochs: int


class Simulation:
    """A run of `source` on `cluster`."""

    def __init__(self, source: SimulatedData, cluster: Cluster, loading: Loading, *, epochs: int = 1) -> None:
        if epochs < 1:
            raise UsageError("epochs must be at least 1", found=epochs)
        if len(source.stored.cached) and cluster.cache < int(source.stored.cached.max()):
            raise UsageError(
                "the cache cannot hold the largest shard",
                hint=f"give --cache-limit {int(source.stored.cached.max())} or more",
                found=f"a limit of {cluster.cache} bytes, and a shard of {int(source.stored.cached.max())}",
            )
        self.source, self.cluster, self.loading = source, cluster, loading
        self._steps = source.steps(cluster, loading)
        first = self._steps(0)
        first.check(0)
        self.step_samples = first.step_samples
        self.steps_of_epoch = max(-(-source.course.epoch_samples // self.step_samples), 1)
        with suppress(TypeError):  # for groups, it is unknown
            self.steps_of_epoch = first.count(Cursor())
        self._order: Order | None = source.order if source.grouping is None else None
        self._pieces: Pieces | None = None
        self.needs: list[NodeNeeds] = []
        if self._order is not None:
            self._pieces = pieces_of(self._order)
            self.needs = needs_of_nodes(self._order, self._pieces, source.stored, cluster, self.step_samples)
        self._needs_of = {0: self.needs}
        self.plan = self._planned(epochs)

    def run(self) -> list[SimulatedNode]:
        """Simulate the run from its start, and return the nodes at the end."""
        return self.train(self.cluster, self.plan.nodes, [Cursor(epoch) for epoch in range(self.plan.epochs)])

    def train(
        self,
        cluster: Cluster,
        numbers: Sequence[int],
        passes: list[Cursor],
        *,
        most: int | None = None,
        caches: Sequence[Node] = (),
    ) -> list[SimulatedNode]:
        """Simulate these nodes of a cluster; the first of them begin with the content of `caches`. `most`: steps in
        each pass; the default is the plan's."""
        most = self.plan.steps if most is None else most
        world = World()
        steps = self._steps if cluster == self.cluster else self.source.steps(cluster, self.loading)
        nodes = []
        for number in numbers:
            cache = Node(world, cluster.cache)
            node = SimulatedNode(
                number, ranks_of(number, cluster), cache, Link(world, cluster.rate, cluster.latency), Fetched()
            )
            data = Data(self.source.course, steps, self.source.stored)
            if most is not None and self._order is not None and self._pieces is not None:
                data = self._excerpt(cluster, node, data, passes[0].position, most)
            if number < len(caches):
                cache.take_over(caches[number])
            nodes.append((node, data))
        train(nodes, world, cluster, self.loading, passes, most)
        return [node for node, _ in nodes]

    def needs_at(self, epoch: int) -> list[NodeNeeds]:
        """Return what each node needs in an epoch of a dataset."""
        assert self._order is not None
        if epoch not in self._needs_of:
            order = self._order.at_epoch(epoch)
            self._needs_of[epoch] = needs_of_nodes(
                order, pieces_of(order), self.source.stored, self.cluster, self.step_samples
            )
        return self._needs_of[epoch]

    def minimum_of_all(self, cluster: Cluster | None = None, start: int = 0) -> int:
        """Return the bytes that all nodes of a cluster need from a position of the first epoch on, each shard once per
        node."""
        if self.needs and cluster is None and not start:
            return sum(each.bytes for each in self.needs)
        cluster = self.cluster if cluster is None else cluster
        if self._order is None or self._pieces is None:
            left = 1 - start / max(self.source.course.epoch_samples, 1)
            return int(self.source.stored.sent.sum() * left) * cluster.nodes
        size = self.loading.batch_size * cluster.world_size
        needs = needs_of_nodes(self._order, self._pieces, self.source.stored, cluster, size, start=start)
        return sum(each.bytes for each in needs)

    def busiest(self) -> dict[str, float]:
        """Return the busiest rank's cost over the mean, in the first steps of an epoch; empty without balance."""
        found = self._steps(0).busiest(_BUSIEST, self.loading.micro_batch)
        if found is None:
            return {}
        dealt, plain = found
        of_steps = {"step": dealt.step, "step_without": plain.step}
        if dealt.micro_batch is None or plain.micro_batch is None:
            return of_steps
        return {**of_steps, "micro_batch": dealt.micro_batch, "micro_batch_without": plain.micro_batch}

    # --- inside

    def _planned(self, epochs: int) -> SimulationPlan:
        cluster, shards = self.cluster, len(self.source.stored.counts)
        fetches = sum(len(each.shards) for each in self.needs) if self.needs else cluster.nodes * shards
        if cluster.cache < int(self.source.stored.cached.sum()):  # shards may be fetched more than once
            fetches *= 2 * epochs
        per_fetch = _PER_SHARD + shards * _PER_VALUE
        steps = epochs * self.steps_of_epoch * cluster.world_size
        if steps * _PER_STEP + fetches * per_fetch <= _EXACT:
            return SimulationPlan(True, range(cluster.nodes), None, epochs)
        nodes = sorted({round(n * (cluster.nodes - 1) / max(_NODES - 1, 1)) for n in range(_NODES)})
        ranks = len(nodes) * cluster.ranks_per_node
        affordable = int(_EXACT / (_PER_STEP * ranks))
        if self._order is not None:
            blocks = _BLOCKS * self._order.shuffle_block // self.step_samples
            most = max((len(each.shards) for each in self.needs), default=1)
            by_fetches = _FETCHES * self.steps_of_epoch // max(most, 1)
            affordable = min(affordable, max(min(blocks, 4 * by_fetches), by_fetches))
        else:
            affordable = min(affordable, int(_EXACT / per_fetch) * self.steps_of_epoch // max(shards, 1))
        return SimulationPlan(False, nodes, min(max(affordable, _LEAST), _MOST, self.steps_of_epoch), 1)

    def _excerpt(self, cluster: Cluster, node: SimulatedNode, data: Data, start: int, most: int) -> Data:
        """Return the same data with only the shards that the node needs in the stretch."""
        assert self._order is not None
        assert self._pieces is not None
        size = self.loading.batch_size * cluster.world_size
        lanes = node_lanes(self._order, size, node.ranks, cluster.world_size)
        lanes |= last_lanes(self._order, size, node.ranks, cluster.world_size)
        chosen = shards_between(
            self._pieces, lanes, start, start + most * size, order=self._order, world_size=cluster.world_size
        )
        return Data(NodeCourse(self._order, self._pieces, chosen), data.steps, data.stored.chosen(chosen))
