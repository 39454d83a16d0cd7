"""The course of a run for one node, with only the shards that the node reads in the simulated stretch.

The vector of needs then has thousands of items, even if the dataset has millions of shards. All decisions stay the
same, because the other shards are never in the node's cache.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.order import NEVER, DatasetCourse, Order, ShardUses, lanes_read, rank_lanes
from mdsx.stream import FIRST_READS

_BLOCKS_AHEAD = 3  # after the stretch: more than a process prefetches


class Pieces(NamedTuple):
    """The pieces of an epoch, lane by lane: the range of positions at which the epoch draws on a piece of a shard. Lane
    c has the pieces `edges[c]` to `edges[c + 1]`."""

    shards: NDArray[np.int64]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    edges: NDArray[np.int64]

    def of(self, lanes: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the numbers of the pieces of `lanes` (bool [C])."""
        found = [np.arange(self.edges[lane], self.edges[lane + 1]) for lane in np.flatnonzero(lanes).tolist()]
        return np.concatenate(found) if found else np.zeros(0, np.int64)


def pieces_of(order: Order) -> Pieces:
    """Return the pieces of the order's epoch."""
    shards, starts, stops = order.pieces_drawn()
    return Pieces(shards, starts, stops, np.searchsorted(starts % order.lanes, np.arange(order.lanes + 1)))


def most_at_a_time(starts: NDArray[np.int64], stops: NDArray[np.int64], sizes: NDArray[np.int64]) -> int:
    """Return the largest sum of `sizes` of the ranges, from `starts` up to `stops`, that overlap at any position."""
    edges = np.concatenate([2 * starts + 1, 2 * stops])  # at a position, ranges end before others begin
    changes = np.concatenate([sizes, -sizes])[np.argsort(edges)]
    return int(np.cumsum(changes).max(initial=0))


def node_lanes(order: Order, batch_size: int, ranks: range, world_size: int) -> NDArray[np.bool_]:
    """Return bool [lanes]: the lanes that `ranks` read in global batches of `batch_size`."""
    found = np.zeros(order.lanes, np.bool_)
    for rank in ranks:
        found |= lanes_read((0,), batch_size, lanes=order.lanes, rank=rank, world_size=world_size)
    return found


def last_lanes(order: Order, batch_size: int, ranks: range, world_size: int) -> NDArray[np.bool_]:
    """Return bool [lanes]: the lanes that `ranks` read in the epoch's short last batch. Others read them before."""
    found, stop = np.zeros(order.lanes, np.bool_), np.array([len(order)])
    for rank in ranks if len(order) % batch_size else ():
        start = stop - len(order) % batch_size
        found[rank_lanes(start, stop, lanes=order.lanes, rank=rank, world_size=world_size)] = True
    return found


def shards_between(
    pieces: Pieces, lanes: NDArray[np.bool_], start: int, stop: int, *, order: Order, world_size: int
) -> NDArray[np.int64]:
    """Return, ascending, the shards that `lanes` read at positions `start` to `stop` of the epoch, and soon after."""
    until = stop + max(_BLOCKS_AHEAD * order.shuffle_block, 2 * FIRST_READS * world_size)
    own = pieces.of(lanes)
    return np.unique(pieces.shards[own[(pieces.starts[own] < until) & (pieces.stops[own] > start)]])


class NodeCourse(DatasetCourse):
    """The epoch of `order` for a node that reads only `chosen` shards of it, with new numbers in this order.

    The node's needs in later epochs do not matter within a stretch of one epoch: they count as never.
    """

    def __init__(self, order: Order, pieces: Pieces, chosen: NDArray[np.int64]) -> None:
        super().__init__(order)
        self._chosen = chosen
        known = np.zeros(len(order.counts), np.bool_)
        known[chosen] = True
        here = known[pieces.shards]
        numbers = np.searchsorted(chosen, pieces.shards[here])
        self._node_uses = ShardUses.of(numbers, pieces.starts[here], pieces.stops[here], len(chosen), order.lanes)

    def locate(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        shards, samples = super().locate(positions)
        numbers = np.searchsorted(self._chosen, shards)
        assert np.array_equal(self._chosen[numbers], shards), "the node reads an unexpected shard"
        return numbers, samples

    def next_needs(self, position: int, shards: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        shards = np.arange(self._shards) if shards is None else shards
        epoch, place = divmod(position, self.samples)
        if epoch != self.order.epoch:
            return np.full(len(shards), NEVER)
        return np.minimum(self._node_uses.away(place, shards) + position, NEVER)

    def prepare(self, position: int) -> None:
        return

    @property
    def _shards(self) -> int:
        return len(self._chosen)

    def _uses_at(self, epoch: int) -> ShardUses:
        return self._node_uses
