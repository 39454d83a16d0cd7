"""Which shards a rank will need, in the order of first need, and how many are active at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from mdsx.order.batches import MAX_BATCH, check_rank, rank_lanes, ranks_of
from mdsx.order.checks import integer
from mdsx.order.order import Order

_WINDOW = 65536  # positions looked at together, or a block of each lane, or a batch, whichever is most


def shards_needed(
    order: Order, *, start: int, batch_size: int, rank: int, world_size: int, stop: int | None = None
) -> Iterator[tuple[int, int]]:
    """Each shard that `rank` reads of positions `start` up to `stop` (default: the epoch's end), with the position
    at which the global batch starts that first needs it; in the order of first need.

    Lazy: what comes first is found first. `batch_size` is the global batch's. Memory: a bit per shard and some blocks.
    """
    stop = integer(len(order) if stop is None else stop, "stop", 0, len(order))
    integer(start, "start", 0, stop)
    integer(batch_size, "batch_size", 1, MAX_BATCH)
    check_rank(rank, world_size)
    ahead = order.at_epoch(order.epoch)  # keeps its own blocks: those that `order` is reading stay in memory
    return _shards_needed(ahead, start, stop, batch_size, rank, world_size)


def _shards_needed(
    order: Order, start: int, stop: int, batch_size: int, rank: int, world_size: int
) -> Iterator[tuple[int, int]]:
    seen = order.counts == 0
    batches = max(1, min(max(_WINDOW, order.shuffle_block) // batch_size, 8 * _WINDOW // order.lanes))
    while start < stop and not seen.all():
        starts = np.arange(start, min(start + batches * batch_size, stop), batch_size)
        stops = np.minimum(starts + batch_size, stop)
        for shard, position in _first_needs(order, starts, stops, rank, world_size, seen):
            seen[shard] = True
            yield shard, position
        start = int(stops[-1])


def _first_needs(
    order: Order,
    starts: NDArray[np.int64],
    stops: NDArray[np.int64],
    rank: int,
    world_size: int,
    seen: NDArray[np.bool_],
) -> list[tuple[int, int]]:
    """The shards that `rank` first needs in these successive batches, with the start of the batch."""
    first_needs: dict[int, tuple[int, int, int]] = {}  # by shard: batch, lane, offset, as a rank reads them
    for lane in rank_lanes(starts, stops, lanes=order.lanes, rank=rank, world_size=world_size).tolist():
        first, last = (-((lane - int(edge)) // order.lanes) for edge in (starts[0], stops[-1]))
        if seen[order.drawn(lane, first, last)].all():
            continue  # nothing new: no need to know in which order
        positions = np.arange(first, last) * order.lanes + lane
        shards, _ = order.locate(positions)
        new = ~seen[shards]
        positions, shards = positions[new], shards[new]
        batch = np.searchsorted(starts, positions, side="right") - 1
        mine = ranks_of(positions, starts[batch], stops[batch], lanes=order.lanes, world_size=world_size) == rank
        positions, shards, batch = positions[mine], shards[mine], batch[mine]
        for shard, place in zip(*(found.tolist() for found in np.unique(shards, return_index=True)), strict=True):
            need = (int(batch[place]), lane, int(positions[place]))
            first_needs[shard] = min(need, first_needs.get(shard, need))
    in_order = sorted((need, shard) for shard, need in first_needs.items())
    return [(shard, int(starts[batch])) for (batch, _, _), shard in in_order]


def active_shards(order: Order, position: int, lanes: Iterable[int] | None = None) -> int:
    """How many shards the blocks draw on that `lanes` (default: all) are in when the next position is `position`.

    A cache that holds fewer than these, for all lanes that its node's ranks read, downloads shards repeatedly.
    """
    integer(position, "position", 0, len(order))
    drawn: set[int] = set()
    for lane in range(order.lanes) if lanes is None else lanes:
        offset = -((integer(lane, "lane", 0, order.lanes - 1) - position) // order.lanes)
        if offset < order.lane_length(lane):
            drawn.update(order.drawn(lane, offset, offset + 1).tolist())
    return len(drawn)
