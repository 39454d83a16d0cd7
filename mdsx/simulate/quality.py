"""Measure how well an epoch is shuffled, from its order, compared with other shuffles that hold as many bytes.

- Correlation: Pearson's, between positions and the numbers of their samples. An exact shuffle has about 0.
- Distinct: how many shards (or values of a column, such as classes) are in a batch.
- Repeated: the share of a batch's shards that the previous batch has too. Small blocks of many lanes have many shards
  in each batch, but the same ones for a long time.
- Neighbour distance: how far apart the numbers at neighbouring positions are, 1.0 in an exact shuffle.

An epoch of up to 2^20 samples is measured completely. For a larger one, stretches of some batches are measured, and for
the correlation, positions drawn by hashing. If a block or buffer is larger than that, positions are drawn for the
batches too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import UsageError
from mdsx.order import Order, integer, key
from mdsx.simulate.buffered import Buffer
from mdsx.simulate.orders import KEYS, EpochOrder, Exact, Ours, ShardLine, Unshuffled, sampled_positions
from mdsx.simulate.permuted import drawn_below
from mdsx.simulate.py1e import Py1e

_WHOLE = 2**20  # samples of an epoch that is measured completely
_PAIRS = 2**17  # positions drawn for the correlation
_STRETCHES, _FEWEST = 48, 8
_BATCHES = 4  # in a stretch
_WORK = 2**23  # samples to compute for all stretches, about
_MEAN, _MEDIAN = 1 / 3, 1 - math.sqrt(0.5)  # of the distance between two numbers drawn from 0 to 1
_MAX_BATCH = 2**24
_MAX_KIND = 2**32  # times the batches of a stretch, it stays within int64
_Parts = list[NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Labels:
    """The values of a column: the value of sample `number` is `values[number]`, as an integer."""

    column: str
    values: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Quality:
    """How well one method shuffles an epoch.

    Attributes:
        method: "mdsx", "exact", "buffer", "py1e" or "none".
        held_bytes: The bytes held at a time by all nodes: the shards in use, or the buffer.
        correlation: The correlation of position and number, -1 to 1.
        correlation_error: Its standard error; 0 if the whole epoch was measured.
        distinct: The mean number of shards, or values of a column, in a batch.
        distinct_p5: The 5th percentile: 95 of 100 batches have at least as many.
        distinct_error: The standard error of the mean; 0 if the whole epoch was measured.
        distinct_of: "shards", or the column's name.
        neighbour_distance: The mean distance of neighbours' numbers, relative to an exact shuffle.
        neighbour_median: The median distance, relative to an exact shuffle.
        repeated: The mean share of a batch's shards, or values, that the previous batch has too.
        sampled: How many positions were counted in batches: the whole epoch, or fewer.
    """

    method: str
    held_bytes: int
    correlation: float
    correlation_error: float
    distinct: float
    distinct_p5: float
    distinct_error: float
    distinct_of: str
    neighbour_distance: float
    neighbour_median: float
    repeated: float
    sampled: int


@dataclass(frozen=True, slots=True)
class OrderMap:
    """Points of a picture of an order: the number of the sample at each of some positions."""

    method: str
    positions: list[int]
    numbers: list[int]


def epoch_orders(order: Order) -> Iterator[EpochOrder]:
    """Yield the orders to compare: `order`, and others. The buffer and py1e hold as many samples at a time as there are
    in the shards that `order` has in use.

    For these two, the order of the shards is shuffled, as in their loaders.
    """
    if not len(order):
        raise UsageError("an empty dataset has no order to measure", hint="give shards with samples")
    ours, seed = Ours(order), order.seed
    yield ours
    yield Exact(len(order), seed)
    line = ShardLine.of(order.counts, seed=seed)
    yield Buffer(line, ours.held, seed)
    yield Py1e.holding(ours.held, line, seed=seed)
    yield Unshuffled(order.counts)


def quality(
    order: EpochOrder,
    counts: NDArray[np.int64],
    *,
    batch_size: int,
    sample_bytes: float,
    labels: Labels | None = None,
) -> Quality:
    """Return the quality of one order of the shards with these numbers of samples."""
    batch = min(integer(batch_size, "batch_size", 1, _MAX_BATCH), order.samples)
    if labels is not None and len(labels.values) != order.samples:
        raise UsageError(
            f"column {labels.column} does not have one value for each sample",
            found=f"{len(labels.values):,} values",
            expected=f"{order.samples:,}",
        )
    whole = order.samples <= _WHOLE
    ends = np.cumsum(counts)
    distinct, repeated, distances, sampled = _Parts(), _Parts(), _Parts(), 0
    for numbers in _stretches(order, batch, whole=whole):
        kinds = np.searchsorted(ends, numbers, side="right") if labels is None else labels.values[numbers]
        kinds = kinds[: len(kinds) // batch * batch].reshape(-1, batch)
        distinct.append(distinct_in(kinds))
        repeated.append(repeated_in(kinds))
        distances.append(np.abs(np.diff(numbers)))
        sampled += len(numbers)
    found, again, apart = np.concatenate(distinct), np.concatenate(repeated), np.concatenate(distances) / order.samples
    correlation, error = _correlation(order, whole=whole)
    return Quality(
        method=order.method,
        held_bytes=round(order.held * sample_bytes),
        correlation=correlation,
        correlation_error=error,
        distinct=float(found.mean()),
        distinct_p5=float(np.percentile(found, 5)),
        distinct_error=0.0 if whole else _error_of_mean([float(part.mean()) for part in distinct]),
        distinct_of="shards" if labels is None else labels.column,
        neighbour_distance=float(apart.mean()) / _MEAN if len(apart) else 0.0,
        neighbour_median=float(np.median(apart)) / _MEDIAN if len(apart) else 0.0,
        repeated=float(again.mean()) if len(again) else 0.0,
        sampled=sampled,
    )


def order_map(order: EpochOrder, points: int) -> OrderMap:
    """Return points of a picture of the order."""
    positions = sampled_positions(order.samples, points)
    whole = order.samples <= _WHOLE
    numbers = order.numbers(0, order.samples)[positions] if whole else order.drawn(positions)
    return OrderMap(order.method, positions.tolist(), numbers.tolist())


def _stretches(order: EpochOrder, batch: int, *, whole: bool) -> Iterator[NDArray[np.int64]]:
    """Yield the numbers of some stretches of complete batches, or of the whole epoch at once."""
    if whole:
        yield order.numbers(0, order.samples)
        return
    size = min(_BATCHES, max(1, order.samples // batch)) * batch
    wanted = max(_FEWEST, min(_STRETCHES, _WORK // (order.work + size)))
    starts = drawn_below(key(KEYS, 7, batch), np.arange(wanted), order.samples // batch - size // batch + 1)
    for start in np.sort(starts * batch).tolist():
        yield order.numbers(start, start + size)


def distinct_in(kinds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many distinct values each row of [batches, B] has."""
    ordered = np.sort(kinds, axis=1)
    changes: NDArray[np.int64] = np.count_nonzero(ordered[:, 1:] != ordered[:, :-1], axis=1)
    return changes + 1


def repeated_in(kinds: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the share of each row's distinct values that the previous row has too: float64 [batches - 1]."""
    if kinds.min(initial=0) < 0 or kinds.max(initial=0) > _MAX_KIND:
        kinds = np.unique(kinds, return_inverse=True)[1].reshape(kinds.shape)
    span = int(kinds.max(initial=0)) + 1
    pairs = np.unique(kinds + np.arange(len(kinds))[:, None] * span)
    rows = pairs // span
    again = np.isin(pairs - span, pairs, assume_unique=True)
    return (np.bincount(rows, again, len(kinds)) / np.bincount(rows, minlength=len(kinds)))[1:]


def exact_batches(counts: NDArray[np.int64], batch_size: int) -> tuple[float, float]:
    """Return how many shards a batch of an exact shuffle has, and the share that the previous batch has too.

    Both are expected values, for batches that are drawn independently.
    """
    samples = int(counts.sum())
    size = min(batch_size, samples)
    sizes, often = np.unique(counts[counts > 0], return_counts=True)
    drawn = -np.expm1(size * np.log1p(-np.minimum(sizes / samples, 1 - 1e-12)))
    distinct = float((often * drawn).sum())
    return distinct, float((often * drawn**2).sum()) / distinct


def _correlation(order: EpochOrder, *, whole: bool) -> tuple[float, float]:
    """Return the correlation of position and number, and its standard error."""
    positions = np.arange(order.samples) if whole else sampled_positions(order.samples, _PAIRS)
    numbers = order.numbers(0, order.samples) if whole else order.drawn(positions)
    if len(positions) < 2:
        return 0.0, 0.0
    x, y = positions - positions.mean(), numbers - numbers.mean()
    found = float((x * y).sum() / math.sqrt(float((x * x).sum()) * float((y * y).sum())))
    return found, 0.0 if whole else (1 - found**2) / math.sqrt(len(positions))


def _error_of_mean(parts: list[float]) -> float:
    return float(np.std(parts, ddof=1)) / math.sqrt(len(parts)) if len(parts) > 1 else 0.0
