"""`mdsx.Groups`: the groups of an epoch, computed from an order and the samples' lengths, without reading data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mdsx.errors import UsageError, shown
from mdsx.order.bucketing import NO_BUCKET, Bucketing, bucket_groups, bucket_values, rank_edges
from mdsx.order.course import MAX_WORLD_SIZE, Course, DatasetCourse, MixtureCourse
from mdsx.order.dealing import Balance, Dealing, Over
from mdsx.order.grouping import (
    MAX_CAPACITY,
    Grouping,
    Kind,
    Oversize,
    Windows,
    default_window,
    group_window,
    items_of,
    step_order,
)
from mdsx.order.limits import MAX_SAMPLES, integer
from mdsx.order.mixture import MixtureOrder
from mdsx.order.order import Order

MAX_LENGTH = 2**32 - 1


@dataclass(frozen=True, slots=True)
class GroupSequence:
    """Successive groups. Group g has items `edges[g]` up to `edges[g + 1]` (exclusive), ascending by position. With
    kind "concat", a row may have items of several lanes, sorted by lane and then by position. With kind "buckets",
    items are in the order in which they are divided among ranks.

    Attributes:
        lanes: int64 [G], the lane of each group; with kind "buckets", its bucket.
        edges: int64 [G + 1].
        positions: int64 [items], the position of each item's sample, counted over all epochs.
        firsts: int64 [items], the item's first value in its sample: 0 unless the sample is cut.
        sizes: int64 [items], the number of the sample's values in the group; 1 with kind "buckets".
    """

    lanes: NDArray[np.int64]
    edges: NDArray[np.int64]
    positions: NDArray[np.int64]
    firsts: NDArray[np.int64]
    sizes: NDArray[np.int64]

    def __len__(self) -> int:
        """Return G, the number of groups."""
        return len(self.lanes)

    def take(self, groups: NDArray[np.int64]) -> GroupSequence:
        """Return the groups with these indices, in this order."""
        edges, items = items_of(self.edges, groups)
        return GroupSequence(self.lanes[groups], edges, self.positions[items], self.firsts[items], self.sizes[items])

    def __add__(self, other: GroupSequence) -> GroupSequence:
        """Return these groups followed by the others."""
        return GroupSequence(
            np.concatenate([self.lanes, other.lanes]),
            np.concatenate([self.edges, self.edges[-1] + other.edges[1:]]),
            np.concatenate([self.positions, other.positions]),
            np.concatenate([self.firsts, other.firsts]),
            np.concatenate([self.sizes, other.sizes]),
        )


def group_positions(
    rule: Grouping | Bucketing,
    course: Course,
    positions: NDArray[np.int64],
    lengths: NDArray[np.int64],
    *,
    seed: int,
    epoch: int,
    window: int,
    shuffle: bool,
) -> GroupSequence:
    """Return the groups of a window of `course`, from all its positions, ascending, and the lengths of their samples;
    with kind "buckets", their buckets."""
    lanes = course.lanes_of(positions)
    if isinstance(rule, Bucketing):
        found = bucket_groups(rule, lengths, lanes, course.lanes)
    else:
        found = group_window(
            rule,
            lengths,
            lanes,
            seed=seed,
            epoch=epoch,
            window=window,
            shuffle=shuffle,
            lane_count=course.lanes,
        )
    return GroupSequence(found.lanes, found.edges, positions[found.items], found.firsts, found.sizes)


class Groups(Sequence[GroupSequence]):
    """The groups of one epoch, window by window: packed or concatenated rows, length-bounded batches, or batches of one
    shape. It does no I/O. format-spec.md specifies it.

        groups = mdsx.Groups(mdsx.Order(counts, seed=7, epoch=3), lengths, capacity=4096)
        first_window = groups[0]
        for step in groups.steps(64):
            rows = groups.share(step, rank=0, world_size=8)

    `groups[k]` computes the groups of window k. Iterating computes one window at a time. `groups.windows[k]` is the
    window's first and last position (exclusive). Only `share` depends on ranks. A `balance` only changes which rank of
    a node has which of the node's rows, and in which order.

    Args:
        order: The order of a dataset or of a mixture.
        lengths: The length of each sample, 0 to 2^32 - 1: an integer array [N], by the sample's number. For a mixture,
            the arrays of its datasets are concatenated. With kind "buckets", the height and width of each sample,
            [N, 2], or the number of its bucket, [N].
        capacity: The most values in a row; with `kind="max_tokens"`, the most values in a batch, padding included. Not
            for kind "buckets".
        kind: "pack" for rows of whole samples, "concat" for rows of exactly `capacity` values, cut from successive
            samples, "max_tokens" for length-bounded batches, "buckets" for batches of one shape.
        window: How many positions of each lane are grouped together. The default follows from the mean length; with
            kind "concat", also from the number of lanes; with kind "buckets", only from the number of lanes. A run's
            state has its window.
        oversize: What to do with a sample longer than `capacity`: "error" (the default), "truncate" or, with kind
            "pack", "split". Not for kind "concat".
        max_samples: The most samples in a batch of kind "max_tokens".
        balance: Deal the rows of each node to its ranks by cost: `(linear, quadratic)`, two integers. An item of n
            values costs `linear * n + quadratic * n * n`, a row the sum. For attention beside layers of width d, use
            `(12 * d, 1)`. For kinds "pack" and "concat".
        ranks_per_node: With a `balance`, the number of successive ranks on a node, a divisor of the world size.
        balance_over: "node", or "job" to deal rows to all ranks, whatever their nodes.
        sizes: With kind "buckets", the height and width of each bucket, or its number, as in `mdsx.Buckets`.
        global_batch_size: With kind "buckets", the number of samples in a batch over all ranks: one number, or one for
            each bucket.
        epoch: The run's epoch. The default is the order's epoch; for a mixture, 0.
        epoch_samples: The number of positions in each of the run's epochs. The default is all samples.

    Raises:
        UsageError: An argument is invalid, or (when a window is computed) a sample is too long.
    """

    def __init__(
        self,
        order: Order | MixtureOrder,
        lengths: ArrayLike,
        *,
        capacity: int | None = None,
        kind: Kind | Literal["buckets"] = "pack",
        window: int | None = None,
        oversize: Oversize | None = None,
        max_samples: int | None = None,
        balance: tuple[int, int] | None = None,
        ranks_per_node: int | None = None,
        balance_over: Over = "node",
        sizes: Sequence[tuple[int, int]] | Sequence[int] | None = None,
        global_batch_size: int | Sequence[int] | None = None,
        epoch: int | None = None,
        epoch_samples: int | None = None,
    ) -> None:
        if not isinstance(order, Order | MixtureOrder):
            raise UsageError(
                "groups need an order", found=shown(order), expected="an mdsx.Order", hint="see docs/batches.md"
            )
        counts = np.concatenate(order.counts) if isinstance(order, MixtureOrder) else order.counts
        self._firsts = np.cumsum(counts) - counts
        self.grouping: Grouping | Bucketing
        self._lengths: NDArray[np.integer[Any]]
        of_lengths = {"capacity": capacity, "oversize": oversize, "max_samples": max_samples, "balance": balance}
        of_buckets = {"sizes": sizes, "global_batch_size": global_batch_size}
        for name, value in (of_lengths if kind == "buckets" else of_buckets).items():
            if value is not None:
                raise UsageError(f"{name} is not for kind {kind!r}", found=shown(value))
        if kind == "buckets":
            self.grouping = Bucketing.of(sizes, global_batch_size, window, order.lanes)
            self._lengths = self.grouping.buckets_of(bucket_values(lengths, self.grouping, int(counts.sum())))
        else:
            self._lengths = _checked(lengths, int(counts.sum()))
            capacity = integer(_given(capacity), "capacity", 1, MAX_CAPACITY)
            if window is None:
                mean = Fraction(int(self._lengths.sum(dtype=np.uint64)), max(len(self._lengths), 1))
                window = default_window(capacity, mean, kind=kind, lanes=order.lanes)
            self.grouping = Grouping(kind, capacity, window, oversize, max_samples)
        self.balance = Balance.of(balance, balance_over, capacity or 0)
        if self.balance is not None and kind == "max_tokens":
            raise UsageError("balance is only for kind 'pack' or 'concat'", found="kind 'max_tokens'")
        if self.balance is not None and balance_over == "node" and ranks_per_node is None:
            raise UsageError(
                "rows are dealt to the ranks of a node, but their number is unknown",
                hint="give ranks_per_node=, or balance_over='job'",
            )
        self._ranks_per_node = ranks_per_node
        self._course: Course
        if isinstance(order, MixtureOrder):
            components = np.cumsum([0, *map(len, order.counts)])
            self._course, self._shuffle = MixtureCourse(order, components, epoch_samples), True
        else:
            self._course, self._shuffle = DatasetCourse(order, epoch_samples), order.shuffle
        if self._course.run is not None:
            raise UsageError("a mixture in runs cannot be grouped", found=f"run={self._course.run}")
        own = 0 if isinstance(order, MixtureOrder) else order.epoch
        size = self._course.epoch_samples
        self.epoch = integer(own if epoch is None else epoch, "epoch", 0, MAX_SAMPLES // max(size, 1) - 1)
        self.seed, self.lanes = order.seed, order.lanes
        start = self.epoch * size
        self.windows: Windows = Windows(start, start + size, self._course.cut, self.grouping.window * self.lanes)
        """The first and last position (exclusive) of each window, counted over all epochs."""

    def __len__(self) -> int:
        """Return the number of windows."""
        return len(self.windows)

    @overload
    def __getitem__(self, window: int) -> GroupSequence: ...
    @overload
    def __getitem__(self, window: slice) -> list[GroupSequence]: ...
    def __getitem__(self, window: int | slice) -> GroupSequence | list[GroupSequence]:
        """Compute the groups of a window."""
        if isinstance(window, slice):
            return [self[number] for number in range(*window.indices(len(self)))]
        number = window + len(self) if window < 0 else window
        positions = np.arange(*self.windows[number])
        shards, samples = self._course.locate(positions)
        samples += self._firsts[shards]
        lengths = self._lengths[samples].astype(np.int64)
        if isinstance(self.grouping, Bucketing):
            if (lengths == NO_BUCKET).any():
                place = f"lengths[{samples[int(np.argmax(lengths == NO_BUCKET))]}]"
                raise UsageError("a sample has no bucket", place=place)
        elif (bad := self.grouping.first_oversize(lengths)) is not None:
            raise UsageError(
                "a sample is longer than a group",
                place=f"lengths[{samples[bad]}]",
                found=int(lengths[bad]),
                expected=f"at most {self.grouping.capacity}",
            )
        return group_positions(
            self.grouping,
            self._course,
            positions,
            lengths,
            seed=self.seed,
            epoch=self.epoch,
            window=number,
            shuffle=self._shuffle,
        )

    def steps(self, size: int = 1, *, window: int = 0, taken: int = 0) -> Iterator[GroupSequence]:
        """Yield the groups of each step, `size` over all ranks, after the first `taken` groups of `window`. The last
        step may have fewer. With kind "buckets", a step is one group."""
        most = 1 if isinstance(self.grouping, Bucketing) else MAX_SAMPLES
        size = integer(size, "size", 1, most)
        left: GroupSequence | None = None
        for number in range(integer(window, "window", 0, len(self)), len(self)):
            found = self[number]
            if left is None:
                found = found.take(np.arange(integer(taken, "taken", 0, len(found)), len(found)))
            left = found if left is None else left + found
            whole = len(left) - len(left) % size
            for first in range(0, whole, size):
                yield left.take(np.arange(first, first + size))
            left = left.take(np.arange(whole, len(left)))
        if left:
            yield left

    def share(self, step: GroupSequence, rank: int, world_size: int) -> GroupSequence:
        """Return the groups of `rank` in a step, in its order; with kind "buckets", the step's group with only the
        rank's samples. With a balance, raise UsageError for a number of ranks that `ranks_per_node` does not divide."""
        world_size = integer(world_size, "world_size", 1, MAX_WORLD_SIZE)
        rank = integer(rank, "rank", 0, world_size - 1)
        if isinstance(self.grouping, Bucketing):
            return _part(step, rank, world_size)
        n = len(step)
        order = step_order(step.lanes[None], self.lanes)
        if self.balance is not None:
            dealing = Dealing(self.balance, self.balance.node(self._ranks_per_node, world_size))
            order = dealing.reorder(order, step.sizes, step.edges, rank, world_size)
        return step.take(order[0, rank * n // world_size : (rank + 1) * n // world_size])


def _given(capacity: int | None) -> int:
    if capacity is None:
        raise UsageError("capacity is missing", hint="give the most values of a row, or kind='buckets'")
    return capacity


def _part(step: GroupSequence, rank: int, world_size: int) -> GroupSequence:
    """Return the group of a step with only a rank's samples."""
    (first,), (stop,) = rank_edges(step.edges, rank, world_size)
    mine = slice(int(first), int(stop))
    edges = np.array([0, stop - first])
    return GroupSequence(step.lanes, edges, step.positions[mine], step.firsts[mine], step.sizes[mine])


def _checked(lengths: ArrayLike, samples: int) -> NDArray[np.integer[Any]]:
    """Return the lengths as an array, without a copy."""
    array = np.asarray(lengths)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise UsageError("lengths must be a 1-D array of integers", found=f"{array.ndim}-D {array.dtype}")
    if len(array) != samples:
        raise UsageError("expected one length per sample", found=len(array), expected=samples)
    if samples and not 0 <= int(array.min()) <= int(array.max()) <= MAX_LENGTH:
        raise UsageError(
            "lengths are out of range", found=f"{array.min()} to {array.max()}", expected=f"0 to {MAX_LENGTH}"
        )
    return array if array.size else np.zeros(0, np.int64)
