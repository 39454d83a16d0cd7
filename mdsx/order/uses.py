"""When an epoch draws on each shard: so that a cache knows which shard is needed last."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsx.order.order import Order

NEVER = 2**62


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
