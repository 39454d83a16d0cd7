"""Groups, version 1: the samples that form a packed row, or a length-bounded batch of one rank.

The groups of a window of positions follow from the samples' lengths and from (seed, epoch, window), never from ranks,
workers or batch size. format-spec.md specifies them. A window's *items* are its samples in ascending order of position.
An oversize sample that is split has an item for each piece.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import UsageError, shown
from mdsx.order.best_fit import pack
from mdsx.order.concat import concatenate
from mdsx.order.hashing import key, keys, sort_keys
from mdsx.order.limits import integer
from mdsx.order.sorting import stable_order
from mdsx.order.window_groups import WindowGroups

GROUPS_VERSION = 1
MAX_CAPACITY = 2**32 - 1
MAX_WINDOW = 2**31  # positions of a lane
_LEAST_WINDOW = 2048
_GROUPS = 128  # a default window has at least about this many groups of each lane
_LEAST_CONCAT = 256
_LANE_ROWS, _WINDOW_ROWS = 8, 1024  # for kind concat: rows of each lane, and of all lanes

Kind = Literal["pack", "max_tokens", "concat"]
Oversize = Literal["error", "truncate", "split"]


_MODES: dict[str, tuple[Oversize | None, ...]] = {
    "pack": ("error", "truncate", "split"),
    "max_tokens": ("error", "truncate"),
    "concat": (None,),
}


@dataclass(frozen=True, slots=True)
class Grouping:
    """How samples are grouped. format-spec.md specifies it.

    Attributes:
        kind: "pack" (rows of at most `capacity` values), "concat" (rows of exactly `capacity` values, cut from
            successive samples) or "max_tokens" (batches of at most `capacity` values after padding).
        capacity: L, 1 to 2^32 - 1.
        window: How many positions of each lane are grouped together, 1 to 2^31.
        oversize: What to do with a sample longer than `capacity`: "error"; "truncate" to its first `capacity` values;
            or, only with kind "pack", "split" into pieces. None means "error", except with kind "concat", which cuts
            samples of any length.
        max_samples: The most samples in a group (None: no limit), only with kind "max_tokens".

    Raises:
        UsageError: A field is invalid.
    """

    kind: Kind
    capacity: int
    window: int
    oversize: Oversize | None = None
    max_samples: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("pack", "max_tokens", "concat"):
            expected = "'pack', 'concat' or 'max_tokens'"
            raise UsageError("unknown kind of groups", found=shown(self.kind), expected=expected)
        object.__setattr__(self, "capacity", integer(self.capacity, "capacity", 1, MAX_CAPACITY))
        object.__setattr__(self, "window", integer(self.window, "window", 1, MAX_WINDOW))
        if self.oversize is None and self.kind != "concat":
            object.__setattr__(self, "oversize", "error")
        modes = _MODES[self.kind]
        if self.oversize not in modes:
            expected = " or ".join(map(repr, modes))
            raise UsageError(f"invalid oversize for kind {self.kind}", found=shown(self.oversize), expected=expected)
        if self.max_samples is not None:
            if self.kind != "max_tokens":
                raise UsageError("max_samples is only for groups of kind max_tokens")
            object.__setattr__(self, "max_samples", integer(self.max_samples, "max_samples", 1, MAX_WINDOW))

    @property
    def splits(self) -> bool:
        """Return whether a sample may be in several groups."""
        return self.kind == "concat" or self.oversize == "split"

    @property
    def fields(self) -> dict[str, Any]:
        """Return the fields for a state."""
        return {
            "kind": self.kind,
            "capacity": self.capacity,
            "positions": self.window,
            "oversize": self.oversize,
            "max_samples": self.max_samples,
        }

    def first_oversize(self, lengths: NDArray[np.int64]) -> int | None:
        """Return the index of the first of `lengths` that is an error, or None."""
        if self.oversize != "error" or not len(lengths) or int(lengths.max()) <= self.capacity:
            return None
        return int(np.argmax(lengths > self.capacity))


@dataclass(frozen=True, slots=True)
class Windows(Sequence[tuple[int, int]]):
    """The windows of positions `start` to `stop`, counted over all epochs: `windows[k]` is the first and last position
    (exclusive) of window k. A window has `size` positions; it may have fewer before a multiple of `samples` (None in
    mixtures), and at the end."""

    start: int
    stop: int
    samples: int | None
    size: int

    def _cut(self) -> tuple[int, int]:
        """Return the first multiple of `samples` after the start (at most `stop`), and the number of windows before
        it."""
        samples = self.samples
        cut = self.stop if not samples else min((self.start // samples + 1) * samples, self.stop)
        return cut, -(-(cut - self.start) // self.size)

    def __len__(self) -> int:
        cut, first = self._cut()
        if not self.samples:
            return first
        epochs, rest = divmod(self.stop - cut, self.samples)
        return first + epochs * -(-self.samples // self.size) - (-rest // self.size)

    @overload
    def __getitem__(self, number: int) -> tuple[int, int]: ...
    @overload
    def __getitem__(self, number: slice) -> list[tuple[int, int]]: ...
    def __getitem__(self, number: int | slice) -> tuple[int, int] | list[tuple[int, int]]:
        if isinstance(number, slice):
            return [self[k] for k in range(*number.indices(len(self)))]
        if not 0 <= number < len(self):
            raise IndexError(f"window {number} of {len(self)}")
        begin, (end, first) = self.start, self._cut()
        if number >= first and self.samples:
            epochs, number = divmod(number - first, -(-self.samples // self.size))
            begin = end + epochs * self.samples
            end = min(begin + self.samples, self.stop)
        begin += number * self.size
        return begin, min(begin + self.size, end)


def default_window(
    capacity: int, mean: Fraction | float | None, *, kind: Kind = "pack", lanes: int | None = None
) -> int:
    """Return the default number of positions of a lane in a window, for samples of `mean` length (None: unknown). The
    computation is exact: give a Fraction, so that no rounding decides. With kind "concat", it depends on the number of
    lanes."""
    if not mean:
        return _LEAST_WINDOW
    groups = -(-capacity // Fraction(mean))
    least, rows = _LEAST_WINDOW, _GROUPS
    if kind == "concat":
        assert lanes is not None, "the default window of kind concat depends on the lanes"
        least, rows = _LEAST_CONCAT, max(_LANE_ROWS, -(-_WINDOW_ROWS // lanes))
    return min(1 << (max(least, rows * groups) - 1).bit_length(), MAX_WINDOW)


def group_window(
    rule: Grouping,
    lengths: NDArray[np.int64],
    lanes: NDArray[np.int64],
    *,
    seed: int,
    epoch: int,
    window: int,
    shuffle: bool,
    lane_count: int,
) -> WindowGroups:
    """Return the groups of a window in sequence order, from the length and the lane of each of its samples, in
    ascending order of position. A length of 0 counts as 1, but the item has no values."""
    assert rule.first_oversize(lengths) is None, "the caller refuses a sample that is too long, and names it"
    if rule.kind == "concat":
        place = f"window {window} of epoch {epoch}"
        rows = concatenate(lengths, lanes, rule.capacity, lane_count, place=place)
    else:
        rows = _fitted(rule, lengths, lanes, lane_count)
    numbered = stable_order(rows.lanes, lane_count)  # the groups lane by lane, by number
    counts = np.bincount(rows.lanes, minlength=lane_count)
    group_lanes, begins = np.repeat(np.arange(lane_count), counts), np.cumsum(counts) - counts
    if shuffle:
        parents = np.repeat(keys(key(seed, 7, epoch, window), np.arange(lane_count)), counts)
        placed = np.argsort(sort_keys(parents, np.arange(len(group_lanes)) - begins[group_lanes]))
    else:
        first = rows.edges[:-1][numbered]  # the first item of each group; rows of kind concat keep their order
        placed = np.lexsort((rows.firsts[first], rows.items[first]))
    placed = placed[stable_order(group_lanes[placed], lane_count)]  # the groups of each lane, in its order
    j = np.arange(len(placed)) - begins[group_lanes]
    sequence = placed[stable_order(((2 * j + 1) << 31) // counts[group_lanes], 2**32)]  # ties by lane
    edges, items = items_of(rows.edges, numbered[sequence])
    return WindowGroups(group_lanes[sequence], edges, rows.items[items], rows.firsts[items], rows.sizes[items])


def items_of(edges: NDArray[np.int64], groups: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the edges of some of the groups with `edges`, in the given order, and the indices of their items."""
    counts = np.diff(edges)[groups]
    found = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return found, np.arange(found[-1]) + np.repeat(edges[groups] - found[:-1], counts)


def _fitted(rule: Grouping, lengths: NDArray[np.int64], lanes: NDArray[np.int64], lane_count: int) -> WindowGroups:
    """Return the groups of kind "pack" or "max_tokens", lane by lane, by number."""
    items, firsts, sizes = _items(rule, lengths)
    item_lanes = lanes[items]
    by_lane = stable_order(item_lanes, lane_count)
    edges = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(item_lanes, minlength=lane_count))])
    numbers = np.empty_like(items)
    numbers[by_lane], counts = _numbers(rule, np.maximum(sizes, 1)[by_lane], edges)
    groups = numbers + (np.cumsum(counts) - counts)[item_lanes]
    by_group = stable_order(groups, int(counts.sum()))
    edges = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(groups))])
    group_lanes = np.repeat(np.arange(lane_count), counts)
    return WindowGroups(group_lanes, edges, items[by_group], firsts[by_group], sizes[by_group])


def _items(
    rule: Grouping, lengths: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return each item's sample, its first value in the sample, and its number of values."""
    items = np.arange(len(lengths))
    if rule.oversize != "split" or not (lengths > rule.capacity).any():
        return items, np.zeros_like(items), np.minimum(lengths, rule.capacity)
    pieces = np.maximum(-(-lengths // rule.capacity), 1)
    items = np.repeat(items, pieces)
    firsts = (np.arange(len(items)) - (np.cumsum(pieces) - pieces)[items]) * rule.capacity
    return items, firsts, np.minimum(lengths[items] - firsts, rule.capacity)


def _numbers(
    rule: Grouping, weights: NDArray[np.int64], edges: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the number of each item's group in its lane, and the number of groups of each lane. Lane c has items
    `edges[c]` up to `edges[c + 1]`."""
    if rule.kind == "pack":
        return pack(weights, edges, rule.capacity)
    lanes = np.repeat(np.arange(len(edges) - 1), np.diff(edges))
    order = stable_order(lanes * (rule.capacity + 1) + weights, (len(edges) - 1) * (rule.capacity + 1))
    ascending, firsts, counts = weights[order], [], []
    for first, last in pairwise(edges.tolist()):
        found = _batches(ascending[first:last].tolist(), rule.capacity, rule.max_samples or len(weights))
        firsts.append(np.array(found, np.int64) + first)
        counts.append(len(found))
    starts = np.concatenate(firsts)
    numbers = np.arange(len(starts)) - np.repeat(np.cumsum(counts) - counts, counts)
    result = np.empty_like(order)
    result[order] = np.repeat(numbers, np.diff(starts, append=len(order)))
    return result, np.array(counts, np.int64)


def _batches(ascending: list[int], capacity: int, most: int) -> list[int]:
    """Return the start of each batch, with as many successive weights as keep `count * largest` within `capacity`."""
    starts, start = [], 0

    def size(stop: int) -> int:
        return (stop - start) * ascending[stop - 1]

    while start < len(ascending):
        starts.append(start)
        stops = range(start + 1, min(start + min(capacity // ascending[start], most), len(ascending)) + 1)
        start = stops[bisect_right(stops, capacity, key=size) - 1]
    return starts


def step_order(lanes: NDArray[np.int64], lane_count: int) -> NDArray[np.int64]:
    """Return which of a step's n groups is at each of its n places, from the groups' lanes in sequence order, for many
    steps: int64 [steps, n] both.

    Rank r of R has places `[r*n//R, (r+1)*n//R)`. A group is at a place of its lane's home if one is left.
    """
    n = lanes.shape[1]
    by_lane = np.argsort(lanes, axis=1, kind="stable")
    ordered = np.take_along_axis(lanes, by_lane, 1)
    begins = np.zeros_like(ordered)
    begins[:, 1:] = np.where(ordered[:, 1:] != ordered[:, :-1], np.arange(1, n), 0)
    homes = ordered * n // lane_count + np.arange(n) - np.maximum.accumulate(begins, axis=1)
    fits = homes < (ordered + 1) * n // lane_count
    result = np.full(lanes.size, -1, np.int64)
    result[(homes + np.arange(len(lanes))[:, None] * n)[fits]] = by_lane[fits]
    result[result < 0] = by_lane[~fits]
    return result.reshape(lanes.shape)
