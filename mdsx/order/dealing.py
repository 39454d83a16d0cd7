"""Deal the rows of a step by cost, so that the ranks of a node have equally much work.

Rows of equal length are not equal work: attention costs the square of a document's length. The step itself, and the
rows that a node reads, do not depend on costs; format-spec.md specifies it.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heapreplace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import UsageError, shown
from mdsx.order.grouping import items_of
from mdsx.order.limits import integer

Over = Literal["node", "job"]
MAX_COST = 2**63 - 1
_MANY = 128  # rows in a round, of all steps, for which NumPy is faster than Python


@dataclass(frozen=True, slots=True)
class Balance:
    """What rows cost, and which ranks deal theirs again.

    Attributes:
        linear, quadratic: An item of n values costs `linear * n + quadratic * n * n`, and a row the sum of its items.
        over: The ranks of a "node", or of the whole "job".
    """

    linear: int
    quadratic: int
    over: Over = "node"

    @classmethod
    def of(cls, balance: object, over: object, capacity: int) -> Balance | None:
        """Return the balance of rows of `capacity` values from two integers, None if there is none.

        Raises:
            UsageError: They are not two integers, a row could cost 2^63, or `over` is unknown.
        """
        if over not in ("node", "job"):
            raise UsageError("balance_over must be 'node' or 'job'", found=shown(over))
        if balance is None:
            return None
        if not isinstance(balance, tuple | list) or len(balance) != 2:
            raise UsageError(
                "balance is two integers, what a value costs and what its square costs",
                found=shown(balance),
                hint="for attention beside layers of width d, give balance=(12 * d, 1)",
            )
        names = "balance[0]", "balance[1]"
        linear, quadratic = (integer(n, name, 0, MAX_COST) for n, name in zip(balance, names, strict=True))
        if not linear and not quadratic:
            raise UsageError("with this balance, nothing costs anything", found="(0, 0)")
        if (most := linear * capacity + quadratic * capacity * capacity) > MAX_COST:
            raise UsageError(
                f"with this balance, a row of {capacity} values could cost 2^63 or more",
                found=most,
                expected=f"at most {MAX_COST}",
                hint="divide both numbers by the same number",
            )
        return cls(linear, quadratic, over)

    def costs(self, sizes: NDArray[np.int64], edges: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the cost of each row. Row g has items of `sizes[edges[g]]` up to `sizes[edges[g + 1]]` values."""
        if len(edges) < 2:
            return np.zeros(0, np.int64)
        each = sizes * (sizes * self.quadratic + self.linear) if self.quadratic else sizes * self.linear
        return np.add.reduceat(each, edges[:-1])

    def node(self, ranks_per_node: int | None, world_size: int) -> int:
        """Return M, how many successive ranks deal their rows together.

        Raises:
            UsageError: It is not known, or does not divide the number of ranks.
        """
        if self.over == "job":
            return world_size
        if ranks_per_node is None:
            raise UsageError(
                "how many ranks a node has is not known, or its nodes are not alike: rows cannot be balanced",
                hint="give ranks_per_node=, the same on every rank; or balance_over='job'",
            )
        return checked_node(ranks_per_node, world_size)


def checked_node(ranks_per_node: int, world_size: int) -> int:
    """Return M. Raise UsageError unless it divides the number of ranks."""
    if world_size % integer(ranks_per_node, "ranks_per_node", 1, MAX_COST):
        raise UsageError(
            "ranks_per_node must divide the number of ranks that read different samples",
            found=ranks_per_node,
            expected=f"a divisor of {world_size}",
        )
    return ranks_per_node


class Rooms(NamedTuple):
    """The places that a node has in a step of n groups, and how many of them each of its ranks has."""

    first: int
    stop: int
    rooms: NDArray[np.int64]

    @classmethod
    def of(cls, n: int, rank: int, world_size: int, node: int) -> Rooms:
        """Return those of the node of `rank`, which has `node` ranks."""
        low = rank // node * node
        bounds = np.arange(low, low + node + 1) * n // world_size
        return cls(int(bounds[0]), int(bounds[-1]), np.diff(bounds))


def deal(costs: NDArray[np.int64], rooms: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return which row is at each place of a node, from the costs of the rows at its places: of many steps, int64
    [steps, places] both.

    Take the rows by cost, largest first, ties by place. Each goes to the rank with the least cost so far among those
    that have room, ties to the lowest rank. Rank r has `rooms[r]` places, its rows in the order in which they came.
    """
    order = np.argsort(-costs, axis=1, kind="stable")
    most = int(rooms.max(initial=0))
    if len(rooms) == 1 or most <= 1:  # each row goes to the next rank that has room
        return order
    descending = np.take_along_axis(costs, order, 1)
    if descending.size >= _MANY * most and int(costs.max()) * most < MAX_COST:
        taken, left = _in_rounds(descending, rooms)
    else:
        taken, left = np.empty_like(order), np.arange(len(order))
    for step in left.tolist():
        taken[step] = _one_by_one(descending[step].tolist(), rooms.tolist())
    return np.take_along_axis(order, np.argsort(taken, axis=1, kind="stable"), 1)


def _in_rounds(costs: NDArray[np.int64], rooms: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rank that each row goes to, int64 [steps, places], from the costs in descending order; and the steps
    for which that is wrong.

    In a round, each rank that has room gets one row, the rank with the least cost first. That is right if no rank has
    less after its row than another one had before it. Where rows cost nearly the same, it always is.
    """
    taken, sums = np.empty_like(costs), np.zeros((len(costs), len(rooms)), np.int64)
    known, first = np.ones(len(costs), np.bool_), 0
    for number in range(int(rooms.max())):
        having = np.flatnonzero(rooms > number)
        ranks = having[np.argsort(sums[:, having], axis=1, kind="stable")]
        before = np.take_along_axis(sums, ranks, 1)
        after = before + costs[:, first : first + len(having)]
        known &= before[:, -1] < after.min(axis=1)
        taken[:, first : first + len(having)] = ranks
        np.put_along_axis(sums, ranks, after, 1)
        first += len(having)
    return taken, np.flatnonzero(~known)


def _one_by_one(costs: list[int], rooms: list[int]) -> list[int]:
    """Return the rank that each row of a step goes to, from the costs in descending order."""
    bits = len(rooms).bit_length()
    mask, left = (1 << bits) - 1, rooms.copy()
    taken = [rank for rank, room in enumerate(rooms) if room]
    if costs[len(taken) - 1] > 0:  # the first rows go to one rank each
        heap = [(cost << bits) | rank for cost, rank in zip(costs, taken, strict=False) if rooms[rank] > 1]
        heap.sort()
        left = [room - 1 for room in rooms]
    else:
        heap, taken = taken, []
    for cost in costs[len(taken) :]:
        least = heap[0]
        rank = least & mask
        taken.append(rank)
        if left[rank] > 1:
            left[rank] -= 1
            heapreplace(heap, least + (cost << bits))
        else:
            heappop(heap)
    return taken


@dataclass(frozen=True, slots=True)
class Dealing:
    """A balance in a job whose nodes have `node` ranks each."""

    balance: Balance
    node: int

    def reorder(
        self,
        order: NDArray[np.int64],
        sizes: NDArray[np.int64],
        edges: NDArray[np.int64],
        rank: int,
        world_size: int,
    ) -> NDArray[np.int64]:
        """Return `order`, which of a step's groups is at each of its places (int64 [steps, n], see `step_order`), with
        the places of the node of `rank` dealt. The steps have successive groups, those of `edges` and `sizes`."""
        steps, n = order.shape
        own = Rooms.of(n, rank, world_size, self.node)
        here = order[:, own.first : own.stop]
        groups = here + np.arange(steps)[:, None] * n
        if here.shape == order.shape:
            costs = self.balance.costs(sizes[: edges[steps * n]], edges[: steps * n + 1])[groups]
        else:
            own_edges, items = items_of(edges, groups.ravel())
            costs = self.balance.costs(sizes[items], own_edges).reshape(here.shape)
        dealt = order.copy()
        dealt[:, own.first : own.stop] = np.take_along_axis(here, deal(costs, own.rooms), 1)
        return dealt
