"""The component of a mixture that each position draws, and how often each component was drawn before.

The draws of a lane are a low-discrepancy sequence, so every batch is close to the weights. The number of draws of a
component before a position is a floor sum, so any position can be computed by itself. A phase changes the weights: the
points stay the same, and only the bounds between the components move.
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
from mdsx.order.hashing import G, key, keys, mixed, permutations
from mdsx.order.multiples import MODULUS, multiples_below
from mdsx.order.needs import NEVER

_MOST_BITS = 2048  # of a weight's numerator and denominator: more than a float has
_ROUND = 256  # positions, over all lanes, within which draws are permuted
_PHASES_APART = 64  # the counts of every 64th phase are kept

Weight = float | Fraction
Phases = tuple[tuple[int, tuple[Weight, ...]], ...]
"""The phases of a mixture: (first position, counted over all epochs; weights)."""

Bounds = tuple[int, ...]
Drawn = tuple[NDArray[np.int64], NDArray[np.int64]]
"""The component at each position, and how often it was drawn before: by the position's lane if the component is read
lane by lane, otherwise by all lanes."""


class PhaseBounds:
    """The component that a point draws in each phase. Phases are (start, bounds). The first starts at 0, and each later
    one after the one before."""

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
        """Return the components that `points` at `places` draw. The two broadcast to the shape of `points`."""
        if len(self.starts) == 1:
            return self.drawn(points, 0)
        phases = np.searchsorted(self.starts, places, side="right") - 1
        drawn = np.empty(points.shape, np.int64)
        for phase in np.unique(phases).tolist():
            here = phases == phase
            drawn[here] = self.drawn(points[here], phase)
        return drawn

    def same_start(self, other: PhaseBounds) -> int:
        """Return the number of leading phases before whose start the draws are the same."""
        common = min(len(self.starts), len(other.starts))
        for number in range(common):
            if self.starts[number] != other.starts[number]:
                return number
            if self.bounds[number] != other.bounds[number]:
                return number + 1
        return common

    def next_share(self, component: int, place: int) -> tuple[int, float, Bounds] | None:
        """Return the first phase, from the one at `place` on, that draws a component: its start, but at least `place`;
        the component's share; and the bounds."""
        first = self.phase(place)
        for start, bounds in zip(self.starts[first:], self.bounds[first:], strict=True):
            share = bounds[component] - (bounds[component - 1] if component else 0)
            if share:
                return max(start, place), share / MODULUS, bounds
        return None


class StartCounts:
    """How often each component was drawn before the start of each phase. Phases are counted on first use.

    `between(phase, start, stop)` counts the draws from `start` up to `stop`, both in `phase`, as an array of `shape`.
    `before`: the counts of other phases; those of common leading phases are reused.
    """

    def __init__(
        self,
        phases: PhaseBounds,
        between: Callable[[int, int, int], NDArray[np.int64]],
        shape: tuple[int, ...],
        before: StartCounts | None = None,
    ) -> None:
        self._phases, self._between = phases, between
        if before is None:
            self._known = {0: np.zeros(shape, np.int64)}
        else:
            same = phases.same_start(before._phases)
            self._known = {phase: counts for phase, counts in before._known.items() if phase < same}

    def of(self, phase: int) -> NDArray[np.int64]:
        """Return the draws before the start of a phase. The array must not be changed."""
        starts, known = self._phases.starts, self._known  # other threads may replace the dict, but never change it
        last = max(each for each in known if each <= phase)
        counts = known[last]
        if last == phase:
            return counts
        kept = [each for each in known if each % _PHASES_APART][-1:]
        found = {each: known[each] for each in known if not each % _PHASES_APART or each in kept}
        for each in range(last, phase):
            counts = counts + self._between(each, starts[each], starts[each + 1])
            if (each + 1) % _PHASES_APART == 0:
                found[each + 1] = counts
        found[phase] = counts
        self._known = found
        return counts


class Draws:
    """The draws of a mixture. Each of its `phases` is (first position, bounds).

    `before`: draws of other phases; the counts of common leading phases are reused.
    """

    def __init__(
        self, phases: Sequence[tuple[int, Bounds]], *, seed: int, lanes: int, before: Draws | None = None
    ) -> None:
        self.lanes = lanes
        self.row = max(1, _ROUND // lanes)  # M: offsets of a lane in a round
        self._offset = key(seed, 3)
        self._phases = PhaseBounds(phases)
        self._lane_keys = keys(key(seed, 5), np.arange(lanes))
        lane_points = np.arange(lanes, dtype=np.uint64) * np.uint64(G) + np.uint64(self._offset)
        self._by_point: NDArray[np.int64] = np.argsort(-lane_points)
        self._lane_points = lane_points[self._by_point]
        shape = (lanes, len(phases[0][1]))
        self._starts: StartCounts = StartCounts(
            self._phases, self._between, shape, None if before is None else before._starts
        )
        self._known: tuple[int, NDArray[np.int64]] | None = None  # the last result of `_before_round`

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_known": None}

    @property
    def round_size(self) -> int:
        """Return the number of positions in a round, over all lanes."""
        return self.row * self.lanes

    def at(self, positions: NDArray[np.int64], lane_wise: NDArray[np.bool_]) -> Drawn:
        """Return the draws of `positions`. `lane_wise` (bool [components]): the components that are read lane by
        lane."""
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
        return self._starts.of(phase) + self._between(phase, self._phases.starts[phase], position)

    def expected(self, component: int, position: int, away: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the position, from `position` on, at which a component is expected to be drawn after `away` more draws
        of it.

        For `away` 0, this is `position`, or the start of the next phase that draws it. It is NEVER if no phase from
        `position` on does.
        """
        found = self._phases.next_share(component, position)
        if found is None:
            return np.full(len(away), NEVER)
        begin, share, _ = found
        ahead = np.minimum(np.ceil(np.maximum(away, 1) / share), float(NEVER)).astype(np.int64)
        return np.where(away > 0, np.minimum(begin + ahead, NEVER), begin)

    def _rounds(self, numbers: NDArray[np.int64], lane_wise: NDArray[np.bool_]) -> Drawn:
        """Return the draws of successive rounds, [rounds, M*C] each."""
        rounds = len(numbers)
        positions = numbers[:, None] * self.round_size + np.arange(self.round_size)
        drawn = self._phases.drawn_at(positions, self._points(numbers)).ravel()
        lanes = np.tile(np.arange(self.lanes), rounds * self.row)
        counters = drawn * self.lanes + np.where(lane_wise[drawn], lanes, 0)
        before = self._before_round(int(numbers[0]))
        together = np.where(lane_wise, before, before.sum(axis=0))
        earlier = equal_before(counters) + together.T.ravel()[counters]
        shape = (rounds, self.round_size)
        return drawn.reshape(shape), earlier.reshape(shape)

    def _points(self, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return [rounds, M*C]: the point of each position of the rounds on a circle of 2^64 points."""
        parents = numbers.astype(np.uint64)[:, None] + (self._lane_keys + np.uint64(G))
        places = np.zeros((len(numbers), self.lanes, 1), np.int64)
        if self.row > 1:
            places = permutations(mixed(parents).ravel(), self.row).reshape(len(numbers), self.lanes, self.row)
        steps = ((numbers * self.row)[:, None, None] + places) * self.lanes + np.arange(self.lanes)[:, None]
        points = steps.transpose(0, 2, 1).astype(np.uint64) * np.uint64(G) + np.uint64(self._offset)
        return points.reshape(len(numbers), self.round_size)

    def _before_round(self, number: int) -> NDArray[np.int64]:
        """Return [C, components]: how often each lane drew each component before a round."""
        known = self._known
        if known is not None and known[0] == number:
            return known[1]
        counts = self.before(number * self.round_size)
        self._known = number, counts
        return counts

    def _between(self, phase: int, start: int, stop: int) -> NDArray[np.int64]:
        """Return [C, components]: how often each lane draws each component from `start` up to `stop` of a phase."""
        size = self.round_size
        first, last = -(-start // size), stop // size
        if first > last:
            return self._counted(phase, last, start - last * size, stop - last * size)
        begins = self._lane_points + np.uint64(first * self.row * self.lanes * G % MODULUS)
        counts = np.empty((self.lanes, len(self._phases.bounds[phase])), np.int64)
        counts[self._by_point] = drawn_in(
            (last - first) * self.row, self.lanes * G % MODULUS, begins, self._phases.bounds[phase]
        )
        if start < first * size:
            counts += self._counted(phase, first - 1, start - (first - 1) * size, size)
        if last * size < stop:
            counts += self._counted(phase, last, 0, stop - last * size)
        return counts

    def _counted(self, phase: int, number: int, start: int, stop: int) -> NDArray[np.int64]:
        """Return the same for places `start` up to `stop` of a round, counted one by one."""
        drawn = self._phases.drawn(self._points(np.array([number]))[0, start:stop], phase)
        components = len(self._phases.bounds[phase])
        cells = np.arange(start, stop) % self.lanes * components + drawn
        return np.bincount(cells, minlength=self.lanes * components).reshape(self.lanes, components)


def drawn_in(n: int, step: int, begins: NDArray[np.uint64], bounds: Bounds) -> NDArray[np.int64]:
    """Return [begins, components]: how often each component is drawn by n points that begin at one of `begins` and are
    `step` apart on the circle."""
    limits = np.array([0, *(bound for bound in bounds if bound < MODULUS)], np.uint64)[:, None] - begins
    found = multiples_below(n, step, limits.ravel()).reshape(limits.shape)
    below = np.full((len(bounds), len(begins)), n)
    below[: len(limits) - 1] = found[1:] - found[0] + np.where(limits[1:] < limits[0], n, 0)
    return np.diff(below, axis=0, prepend=0).T


def successive(numbers: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield the first and last index (exclusive) of each stretch of successive numbers."""
    edges = [0, *(np.flatnonzero(np.diff(numbers) != 1) + 1).tolist(), len(numbers)] if len(numbers) else []
    return pairwise(edges)


def equal_before(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each of `values` how many equal ones precede it. The values are integers of at least 0."""
    places, sizes = np.argsort(values, kind="stable"), np.bincount(values)
    before = np.empty_like(values)
    before[places] = np.arange(len(values)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return before


def bounds_of(weights: Sequence[Weight], sizes: Sequence[int]) -> Bounds:
    """Return where each component ends on a circle of 2^64 points. Raise UsageError for invalid weights."""
    exact = [exact_weight(weight, f"weights[{i}]") for i, weight in enumerate(weights)]
    if len(exact) != len(sizes):
        raise UsageError("a mixture needs a weight for each component", found=len(exact), expected=len(sizes))
    if not any(exact):
        raise UsageError("a mixture needs a component with a weight above 0")
    for i, (weight, size) in enumerate(zip(exact, sizes, strict=True)):
        if weight and not size:
            raise UsageError(f"components[{i}] has a weight but no samples", found=weights[i], expected="weight 0")
    common = math.lcm(*(weight.denominator for weight in exact))
    parts = list(accumulate(weight.numerator * (common // weight.denominator) for weight in exact))
    return tuple(part * MODULUS // parts[-1] for part in parts)


def exact_weight(weight: object, name: str) -> Fraction:
    """Return a weight (an int, a Fraction or a float) as an exact fraction."""
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
