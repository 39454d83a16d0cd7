"""Which positions of a global batch each rank reads, and how well ranks, batch and lanes fit together.

The positions of a batch are sorted by (lane, offset) and divided equally among the ranks. So a batch has the same
positions for any world size, and a rank stays on its own lanes if the numbers allow it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from mdsx.order.limits import MAX_LANES, integer

MAX_WORLD_SIZE = 2**24
MAX_BATCH = 2**36  # times the world size, it stays within int64
_SPREAD_BATCHES = 200


def batch_positions(
    starts: NDArray[np.int64], stops: NDArray[np.int64], *, lanes: int, rank: int, world_size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the positions of all global batches `[starts[i], stops[i])` that `rank` reads, joined, in the order in
    which it does; and how many each batch has."""
    edges, sizes = _lane_edges(starts, stops, lanes), stops - starts
    begin, end = _share(sizes, rank, world_size)
    low = np.maximum(edges[:, :-1], begin)
    counts = np.maximum(np.minimum(edges[:, 1:], end) - low, 0)  # [batches, C]: this rank's of each lane
    starts = starts[:, None]
    firsts = starts + (np.arange(lanes) - starts) % lanes + (low - edges[:, :-1]) * lanes
    stretches, total = counts.ravel(), int(counts.sum())
    before = np.cumsum(stretches) - stretches
    positions = np.repeat(firsts.ravel() - before * lanes, stretches) + np.arange(total) * lanes
    return positions, counts.sum(axis=1)


def rank_lanes(
    starts: NDArray[np.int64], stops: NDArray[np.int64], *, lanes: int, rank: int, world_size: int
) -> NDArray[np.int64]:
    """Return the lanes that `rank` reads in the global batches `[starts[i], stops[i])`."""
    return _lanes_between(_lane_edges(starts, stops, lanes), stops - starts, rank, world_size)


def lanes_read(
    starts: tuple[int, ...] | None, batch_size: int, *, lanes: int, rank: int, world_size: int
) -> NDArray[np.bool_]:
    """Return bool [C]: the lanes that `rank` reads in successive global batches of `batch_size` that begin at any of
    `starts` (None: at any position). There may be more lanes in it than are read."""
    step = math.gcd(batch_size, lanes)
    residues = {0} if step == lanes else set(range(step)) if starts is None else {start % step for start in starts}
    if len(residues) * (lanes // step) > _SPREAD_BATCHES:
        return np.ones(lanes, np.bool_)
    begins = np.array([residue + number * step for residue in residues for number in range(lanes // step)])
    found = np.zeros(lanes, np.bool_)
    found[rank_lanes(begins, begins + batch_size, lanes=lanes, rank=rank, world_size=world_size)] = True
    return found


def lane_spread(batch_size: int, *, lanes: int, world_size: int) -> float:
    """Return the sum of the lanes that each rank touches, divided by `lanes`: 1.0 if no two ranks share a lane.

    A shard is downloaded about that many times if no two ranks share a cache. The result is at least world_size /
    lanes if that is above 1. `batch_size` is the size of the global batch. At most 200 batches are counted.
    """
    integer(batch_size, "batch_size", 1, MAX_BATCH)
    lanes = integer(lanes, "lanes", 1, MAX_LANES)
    world_size = integer(world_size, "world_size", 1, MAX_WORLD_SIZE)
    batches = min(_SPREAD_BATCHES, lanes // math.gcd(lanes, batch_size))  # then the lanes repeat
    starts = np.arange(batches) * batch_size
    edges, sizes = _lane_edges(starts, starts + batch_size, lanes), np.full(batches, batch_size)
    return sum(len(_lanes_between(edges, sizes, rank, world_size)) for rank in range(world_size)) / lanes


def better_lanes(batch_size: int, *, lanes: int, world_size: int) -> int:
    """Return the number of lanes nearest to `lanes` that keeps each rank on its own: a divisor of the batch size that
    divides, or is divided by, the world size. (1 always is.)
    """
    integer(batch_size, "batch_size", 1, MAX_BATCH)
    integer(world_size, "world_size", 1, MAX_WORLD_SIZE)
    most = min(batch_size, 4 * integer(lanes, "lanes", 1, MAX_LANES))
    fits = [n for n in range(1, most + 1) if batch_size % n == 0 and (n % world_size == 0 or world_size % n == 0)]
    return min(fits, key=lambda n: (abs(math.log(n / lanes)), -n))


def _below(positions: NDArray[np.int64], lane: NDArray[np.int64], lanes: int) -> NDArray[np.int64]:
    """Count the positions before each of `positions` that are in lanes before `lane`."""
    return positions // lanes * lane + np.minimum(positions % lanes, lane)


def _lane_edges(starts: NDArray[np.int64], stops: NDArray[np.int64], lanes: int) -> NDArray[np.int64]:
    """Return `edges` [batches, C + 1]: a sorted batch has lane c from place `edges[c]` up to `edges[c + 1]`."""
    lane = np.arange(lanes + 1)
    return _below(stops[:, None], lane, lanes) - _below(starts[:, None], lane, lanes)


def _lanes_between(edges: NDArray[np.int64], sizes: NDArray[np.int64], rank: int, world_size: int) -> NDArray[np.int64]:
    begin, end = _share(sizes, rank, world_size)
    return np.flatnonzero((np.minimum(edges[:, 1:], end) > np.maximum(edges[:, :-1], begin)).any(axis=0))


def _share(sizes: NDArray[np.int64], rank: int, world_size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return, [batches, 1] each, the first and the last place (exclusive) of `rank` in a sorted batch."""
    return (rank * sizes // world_size)[:, None], ((rank + 1) * sizes // world_size)[:, None]
