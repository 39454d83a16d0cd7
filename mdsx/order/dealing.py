"""Deal the rows of a step by cost, so that the ranks of a node have equal work. format-spec.md specifies it.

Rows of equal length do not mean equal work: attention costs the square of a document's length. The rows of a step, and
of a node, do not depend on costs.
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
    """The cost of rows, and the ranks among which they are dealt.

    Attributes:
        linear, quadratic: An item of n values costs `linear * n + quadratic * n * n`, and a row the sum of its items.
        over: "node" or "job": rows are dealt among the ranks of a node, or among all ranks.
    """

    linear: int
    quadratic: int
    over: Over = "node"

    @classmethod
    def of(cls, balance: object, over: object, capacity: int) -> Balance | None:
        """Return the balance of rows of `capacity` values from two integers; None if `balance` is None.

        Raises:
            UsageError: `balance` is not two integers, a row could cost 2^63, or `over` is unknown.
        """
        if over not in ("node", "job"):
            raise UsageError("balance_over must be 'node' or 'job'", found=shown(over))
        if balance is None:
            return None
        if not isinstance(balance, tuple | list) or len(balance) != 2:
            raise UsageError(
                "balance must be two integers, the costs of a value and of its square",
                found=shown(balance),
                hint="for attention beside layers of width d, give balance=(12 * d, 1)",
            )
        names = "balance[0]", "balance[1]"
        linear, quadratic = (integer(n, name, 0, MAX_COST) for n, name in zip(balance, names, strict=True))
        if not linear and not quadratic:
            raise UsageError("with this balance, all rows cost nothing", found="(0, 0)")
        if (most := linear * capacity + quadratic * capacity * capacity) > MAX_COST:
            raise UsageError(
                f"with this balance, a row of {capacity} values could cost 2^63 or more",
                found=most,
                expected=f"at most {MAX_COST}",
                hint="divide both numbers by the same number",
            )
        return cls(linear, quadratic, over)

    def costs(self, sizes: NDArray[np.int64], edges: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the cost of each row. The items of row g have `sizes[edges[g]]` up to `sizes[edges[g + 1]]` values."""
        if len(edges) < 2:
            return np.zeros(0, np.int64)
        each = sizes * (sizes * self.quadratic + self.linear) if self.quadratic else sizes * self.linear
        return np.add.reduceat(each, edges[:-1])

    def node(self, ranks_per_node: int | None, world_size: int) -> int:
        """Return M, the number of successive ranks among which rows are dealt.

        Raises:
            UsageError: It is unknown, or does not divide the number of ranks.
        """
        if self.over == "job":
            return world_size
        if ranks_per_node is None:
            raise UsageError(
                "rows cannot be balanced: the number of ranks per node is unknown, or differs between nodes",
                hint="give ranks_per_node=, the same on every rank; or balance_over='job'",
            )
        return checked_node(ranks_per_node, world_size)


def checked_node(ranks_per_node: int, world_size: int) -> int:
    """Return `ranks_per_node`. Raise UsageError unless it divides the number of ranks."""
    if world_size % integer(ranks_per_node, "ranks_per_node", 1, MAX_COST):
        raise UsageError(
            "ranks_per_node must divide the number of ranks that read different samples",
            found=ranks_per_node,
            expected=f"a divisor of {world_size}",
        )
    return ranks_per_node


class Rooms(NamedTuple):
    """The places of a node in a step of n groups, and the number of places of each of its ranks."""

    first: int
    stop: int
    rooms: NDArray[np.int64]

    @classmethod
    def of(cls, n: int, rank: int, world_size: int, node: int) -> Rooms:
        """Return the places of the node of `rank`, which has `node` ranks."""
        low = rank // node * node
        bounds = np.arange(low, low + node + 1) * n // world_size
        return cls(int(bounds[0]), int(bounds[-1]), np.diff(bounds))


def deal(costs: NDArray[np.int64], rooms: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return which row is at each place of a node, from the costs of the rows at its places, for many steps: int64
    [steps, places] both.

    Rows are taken by cost, largest first, ties by place. Each goes to the rank with the least cost so far that has
    room, ties to the lowest rank. Rank r has `rooms[r]` places, and its rows are in the order in which they were dealt.
    """
    order = np.argsort(-costs, kind="stable")
    most = int(rooms.max())
    if len(rooms) == 1 or most <= 1:  # each row goes to the next rank that has room
        return order
    descending = np.take_along_axis(costs, order, 1)
    if descending.size >= _MANY * most:
        taken, left = _in_rounds(descending, rooms)
    else:
        taken, left = np.empty_like(order), np.arange(len(order))
    for step in left.tolist():
        taken[step] = _one_by_one(descending[step].tolist(), rooms.tolist())
    return np.take_along_axis(order, np.argsort(taken, kind="stable"), 1)


def _in_rounds(costs: NDArray[np.int64], rooms: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rank of each row, int64 [steps, places], from the costs in descending order, and the steps for which
    that is wrong.

    In a round, each rank with room gets one row, the rank with the least cost first. That is right if no rank has a
    lower cost after its row than another one had before its own, which is always so if rows cost nearly the same. A
    sum that overflows is negative, so it counts as lower.
    """
    taken, sums = np.empty_like(costs), np.zeros((len(costs), len(rooms)), np.int64)
    known, first = np.ones(len(costs), np.bool_), 0
    for number in range(int(rooms.max())):
        having = np.flatnonzero(rooms > number)
        ranks = having[np.argsort(sums[:, having], kind="stable")]
        before = np.take_along_axis(sums, ranks, 1)
        after = before + costs[:, first : first + len(having)]
        known &= before[:, -1] < after.min(axis=1)
        taken[:, first : first + len(having)] = ranks
        np.put_along_axis(sums, ranks, after, 1)
        first += len(having)
    return taken, np.flatnonzero(~known)


def _one_by_one(costs: list[int], rooms: list[int]) -> list[int]:
    """Return the rank of each row of a step, from the costs in descending order."""
    bits = len(rooms).bit_length()
    mask, left = (1 << bits) - 1, rooms.copy()
    taken = [rank for rank, room in enumerate(rooms) if room]
    if costs[len(taken) - 1] > 0:  # each of the first rows goes to another rank
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
        """Return `order`, the group at each place of a step (int64 [steps, n], see `step_order`), with the places of
        the node of `rank` dealt. The steps consist of successive groups, given by `edges` and `sizes`."""
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
