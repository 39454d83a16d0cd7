"""How unevenly the work of steps is divided among ranks: the busiest rank's cost divided by the mean of all ranks.

All ranks wait for the busiest one: once in each step, or once in each micro-batch if each communicates, as with FSDP.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.order.dealing import Dealing, Rooms, deal
from mdsx.order.grouping import step_order


class Busiest(NamedTuple):
    """The busiest rank's cost divided by the mean of all ranks, as the mean over many steps. 1 is the best."""

    step: float
    micro_batch: float | None
    """The same for micro-batches; None if steps have none."""


class BusiestRank:
    """Computes both, with a `dealing` and without, for steps of `size` rows.

    `micro_batch`: the number of a rank's rows in a micro-batch; None: steps have no micro-batches.
    """

    def __init__(
        self, dealing: Dealing, *, lanes: int, size: int, world_size: int, micro_batch: int | None = None
    ) -> None:
        self._dealing, self._lanes, self._size, self._ranks = dealing, lanes, size, world_size
        self._micro = micro_batch
        self._left = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._sums = np.zeros((2, 2))  # [with or without dealing, steps or micro-batches]
        self._counts = np.zeros((2, 2))

    def add(self, lanes: NDArray[np.int64], sizes: NDArray[np.int64], edges: NDArray[np.int64]) -> None:
        """Note the next groups: their lanes, and the sizes of their items. Groups that do not fill a step count with
        those of the next call."""
        costs = self._dealing.balance.costs(sizes, edges)
        lanes, costs = (np.concatenate(pair) for pair in zip(self._left, (lanes, costs), strict=True))
        steps = len(lanes) // self._size
        whole = steps * self._size
        self._left = lanes[whole:], costs[whole:]
        if not steps:
            return
        placed = np.take_along_axis(
            costs[:whole].reshape(steps, -1), step_order(lanes[:whole].reshape(steps, -1), self._lanes), 1
        )
        for place, by_place in enumerate((dealt_costs(placed, self._ranks, self._dealing.node), placed)):
            for kind, micro in enumerate((None, self._micro)):
                if kind == 0 or micro is not None:
                    ratios = busiest(by_place, self._ranks, micro)
                    self._sums[place, kind] += ratios.sum()
                    self._counts[place, kind] += len(ratios)

    @property
    def steps(self) -> int:
        """Return the number of noted steps whose cost is not 0."""
        return int(self._counts[0, 0])

    def found(self) -> tuple[Busiest, Busiest] | None:
        """Return the results with dealing, and without (by rule 5). Return None without steps."""
        if not self.steps:
            return None
        means = (self._sums / np.maximum(self._counts, 1)).tolist()
        dealt, plain = (Busiest(step, None if self._micro is None else micro) for step, micro in means)
        return dealt, plain


def dealt_costs(costs: NDArray[np.int64], world_size: int, node: int) -> NDArray[np.int64]:
    """Return the cost at each place after dealing the rows of each node, from the costs before: int64 [steps, n]."""
    dealt = costs.copy()
    for rank in range(0, world_size, node):
        own = Rooms.of(costs.shape[1], rank, world_size, node)
        here = costs[:, own.first : own.stop]
        dealt[:, own.first : own.stop] = np.take_along_axis(here, deal(here, own.rooms), 1)
    return dealt


def busiest(costs: NDArray[np.int64], world_size: int, micro_batch: int | None = None) -> NDArray[np.float64]:
    """Return the busiest rank's cost divided by the mean, for each step, or for each micro-batch of `micro_batch` rows.

    `costs`: of the row at each place, int64 [steps, n]. Steps and micro-batches without cost are left out.
    """
    steps, n = costs.shape
    bounds = np.arange(world_size + 1) * n // world_size
    rows = int(np.diff(bounds).max())
    each = rows if micro_batch is None else micro_batch
    parts = np.arange(-(-rows // max(each, 1)))
    starts = np.minimum(bounds[:-1, None] + parts * each, bounds[1:, None])
    stops = np.minimum(starts + each, bounds[1:, None])
    sums = np.concatenate([np.zeros((steps, 1)), np.cumsum(costs.astype(np.float64), axis=1)], axis=1)
    of_ranks = sums[:, stops] - sums[:, starts]  # [steps, ranks, parts]
    means = of_ranks.mean(axis=1)
    ratios: NDArray[np.float64] = (of_ranks.max(axis=1) / np.where(means > 0, means, 1))[means > 0]
    return ratios
