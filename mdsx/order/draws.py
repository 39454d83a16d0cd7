"""Which component of a mixture each position draws, and how often each was drawn before.

The draws of a lane are a low-discrepancy sequence, so every batch is close to the weights. The number of draws of a
component before a position is a floor sum, so any position can be computed by itself. The weights change at the start
of a phase: the points stay the same, and only the bounds between the components move.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from numbers import Rational, Real

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import UsageError, shown
from mdsx.order.hashing import G, key, keys, permutations
from mdsx.order.needs import NEVER

MODULUS = 2**64
_MOST_BITS = 2048  # of a weight's numerator and denominator: more than a float has
_ROUND = 256  # positions within which draws are permuted, over all lanes

Weight = float | Fraction
Phases = tuple[tuple[int, tuple[Weight, ...]], ...]
"""The weights of a mixture, each with the first position where they hold, counted over all epochs."""

Bounds = tuple[int, ...]
Drawn = tuple[NDArray[np.int64], NDArray[np.int64]]
"""The component at each position, and how often it was drawn before: by the position's lane if the component is read
lane by lane, otherwise by all lanes."""


def floor_sum(n: int, m: int, a: int, b: int) -> int:
    """Return the exact sum of (a*i + b) // m for i in 0..n-1 in O(log m) steps; b may be negative."""
    total = 0
    while n > 0:
        total += a // m * (n * (n - 1) // 2) + b // m * n
        a, b = a % m, b % m
        end = a * n + b
        n, b, a, m = end // m, end % m, m, a
    return total


class PhaseBounds:
    """Which component a point draws. Each phase is (where it starts, bounds); the first starts at 0, and all others
    after the one before."""

    def __init__(self, phases: Sequence[tuple[int, Bounds]]) -> None:
        self.starts = [start for start, _ in phases]
        self.bounds = [bounds for _, bounds in phases]
        self._limits = [np.array([bound for bound in bounds if bound < MODULUS], np.uint64) for bounds in self.bounds]

    def phase(self, place: int) -> int:
        """Return the number of the phase at `place`."""
        return bisect_right(self.starts, place) - 1

    def drawn(self, points: NDArray[np.uint64], phase: int) -> NDArray[np.int64]:
        """Return the components that `points` draw in a phase."""
        return np.searchsorted(self._limits[phase], points, side="right")

    def drawn_at(self, places: NDArray[np.int64], points: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the components that `points` at `places` draw; the two broadcast to the shape of `points`."""
        if len(self.starts) == 1:
            return self.drawn(points, 0)
        phases = np.searchsorted(self.starts, places, side="right") - 1
        drawn = np.empty(points.shape, np.int64)
        for phase in np.unique(phases).tolist():
            here = phases == phase
            drawn[here] = self.drawn(points[here], phase)
        return drawn

    def corrections(
        self, count: Callable[[int, int], NDArray[np.int64]], shape: tuple[int, ...]
    ) -> list[NDArray[np.int64]]:
        """Return, for each phase, what to add to its counts so that they continue those of the phases before it.

        `count(phase, place)` counts the draws before `place` as if all were of `phase`: an array of `shape`.
        """
        found = [np.zeros(shape, np.int64)]
        for phase, start in enumerate(self.starts[1:]):
            found.append(found[-1] + count(phase, start) - count(phase + 1, start))
        return found

    def next_share(self, component: int, place: int) -> tuple[int, float, Bounds] | None:
        """Return the first phase, from that at `place` on, that draws a component: where it starts, or `place`; the
        component's share; and the bounds."""
        first = self.phase(place)
        for start, bounds in zip(self.starts[first:], self.bounds[first:], strict=True):
            share = bounds[component] - (bounds[component - 1] if component else 0)
            if share:
                return max(start, place), share / MODULUS, bounds
        return None


class Draws:
    """The draws of a mixture. Each of its `phases` is (first position, bounds)."""

    def __init__(self, phases: Sequence[tuple[int, Bounds]], *, seed: int, lanes: int) -> None:
        self.lanes = lanes
        self.row = max(1, _ROUND // lanes)  # M: offsets of a lane in a round
        self._seed = seed
        self._offset = key(seed, 3)
        self._phases = PhaseBounds(phases)
        self._known: tuple[tuple[int, int], NDArray[np.int64]] | None = None  # the last result of `_in_rounds`
        self._earlier = self._phases.corrections(self._count, (lanes, len(phases[0][1])))

    @property
    def round_size(self) -> int:
        """Return the number of positions in a round, over all lanes."""
        return self.row * self.lanes

    def at(self, positions: NDArray[np.int64], lane_wise: NDArray[np.bool_]) -> Drawn:
        """Return what `positions` draw. `lane_wise` (bool [components]): which are read lane by lane."""
        size = self.round_size
        rounds, places = np.divmod(positions, size)
        unique, at = np.unique(rounds, return_inverse=True)
        places += at * size
        drawn, earlier = np.zeros((2, len(unique), size), np.int64)
        for first, last in successive(unique):
            drawn[first:last], earlier[first:last] = self._rounds(unique[first:last], lane_wise)
        return drawn.ravel()[places], earlier.ravel()[places]

    def before(self, position: int) -> NDArray[np.int64]:
        """Return [C, components]: how often each lane drew each component before `position`."""
        phase = self._phases.phase(position)
        return self._earlier[phase] + self._count(phase, position)

    def expected(self, component: int, position: int, away: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where, from `position` on, a component is expected to be drawn after `away` more draws of it.

        Where `away` is 0, that is `position`, or the start of the phase that draws it next. It is NEVER if none does.
        """
        found = self._phases.next_share(component, position)
        if found is None:
            return np.where(away > 0, NEVER, position)
        begin, share, _ = found
        ahead = np.minimum(np.ceil(np.maximum(away, 1) / share), float(NEVER)).astype(np.int64)
        return np.where(away > 0, np.minimum(begin + ahead, NEVER), begin)

    def _rounds(self, numbers: NDArray[np.int64], lane_wise: NDArray[np.bool_]) -> Drawn:
        """Return what the positions of successive rounds draw, [rounds, M*C] each."""
        rounds = len(numbers)
        positions = numbers[:, None] * self.round_size + np.arange(self.round_size)
        drawn = self._phases.drawn_at(positions, self._points(numbers)).ravel()
        lanes = np.tile(np.arange(self.lanes), rounds * self.row)
        counters = drawn * self.lanes + np.where(lane_wise[drawn], lanes, 0)
        start = int(numbers[0])
        phase = self._phases.phase(start * self.round_size)
        before = self._earlier[phase] + self._in_rounds(phase, start)
        together = np.where(lane_wise, before, before.sum(axis=0))
        earlier = equal_before(counters) + together.T.ravel()[counters]
        shape = (rounds, self.round_size)
        return drawn.reshape(shape), earlier.reshape(shape)

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
        n, step, bounds = rounds * self.row, self.lanes * G % MODULUS, self._phases.bounds[phase]
        starts = [(lane * G + self._offset) % MODULUS for lane in range(self.lanes)]
        counts = np.array([drawn_in(n, step, start, bounds) for start in starts])
        counts.flags.writeable = False
        self._known = (phase, rounds), counts
        return counts

    def _count(self, phase: int, position: int) -> NDArray[np.int64]:
        """Return [C, components]: how often each lane draws each component before `position`, if all were of
        `phase`."""
        number, within = divmod(position, self.round_size)
        counts = self._in_rounds(phase, number).copy()
        drawn = self._phases.drawn(self._points(np.array([number]))[0, :within], phase)
        np.add.at(counts, (np.arange(within) % self.lanes, drawn), 1)
        return counts


def drawn_in(n: int, step: int, start: int, bounds: Bounds) -> NDArray[np.int64]:
    """Return [components]: how often n points draw each, which begin at `start` and are `step` apart on the circle."""
    wraps = floor_sum(n, MODULUS, step, start)
    below = [wraps - floor_sum(n, MODULUS, step, start - bound) for bound in bounds]
    return np.diff(np.array(below), prepend=0)


def successive(numbers: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield the first and last place (exclusive) of each stretch of successive numbers."""
    edges = [0, *(np.flatnonzero(np.diff(numbers) != 1) + 1).tolist(), len(numbers)] if len(numbers) else [0]
    return pairwise(edges)


def equal_before(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many equal ones come before each of `values`, integers of at least 0."""
    by_value, sizes = np.argsort(values, kind="stable"), np.bincount(values)
    before = np.empty_like(values)
    before[by_value] = np.arange(len(values)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return before


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
