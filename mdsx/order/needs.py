"""Which shards a rank will need, in the order of first need, and how many are active at once.

Looking ahead is cheap where nothing new comes: then it looks at the blocks' shards only, not at single positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mdsx.order.batches import MAX_BATCH, check_rank, rank_lanes, ranks_of
from mdsx.order.limits import integer
from mdsx.order.order import Order

NOTHING_NEW = -1
NEVER = 2**62
_WINDOW = 65536  # positions looked at together, or a block of each lane, or a batch, whichever is most
_RANK_WINDOW = 16384  # the same for positions of one rank
_LONG_WINDOWS = 16  # times longer, while nothing new comes


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
    most = max(1, min(max(_WINDOW, order.shuffle_block) // batch_size, 8 * _WINDOW // order.lanes))
    batches = 1  # windows grow: what comes first is found first
    while start < stop and not seen.all():
        starts = np.arange(start, min(start + batches * batch_size, stop), batch_size)
        stops = np.minimum(starts + batch_size, stop)
        for shard, position in _first_needs(order, starts, stops, rank, world_size, seen):
            seen[shard] = True
            yield shard, position
        start, batches = int(stops[-1]), min(2 * batches, most)


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


class Ahead(Protocol):
    """What looking ahead needs to know of a run."""

    epoch_samples: int
    lanes: int
    shuffle_block: int

    def rank_positions(
        self, starts: NDArray[np.int64], stops: NDArray[np.int64], rank: int, world_size: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """See Course."""
        ...

    def drawn(self, positions: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """By source the shards, each once, of its blocks from the first to the last of `positions`, or some more.

        A source is a lane of a dataset, or of a component of a mixture.
        """
        ...

    def find(
        self, positions: NDArray[np.int64], sources: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Which of `positions` are of these sources, and the shard at each of them."""
        ...


def needs_ahead(
    run: Ahead, shards: int, start: int, batch_size: int, rank: int, world_size: int
) -> Iterator[tuple[int, int]]:
    """Course.needs of a run whose sources go through their epochs at their own pace."""
    again = 2 * run.shuffle_block  # what was listed so many positions ago may be evicted
    listed = np.full(shards, -again - 1, np.int64)  # where each shard was listed last
    most = max(_RANK_WINDOW * world_size // max(batch_size, run.lanes), 1)
    batches = 1  # windows grow: what comes first is found first
    while run.epoch_samples:
        end = (start // run.epoch_samples + 1) * run.epoch_samples
        starts = np.arange(start, min(start + batches * batch_size, end), batch_size)
        positions, sizes = run.rank_positions(starts, np.minimum(starts + batch_size, end), rank, world_size)
        reached = int(starts[-1])
        drawn = run.drawn(positions) if len(positions) else ()
        sources = [source for source, found in drawn if (listed[found] < reached - again).any()]
        if sources and batches > most:
            batches = most
            continue
        if sources:
            places, found = run.find(positions, np.array(sources))
            when = np.repeat(starts, sizes)[places]
            needs: list[tuple[int, int, int]] = []
            while (new := when - listed[found] > again).any():  # in a long window a shard may come twice
                places, found, when = places[new], found[new], when[new]
                firsts = np.unique(found, return_index=True)[1]
                listed[found[firsts]] = when[firsts]
                needs += zip(*(values[firsts].tolist() for values in (places, when, found)), strict=True)
            for _, position, shard in sorted(needs):
                yield position, shard
        yield reached, NOTHING_NEW
        start, batches = min(reached + batch_size, end), min(2 * batches, most if sources else _LONG_WINDOWS * most)


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


class ShardUses:
    """From and up to which positions `order` draws on each shard: the blocks that have a piece of it.

    A shard may have several pieces, in one lane or in two. Memory: some 24 bytes a piece.
    """

    def __init__(self, order: Order) -> None:
        shards, starts, stops = order.pieces_drawn()
        by_shard = np.lexsort((starts, shards))
        self._starts, self._stops = starts[by_shard], stops[by_shard]
        self._firsts = np.searchsorted(shards[by_shard], np.arange(len(order.counts) + 1))

    def needs(self, position: int) -> NDArray[np.int64]:
        """int64 [shards]: from `position` on, the first position at which each is drawn on; NEVER where none is."""
        due = np.where(self._stops > position, np.maximum(self._starts, position), NEVER)
        needs = np.full(len(self._firsts) - 1, NEVER, np.int64)
        drawn = np.diff(self._firsts) > 0
        if len(due):
            needs[drawn] = np.minimum.reduceat(due, self._firsts[:-1][drawn])
        return needs

    def after(self, shard: int, position: int) -> int | None:
        """The first position behind `position` from which on `shard` is drawn on; None where there is none."""
        pieces = slice(self._firsts[shard], self._firsts[shard + 1])
        place = int(np.searchsorted(self._starts[pieces], position, side="right"))
        return int(self._starts[pieces][place]) if place < len(self._starts[pieces]) else None

    def until(self, shard: int, position: int) -> int:
        """The position at which the blocks are over that draw on `shard` at `position`; 0 where none does."""
        pieces = slice(self._firsts[shard], self._firsts[shard + 1])
        return int(self._stops[pieces][self._starts[pieces] <= position].max(initial=0))
