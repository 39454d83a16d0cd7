"""When each shard is needed next, as a vector over shards: the basis of prefetching, evicting and closing shards.

An epoch draws on a shard in each block with a piece of it, from the block's first position to its last. A shard may
have several pieces, in one lane or in two.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from mdsx.order.limits import integer
from mdsx.order.order import Order

NEVER = 2**62


class ShardUses:
    """The ranges of positions that draw on each shard. Takes about 24 bytes for each piece."""

    def __init__(self, order: Order) -> None:
        self._keep(*order.pieces_drawn(), len(order.counts), order.lanes)

    @classmethod
    def of(
        cls, shards: NDArray[np.int64], starts: NDArray[np.int64], stops: NDArray[np.int64], count: int, lanes: int
    ) -> ShardUses:
        """Return the uses of `count` shards by only these pieces (see Order.pieces_drawn)."""
        uses = cls.__new__(cls)
        uses._keep(shards, starts, stops, count, lanes)
        return uses

    def _keep(
        self, shards: NDArray[np.int64], starts: NDArray[np.int64], stops: NDArray[np.int64], count: int, lanes: int
    ) -> None:
        by_shard = np.argsort(shards, kind="stable")
        self._starts, self._stops = starts[by_shard], stops[by_shard]
        self._firsts = np.searchsorted(shards[by_shard], np.arange(count + 1))
        self._lanes = lanes

    def away(self, position: int | NDArray[np.int64], shards: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the distance of each of `shards` in positions: 0 if the epoch draws on it at `position`, NEVER if it
        no longer does.

        `position`: the epoch's next position, or that of each lane (int64 [C]). It may be before the epoch's start.
        """
        pieces, firsts, found = self._pieces_of(shards)
        starts, stops = self._starts[pieces], self._stops[pieces]
        at = position if isinstance(position, int) else position[starts % self._lanes]
        due = np.where(stops > at, np.maximum(starts - at, 0), NEVER)
        away = np.full(len(shards), NEVER)
        if len(due):
            away[found] = np.minimum.reduceat(due, firsts[found])
        return away

    def in_lanes(self, lanes: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return bool [shards]: whether any of `lanes` (bool [C]) draws on it."""
        shards = np.repeat(np.arange(len(self._firsts) - 1), np.diff(self._firsts))
        found = np.zeros(len(self._firsts) - 1, np.bool_)
        found[shards[lanes[self._starts % self._lanes]]] = True
        return found

    def _pieces_of(
        self, shards: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64] | slice, NDArray[np.int64], NDArray[np.bool_]]:
        """Return the pieces of `shards`, concatenated; where those of each shard begin; and which shards have any."""
        begins, sizes = self._firsts[shards], self._firsts[shards + 1] - self._firsts[shards]
        firsts = np.cumsum(sizes) - sizes
        if len(shards) == len(self._firsts) - 1 and (shards[1:] > shards[:-1]).all():  # all of them, in order
            return slice(None), firsts, sizes > 0
        return np.arange(int(sizes.sum())) + np.repeat(begins - firsts, sizes), firsts, sizes > 0


def active_shards(order: Order, position: int, lanes: Iterable[int] | None = None) -> int:
    """Return how many shards the current blocks of `lanes` (default: all) draw on when the next position is
    `position`.

    A cache that holds fewer shards than this, for all lanes that its node's ranks read, downloads shards repeatedly.
    """
    integer(position, "position", 0, len(order))
    drawn: set[int] = set()
    for lane in range(order.lanes) if lanes is None else lanes:
        offset = -((integer(lane, "lane", 0, order.lanes - 1) - position) // order.lanes)
        if offset < order.lane_length(lane):
            drawn.update(order.drawn(lane, offset, offset + 1).tolist())
    return len(drawn)
