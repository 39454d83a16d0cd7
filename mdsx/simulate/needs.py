"""Compute exactly what each node needs in an epoch, from the order alone: which shards, and how many bytes at a
time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mdsx.order import Order
from mdsx.simulate.course import Pieces, most_at_a_time, node_lanes
from mdsx.simulate.settings import Cluster
from mdsx.simulate.stored import Stored


@dataclass(frozen=True, slots=True)
class NodeNeeds:
    """What one node reads in an epoch.

    Attributes:
        lanes: bool [lanes]: the lanes that its ranks read.
        shards: int64: the shards, ascending.
        bytes: Their bytes, as sent.
        at_a_time: The most bytes of shards, as cached, that are in use at a time.
    """

    lanes: NDArray[np.bool_]
    shards: NDArray[np.int64]
    bytes: int
    at_a_time: int


def needs_of_nodes(
    order: Order, pieces: Pieces, stored: Stored, cluster: Cluster, batch_size: int, *, start: int = 0
) -> list[NodeNeeds]:
    """Return the needs of all nodes from position `start` of the epoch on. `batch_size`: the global batch size. Nodes
    with the same lanes share one result."""
    found: dict[bytes, NodeNeeds] = {}
    result = []
    for node in range(cluster.nodes):
        lanes = node_lanes(order, batch_size, ranks_of(node, cluster), cluster.world_size)
        key = lanes.tobytes()
        if key not in found:
            own = pieces.of(lanes)
            found[key] = _needs(lanes, own[pieces.stops[own] > start], pieces, stored)
        result.append(found[key])
    return result


def ranks_of(node: int, cluster: Cluster) -> range:
    """Return the ranks on a node."""
    return range(node * cluster.ranks_per_node, (node + 1) * cluster.ranks_per_node)


def _needs(lanes: NDArray[np.bool_], own: NDArray[np.int64], pieces: Pieces, stored: Stored) -> NodeNeeds:
    numbers, starts, stops = pieces.shards[own], pieces.starts[own], pieces.stops[own]
    shards, times = np.unique(numbers, return_counts=True)
    if (times > 1).any():
        _join(numbers, starts, stops)
    return NodeNeeds(
        lanes, shards, int(stored.sent[shards].sum()), most_at_a_time(starts, stops, stored.cached[numbers])
    )


def _join(numbers: NDArray[np.int64], starts: NDArray[np.int64], stops: NDArray[np.int64]) -> None:
    """Cut the ranges of a shard's pieces, which may be in several lanes, so that they do not overlap."""
    by_shard = np.lexsort((starts, numbers))
    of_same, begins, ends = numbers[by_shard], starts[by_shard], stops[by_shard]
    again = of_same[1:] == of_same[:-1]
    while (later := again & (ends[1:] < ends[:-1])).any():
        ends[1:][later] = ends[:-1][later]
    begins[1:] = np.where(again, np.maximum(begins[1:], ends[:-1]), begins[1:])
    starts[by_shard], stops[by_shard] = begins, ends
