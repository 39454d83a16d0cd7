"""Which component of a mixture each position draws, and how often each was drawn before.

The draws of a lane are a low-discrepancy sequence, so every batch is close to the weights. The number of draws of a
component before a position is a floor sum, so any position can be computed by itself. The weights change at the start
of a phase: the points stay the same, and only the bounds between the components move.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate
from numbers import Rational, Real

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import UsageError, shown
from mdsx.order.hashing import G, key, keys, permutations

MODULUS = 2**64
_MOST_BITS = 2048  # of a weight's numerator and denominator: more than a float has
_ROUND = 256  # positions within which draws are permuted, over all lanes

Weight = float | Fraction
Bounds = tuple[int, ...]


def floor_sum(n: int, m: int, a: int, b: int) -> int:
    """Return the exact sum of (a*i + b) // m for i in 0..n-1 in O(log m) steps; b may be negative."""
    total = 0
    while n > 0:
        total += a // m * (n * (n - 1) // 2) + b // m * n
        a, b = a % m, b % m
        end = a * n + b
        n, b, a, m = end // m, end % m, m, a
    return total


class Draws:
    """The draws of a mixture. Each of its `phases` is (first position, bounds); the first phase starts at position
    0."""

    def __init__(self, phases: Sequence[tuple[int, Bounds]], *, seed: int, lanes: int) -> None:
        self.lanes = lanes
        self.row = max(1, _ROUND // lanes)  # M: offsets of a lane in a round
        self._seed = seed
        self._offset = key(seed, 3)
        self._starts = [start for start, _ in phases]
        self._bounds = [bounds for _, bounds in phases]
        self._limits = [np.array([bound for bound in bounds if bound < MODULUS], np.uint64) for bounds in self._bounds]
        self._known: tuple[tuple[int, int], NDArray[np.int64]] | None = None  # the last result of `_in_rounds`
        self._earlier = [np.zeros((lanes, len(self._bounds[0])), np.int64)]
        for phase, start in enumerate(self._starts[1:]):  # the offset that continues the counts of the phases before
            change = self._count(phase, start) - self._count(phase + 1, start)
            self._earlier.append(self._earlier[-1] + change)

    @property
    def round_size(self) -> int:
        """Return the number of positions in a round, over all lanes."""
        return self.row * self.lanes

    def rounds(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return [rounds, M*C]: the components that the positions of whole rounds draw."""
        points = self._points(numbers)
        if len(self._starts) == 1:
            return np.searchsorted(self._limits[0], points, side="right")
        positions = numbers[:, None] * self.round_size + np.arange(self.round_size)
        phases = np.searchsorted(self._starts, positions, side="right") - 1
        drawn = np.empty(points.shape, np.int64)
        for phase in np.unique(phases).tolist():
            here = phases == phase
            drawn[here] = np.searchsorted(self._limits[phase], points[here], side="right")
        return drawn

    def before_round(self, number: int) -> NDArray[np.int64]:
        """Return [C, components]: how often each lane drew each component before round `number`."""
        phase = bisect_right(self._starts, number * self.round_size) - 1
        return self._earlier[phase] + self._in_rounds(phase, number)

    def before(self, position: int) -> NDArray[np.int64]:
        """Return [C, components]: how often each lane drew each component before `position`."""
        phase = bisect_right(self._starts, position) - 1
        return self._earlier[phase] + self._count(phase, position)

    def _points(self, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return [rounds, M*C]: the point of each position of the rounds on a circle of 2^64 points."""
        points = np.empty((len(numbers), self.row, self.lanes), np.uint64)
        for lane in range(self.lanes):
            places = permutations(keys(key(self._seed, 5, lane), numbers), self.row)
            steps = ((numbers[:, None] * self.row + places) * self.lanes + lane).astype(np.uint64)
            points[:, :, lane] = steps * np.uint64(G) + np.uint64(self._offset)
        return points.reshape(len(numbers), self.round_size)

    def _in_rounds(self, phase: int, rounds: int) -> NDArray[np.int64]:
        """Return [C, components]: how often each lane draws each component in the first `rounds`, if all were of
        `phase`."""
        known = self._known
        if known is not None and known[0] == (phase, rounds):
            return known[1]
        n, step = rounds * self.row, self.lanes * G % MODULUS
        counts = np.zeros((self.lanes, len(self._bounds[phase])), np.int64)
        for lane in range(self.lanes):
            begin = (lane * G + self._offset) % MODULUS
            wraps = floor_sum(n, MODULUS, step, begin)
            below = [wraps - floor_sum(n, MODULUS, step, begin - bound) for bound in self._bounds[phase]]
            counts[lane] = np.diff(np.array(below), prepend=0)
        counts.flags.writeable = False
        self._known = (phase, rounds), counts
        return counts

    def _count(self, phase: int, position: int) -> NDArray[np.int64]:
        """Return [C, components]: how often each lane draws each component before `position`, if all were of
        `phase`."""
        number, within = divmod(position, self.round_size)
        counts = self._in_rounds(phase, number).copy()
        drawn = np.searchsorted(self._limits[phase], self._points(np.array([number]))[0, :within], side="right")
        np.add.at(counts, (np.arange(within) % self.lanes, drawn), 1)
        return counts


def bounds_of(weights: Sequence[Weight], sizes: Sequence[int]) -> Bounds:
    """Return where each component ends on a circle of 2^64 points. Raise UsageError for invalid weights."""
    exact = [exact_weight(weight, f"weights[{i}]") for i, weight in enumerate(weights)]
    if len(exact) != len(sizes):
        raise UsageError("a mixture needs a weight for each component", found=len(exact), expected=len(sizes))
    total = sum(exact)
    if total == 0:
        raise UsageError("a mixture needs a component with a weight above 0")
    for i, (weight, size) in enumerate(zip(exact, sizes, strict=True)):
        if weight and not size:
            raise UsageError(f"components[{i}] has no samples but a weight", found=weights[i], expected="weight 0")
    return tuple(int(part * MODULUS / total) for part in accumulate(exact))


def exact_weight(weight: object, name: str) -> Fraction:
    """Return a weight (int, Fraction, or a float's exact value) as an exact rational."""
    if isinstance(weight, bool) or not isinstance(weight, Real):
        raise UsageError(f"{name} must be a number", found=shown(weight))
    if weight < 0 or not (isinstance(weight, Rational) or math.isfinite(weight)):
        raise UsageError(f"{name} must be finite and not negative", found=shown(weight))
    if isinstance(weight, Rational):
        exact = Fraction(int(weight.numerator), int(weight.denominator))
        if max(exact.numerator.bit_length(), exact.denominator.bit_length()) > _MOST_BITS:
            raise UsageError(f"{name} has too many digits", found=shown(weight), expected=f"at most {_MOST_BITS} bits")
        return exact
    return Fraction(float(weight))
