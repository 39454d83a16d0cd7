"""Mixtures: positions of weighted datasets together, each read in its own order, epoch after epoch.

Which component a position draws is a low-discrepancy sequence in each lane, so that the composition of every batch is
tight; how often a component was drawn before is a floor sum, so that any position is computed by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from numbers import Rational, Real

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mdsx.errors import UsageError
from mdsx.order.checks import MAX_LANES, MAX_SAMPLES, MAX_UINT64, integer, integers
from mdsx.order.grouping import groups
from mdsx.order.hashing import G, key, keys, permutations
from mdsx.order.order import Order, default_shuffle_block

_MODULUS = 2**64
_ROUND = 256  # positions within which draws are permuted, over all lanes
_LANE_WISE = 1024  # samples a lane from which a component is read lane by lane
_EPOCHS_KEPT = 4  # orders of a component in memory: its lanes are in the same epoch or in successive ones


def floor_sum(n: int, m: int, a: int, b: int) -> int:
    """The sum of (a*i + b) // m for i in 0..n-1, exactly, in O(log m) steps; b may be negative."""
    total = 0
    while n > 0:
        total += a // m * (n * (n - 1) // 2) + b // m * n
        a, b = a % m, b % m
        end = a * n + b
        n, b, a, m = end // m, end % m, m, a
    return total


class MixtureOrder:
    """The order of a mixture of datasets, whose shards have `components[i]` samples, by `weights`.

    A weight is an int, a Fraction or a float, taken exactly. `shuffle_block` is the same for all components (None: the
    default for all their shards together). Positions count on from epoch to epoch. Does not change once made; can be
    pickled, and used by several threads.
    """

    def __init__(
        self,
        components: Sequence[ArrayLike],
        weights: Iterable[float | Fraction],
        seed: int = 0,
        lanes: int = 8,
        shuffle_block: int | None = None,
    ) -> None:
        counts = [integers(component, f"components[{i}]", MAX_SAMPLES) for i, component in enumerate(components)]
        if shuffle_block is None:
            samples = sum(sum(component.tolist()) for component in counts)
            shuffle_block = default_shuffle_block(samples, sum(map(len, counts)))
        self.seed = integer(seed, "seed", 0, MAX_UINT64)
        self.lanes = integer(lanes, "lanes", 1, MAX_LANES)
        self.shuffle_block = integer(shuffle_block, "shuffle_block", 1, MAX_SAMPLES)
        self._streams = [
            _Stream(component, key(self.seed, 4, i), self.lanes, self.shuffle_block)
            for i, component in enumerate(counts)
        ]
        self.sizes = tuple(stream.size for stream in self._streams)
        self.bounds = _bounds(list(weights), self.sizes)
        self._row = max(1, _ROUND // self.lanes)  # M: offsets of a lane in a round
        self._offset = key(self.seed, 3)
        self._limits = np.array([bound for bound in self.bounds if bound < _MODULUS], np.uint64)
        self._lane_wise = np.array([stream.lane_wise for stream in self._streams])

    @property
    def epoch_samples(self) -> int:
        """Positions in an epoch of the mixture, where nobody says otherwise: the sum of the components' sizes."""
        return sum(self.sizes)

    def draw(self, positions: ArrayLike) -> NDArray[np.int64]:
        """The component at each of `positions`."""
        positions = integers(positions, "positions", MAX_SAMPLES)
        rounds, places = np.divmod(positions, self._row * self.lanes)
        unique, at = np.unique(rounds, return_inverse=True)
        return self._draw_rounds(unique).reshape(len(unique), self._row * self.lanes)[at, places]

    def draws_before(self, positions: ArrayLike) -> NDArray[np.int64]:
        """[positions, components]: how often the lane of each position drew each component at its offsets before."""
        positions = integers(positions, "positions", MAX_SAMPLES)
        counts = np.zeros((len(positions), len(self.sizes)), np.int64)
        for row, position in zip(counts, positions.tolist(), strict=True):
            offset, lane = divmod(position, self.lanes)
            number, within = divmod(offset, self._row)
            row += self._draws_in_rounds(lane, number)
            started = self._draw_rounds(np.array([number]))[0, :within, lane]
            row += np.bincount(started, minlength=len(row))
        return counts

    def locate(self, positions: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """The component, the shard in it, and the sample in that shard, at each of `positions`.

        Fast for many successive positions in one call.
        """
        positions = integers(positions, "positions", MAX_SAMPLES)
        rounds, places = np.divmod(positions, self._row * self.lanes)
        unique, at = np.unique(rounds, return_inverse=True)
        places += at * (self._row * self.lanes)
        drawn, earlier = np.zeros((2, len(unique), self._row * self.lanes), np.int64)
        edges = [0, *(np.flatnonzero(np.diff(unique) != 1) + 1).tolist(), len(unique)] if len(unique) else [0]
        for first, last in pairwise(edges):
            drawn[first:last], earlier[first:last] = self._successive_rounds(int(unique[first]), last - first)
        components, counts = drawn.ravel()[places], earlier.ravel()[places]
        shards, samples = np.empty_like(components), np.empty_like(components)
        lanes = positions % self.lanes
        for component, chosen in groups(components):
            shards[chosen], samples[chosen] = self._streams[component].locate(counts[chosen], lanes[chosen])
        return components, shards, samples

    def _draw_rounds(self, rounds: NDArray[np.int64]) -> NDArray[np.int64]:
        """[rounds, M, C]: the components of whole rounds, offset by offset and lane by lane."""
        drawn = np.empty((len(rounds), self._row, self.lanes), np.int64)
        for lane in range(self.lanes):
            places = permutations(keys(key(self.seed, 5, lane), rounds), self._row)
            steps = ((rounds[:, None] * self._row + places) * self.lanes + lane).astype(np.uint64)
            points = steps * np.uint64(G) + np.uint64(self._offset)
            drawn[:, :, lane] = np.searchsorted(self._limits, points, side="right")
        return drawn

    def _draws_in_rounds(self, lane: int, rounds: int) -> NDArray[np.int64]:
        """How often `lane` draws each component in the first `rounds` rounds."""
        n, step, begin = rounds * self._row, self.lanes * G % _MODULUS, (lane * G + self._offset) % _MODULUS
        wraps = floor_sum(n, _MODULUS, step, begin)
        below = [wraps - floor_sum(n, _MODULUS, step, begin - bound) for bound in self.bounds]
        return np.diff(np.array(below), prepend=0)

    def _successive_rounds(self, first: int, rounds: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Each [rounds, M*C]: the components of rounds from `first` on, and how often each one was drawn before.

        A component that is read lane by lane counts by itself in each lane, a smaller one in all together.
        """
        drawn = self._draw_rounds(np.arange(first, first + rounds)).ravel()
        lanes = np.tile(np.arange(self.lanes), rounds * self._row)
        counters = drawn * self.lanes + np.where(self._lane_wise[drawn], lanes, 0)
        by_counter = np.argsort(counters, kind="stable")
        sizes = np.bincount(counters, minlength=len(self.sizes) * self.lanes)
        earlier = np.empty_like(drawn)
        earlier[by_counter] = np.arange(len(drawn)) - np.repeat(np.cumsum(sizes) - sizes, sizes)

        before = np.array([self._draws_in_rounds(lane, first) for lane in range(self.lanes)])
        together = np.where(self._lane_wise, before, before.sum(axis=0))
        earlier += together.T.ravel()[counters]
        shape = (rounds, self._row * self.lanes)
        return drawn.reshape(shape), earlier.reshape(shape)


class _Stream:
    """One component's samples, epoch after epoch."""

    def __init__(self, counts: ArrayLike, seed: int, lanes: int, shuffle_block: int) -> None:
        first = Order(counts, seed, 0, lanes, shuffle_block)
        self.size = len(first)
        self.lane_wise = self.size >= _LANE_WISE * first.lanes
        self._first = first if self.lane_wise else Order(counts, seed, 0, 1, shuffle_block)
        self._epochs: list[Order] = [self._first] * _EPOCHS_KEPT

    def locate(
        self, counts: NDArray[np.int64], lanes: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The shards and samples that were drawn after `counts` others, of the lane where read lane by lane."""
        if self.lane_wise:
            many = self._first.lanes
            epochs, offsets = np.divmod(counts, self.size // many + (lanes < self.size % many))
            places = offsets * many + lanes
        else:
            epochs, places = np.divmod(counts, self.size)
        shards, samples = np.empty_like(counts), np.empty_like(counts)
        for epoch, chosen in groups(epochs):
            shards[chosen], samples[chosen] = self._at_epoch(epoch).locate(places[chosen])
        return shards, samples

    def _at_epoch(self, epoch: int) -> Order:
        slot = epoch % _EPOCHS_KEPT
        order = self._epochs[slot]
        if order.epoch != epoch:
            order = self._epochs[slot] = self._first.at_epoch(epoch)
        return order


def _bounds(weights: Sequence[float | Fraction], sizes: Sequence[int]) -> tuple[int, ...]:
    """Where the components end on a circle of 2^64 points."""
    exact = [_exact(weight, i) for i, weight in enumerate(weights)]
    if len(exact) != len(sizes):
        raise UsageError("a mixture needs a weight for each component", found=len(exact), expected=len(sizes))
    total = sum(exact)
    if total == 0:
        raise UsageError("a mixture needs a component with a weight above 0")
    for i, (weight, size) in enumerate(zip(exact, sizes, strict=True)):
        if weight and not size:
            raise UsageError(f"components[{i}] has no samples but a weight", found=weights[i], expected="weight 0")
    return tuple(int(part * _MODULUS / total) for part in accumulate(exact))


def _exact(weight: float | Fraction, i: int) -> Fraction:
    if isinstance(weight, bool) or not isinstance(weight, Real):
        raise UsageError(f"weights[{i}] must be a number", found=repr(weight))
    if weight < 0 or not (isinstance(weight, Rational) or math.isfinite(weight)):
        raise UsageError(f"weights[{i}] must be finite and not negative", found=weight)
    if isinstance(weight, Rational):
        return Fraction(int(weight.numerator), int(weight.denominator))
    return Fraction(float(weight))
