"""Pack items into rows of a fixed capacity, best-fit decreasing: the exact result, computed for many items at once.

Sweep the values from the capacity down. A row is pushed on a stack when the value reaches its room. When the value
reaches the weight of an item, the item takes the row on top: of the rows where it fits, the one with the least room.
While each row takes one item, items and rows match like brackets, which NumPy finds for all lanes together.

So a *round* places each lane's items of one class, `capacity // weight`. All weights of class k are above
`low = capacity // (k + 1)`. A row with at most `2 * low + 1` of room takes one item, and then has at most `low` left. A
new row takes k items, and then has at most `low` left. Rows with more room are *large*. Usually a lane has at most one
large row, at the bottom of the stack: the one begun last. It takes the items that no other row takes, until it has room
for items of the same class again. There the round ends, or where a second large row is needed.

When a round places few items, the rest of each lane is packed item by item.
"""

from __future__ import annotations

from bisect import bisect_left, insort

import numpy as np
from numpy.typing import NDArray

from mdsx.order.sorting import stable_order

_TOGETHER = 2**17  # items in a round, about
_FEW = 512  # items that can be placed one by one in the time of a round


def pack(
    weights: NDArray[np.int64], edges: NDArray[np.int64], capacity: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the row of each item, and the number of rows of each lane. Rows are numbered in the order of their
    beginning.

    Lane c has items `edges[c]` up to `edges[c + 1]`. They are taken by weight, largest first, ties in their order. Each
    goes into the row with the least room in which it fits, ties into the row begun first. If it fits in none, it begins
    a row. Weights are from 1 to `capacity`.
    """
    rows, counts = np.empty_like(weights), np.zeros(len(edges) - 1, np.int64)
    first = 0
    while first < len(counts):
        last = max(first + 1, int(np.searchsorted(edges, edges[first] + _TOGETHER, side="right")) - 1)
        some = slice(int(edges[first]), int(edges[last]))
        rows[some], counts[first:last] = _Packing(weights[some], edges[first : last + 1] - edges[first], capacity).run()
        first = last
    return rows, counts


class _Packing:
    """The packing of some lanes. Items are in the order in which each lane takes them."""

    def __init__(self, weights: NDArray[np.int64], edges: NDArray[np.int64], capacity: int) -> None:
        self.capacity, self.edges = capacity, edges
        self.lanes = np.repeat(np.arange(len(edges) - 1), np.diff(edges))
        descending = self._keys(self.lanes, weights)
        self.order = stable_order(descending, (len(edges) - 1) * (capacity + 1))
        self.keys = descending[self.order]
        self.weights = weights[self.order]
        self.rows = np.empty_like(weights)
        self.next = edges[:-1].copy()  # the next item of each lane
        self.begun = np.zeros(len(edges) - 1, np.int64)
        # Rows that may take another item, in the order in which each lane began them.
        self.row_lanes, self.row_numbers, self.rooms = np.zeros((3, 0), np.int64)

    def _keys(self, lanes: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return keys that sort by lane, the largest value first."""
        return lanes * (self.capacity + 1) + self.capacity - values

    def run(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        classes = self.capacity // self.weights
        changes = np.flatnonzero((np.diff(classes) != 0) | (np.diff(self.lanes) != 0)) + 1
        ends = np.append(changes, len(classes))
        while True:
            left = len(self.weights) - int((self.next - self.edges[:-1]).sum())
            if left < _FEW:
                break
            active = np.flatnonzero(self.next < self.edges[1:])
            stops = self.next.copy()
            stops[active] = ends[np.searchsorted(ends, self.next[active], side="right")]
            of_lane = np.ones(len(stops), np.int64)
            of_lane[active] = classes[self.next[active]]
            if self._round(stops, of_lane) < _FEW:
                break
        for lane in np.flatnonzero(self.next < self.edges[1:]).tolist():
            self._finish(lane)
        rows = np.empty_like(self.rows)
        rows[self.order] = self.rows
        return rows, self.begun

    def _round(self, stops: NDArray[np.int64], classes: NDArray[np.int64]) -> int:
        """Place each lane's items up to `stops`, all of one class, or the first ones of them. Return how many."""
        counts = stops - self.next
        items = np.arange(int(counts.sum())) + np.repeat(self.next - (np.cumsum(counts) - counts), counts)
        low = self.capacity // (classes + 1)  # all of these items are larger; a lane without items has no rows
        above = self.rooms - low[self.row_lanes]
        large = above > low[self.row_lanes] + 1  # such a row takes more than one item
        rows = self._match(items, np.flatnonzero((above > 0) & ~large))
        if large.any():
            cuts = self._fill_large(items, rows, np.flatnonzero(large), low)
            if (cuts < stops).any():
                stops = np.minimum(stops, cuts)
                placed = items < stops[self.lanes[items]]
                items, rows = items[placed], rows[placed]
        known = rows >= 0
        self._begin(items[~known], classes)
        items, rows = items[known], rows[known]
        np.subtract.at(self.rooms, rows, self.weights[items])
        self.rows[items] = self.row_numbers[rows]
        placed_before, self.next = int(self.next.sum()), stops
        self._forget()
        return int(stops.sum()) - placed_before

    def _match(self, items: NDArray[np.int64], single: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return for each item which of the `single` rows takes it, or -1. Each row takes one item."""
        rows = np.full(len(items), -1)
        if not len(single):
            return rows
        single = single[::-1]  # of rows with the same room, the one begun first is on top
        keys = self._keys(self.row_lanes[single], self.rooms[single])
        order = stable_order(keys, len(self.begun) * (self.capacity + 1))
        places = np.searchsorted(self.keys[items], keys[order]) + np.arange(len(order))
        closing = np.ones(len(items) + len(single), np.bool_)
        closing[places] = False
        source = np.empty(len(closing), np.int64)
        source[places] = single[order]
        source[closing] = np.arange(len(items))
        depths = np.cumsum(1 - 2 * closing) + closing + len(items)  # equal for both brackets of a pair
        by_depth = stable_order(depths, len(depths) + 1)
        depths, closing, source = depths[by_depth], closing[by_depth], source[by_depth]
        pairs = np.flatnonzero((depths[1:] == depths[:-1]) & closing[1:] & ~closing[:-1])
        opened, closed = source[pairs], source[pairs + 1]
        same = self.row_lanes[opened] == self.lanes[items[closed]]
        rows[closed[same]] = opened[same]
        return rows

    def _fill_large(
        self, items: NDArray[np.int64], rows: NDArray[np.int64], large: NDArray[np.int64], low: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Let the smallest of each lane's `large` rows take the items without a row in `rows`, until one does not fit.

        Return the item of each lane at which the round must end, because the row may take items again, or because the
        next large row is needed.
        """
        least = np.full(len(self.begun), -1)
        descending = large[np.argsort(self.rooms[large], kind="stable")][::-1]
        least[self.row_lanes[descending]] = descending  # the last assignment counts: of equal rows, the one begun first
        lanes = self.lanes[items]
        rest = np.flatnonzero((rows < 0) & (least[lanes] >= 0))
        lanes, weights = lanes[rest], self.weights[items[rest]]
        edges = np.searchsorted(lanes, np.arange(len(least) + 1))
        sums = np.append(np.cumsum(weights), 0)
        left = (self.rooms[least] + sums[edges[:-1] - 1])[lanes] - sums[:-1]
        full = np.append(np.flatnonzero(left < weights), len(rest))  # the row is no longer on the stack
        last = full[np.searchsorted(full, edges[:-1])]
        ended = np.flatnonzero(last < edges[1:])
        stops = edges[1:].copy()
        stops[ended] = last[ended] + 1
        taken = np.flatnonzero(np.arange(len(rest)) < stops[lanes])
        rows[rest[taken]] = least[lanes[taken]]
        cuts = np.full(len(self.begun), len(self.weights))
        last = last[ended]
        back = np.searchsorted(self.keys, self._keys(ended, left[last]))  # the first item that fits the remaining room
        cuts[ended] = np.where(left[last] > low[ended], back, len(self.weights))
        several = np.bincount(self.row_lanes[large])[ended] > 1
        cuts[ended[several]] = items[rest[last[several]]] + 1
        return cuts

    def _begin(self, items: NDArray[np.int64], classes: NDArray[np.int64]) -> None:
        """Begin rows for `items`, with as many items in each as the lane's class."""
        if not len(items):
            return
        lanes = self.lanes[items]
        counts = np.bincount(lanes, minlength=len(self.begun))
        begun = -(-counts // classes)
        starts = np.cumsum(begun) - begun
        row_lanes = np.repeat(np.arange(len(counts)), begun)
        numbers = np.arange(len(row_lanes)) - starts[row_lanes]  # among the rows that begin now
        firsts = (np.cumsum(counts) - counts)[row_lanes] + numbers * classes[row_lanes]
        numbers += self.begun[row_lanes]
        self.rows[items] = np.repeat(numbers, np.diff(firsts, append=len(items)))
        self.begun += begun
        self.row_lanes = np.concatenate([self.row_lanes, row_lanes])
        self.row_numbers = np.concatenate([self.row_numbers, numbers])
        self.rooms = np.concatenate([self.rooms, self.capacity - np.add.reduceat(self.weights[items], firsts)])

    def _forget(self) -> None:
        """Drop the rows in which no remaining item of their lane fits."""
        least = np.where(self.edges[1:] > self.next, self.weights[self.edges[1:] - 1], self.capacity + 1)
        kept = self.rooms >= least[self.row_lanes]
        self.row_lanes, self.row_numbers, self.rooms = self.row_lanes[kept], self.row_numbers[kept], self.rooms[kept]

    def _finish(self, lane: int) -> None:
        """Place the remaining items of a lane one by one."""
        first, last = int(self.next[lane]), int(self.edges[lane + 1])
        weights = self.weights[first:last].tolist()
        begun = int(self.begun[lane])
        span = begun + len(weights)
        here = self.row_lanes == lane
        open_rows: list[int] = np.sort(self.rooms[here] * span + self.row_numbers[here]).tolist()  # room * span + row
        starts, rows = [], []
        least, at, n = weights[-1], 0, len(weights)
        weights.append(0)  # a sentinel
        while at < n:
            starts.append(at)
            weight = weights[at]
            place = bisect_left(open_rows, weight * span)
            if place < len(open_rows):
                room, row = divmod(open_rows.pop(place), span)
            else:
                room, row, begun = self.capacity, begun, begun + 1
            rows.append(row)
            next_best = open_rows[place - 1] // span if place else 0
            room -= weight
            at += 1
            while room >= weights[at] > next_best:  # no other row where it fits has less room
                room -= weights[at]
                at += 1
            if room >= least:
                insort(open_rows, room * span + row)
        self.rows[first:last] = np.repeat(rows, np.diff(starts, append=n))
        self.begun[lane] = begun
