"""The draws of a mixture in runs: R successive positions draw the same component.

Runs have the points that positions have without runs, but not permuted. So floor sums determine how often a component
was drawn before any run, and where it is drawn next.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import UsageError
from mdsx.order.draws import Bounds, Drawn, PhaseBounds, StartCounts, drawn_in, equal_before, successive
from mdsx.order.hashing import G, key
from mdsx.order.multiples import MODULUS
from mdsx.order.needs import NEVER


class RunDraws:
    """The draws of a mixture in runs of `run` positions, a multiple of `lanes`. Otherwise like `Draws`.

    A phase begins with the first run that starts in it.
    """

    def __init__(
        self, phases: Sequence[tuple[int, Bounds]], *, seed: int, lanes: int, run: int, before: RunDraws | None = None
    ) -> None:
        self._lanes, self._run = lanes, run
        self._offset = key(seed, 3)
        begun = {-(-start // run): bounds for start, bounds in phases}  # a phase without a run has no effect
        self._phases = PhaseBounds(list(begun.items()))
        self._known: tuple[int, NDArray[np.int64]] | None = None  # the last result of `_before_run`
        counted = None if before is None else before._starts
        self._starts: StartCounts = StartCounts(self._phases, self._between, (len(phases[0][1]),), counted)

    def at(self, positions: NDArray[np.int64], lane_wise: NDArray[np.bool_]) -> Drawn:
        """Return the draws of `positions`. `lane_wise` (bool [components]): the components that are read lane by
        lane."""
        numbers, places = np.divmod(positions, self._run)
        unique, at = np.unique(numbers, return_inverse=True)
        drawn, before = self._drawn(unique), np.empty_like(unique)
        for first, last in successive(unique):
            stretch = drawn[first:last]
            before[first:last] = equal_before(stretch) + self._before_run(int(unique[first]))[stretch]
        components = drawn[at]
        by_lane = lane_wise[components]
        sizes = np.where(by_lane, self._run // self._lanes, self._run)
        return components, before[at] * sizes + np.where(by_lane, places // self._lanes, places)

    def before(self, position: int) -> NDArray[np.int64]:
        """Return [C, components]: how often each lane drew each component before `position`."""
        number, within = divmod(position, self._run)
        whole = self._before_run(number) * (self._run // self._lanes)
        counts = np.tile(whole, (self._lanes, 1))
        counts[:, self._drawn(np.array([number]))[0]] += (
            within + self._lanes - 1 - np.arange(self._lanes)
        ) // self._lanes
        return counts

    def expected(self, component: int, position: int, away: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the position, from `position` on, at which a component is expected to be drawn after `away` more draws
        of it.

        It is exact in this run and in the next run of the component. It is NEVER if no later phase draws it.
        """
        number, within = divmod(position, self._run)
        left = self._run - within if self._drawn(np.array([number]))[0] == component else 0
        needs = np.full(len(away), NEVER)
        now = away < left
        needs[now] = position + away[now]
        if (found := self._next_run(component, number + 1)) is not None:
            following, share = found
            later = ~now & (away < NEVER)
            more, places = np.divmod(away[later] - left, self._run)
            ahead = np.minimum(np.ceil(more / share) * self._run, float(NEVER)).astype(np.int64)
            start = min(following * self._run, NEVER)
            needs[later] = start + np.minimum(places + ahead, NEVER - start)
        return needs

    def _next_run(self, component: int, number: int) -> tuple[int, float] | None:
        """Return the first run from `number` on that draws a component, and its share there."""
        phases = self._phases
        while (found := phases.next_share(component, number)) is not None:
            begin, share, bounds = found
            low, high = bounds[component - 1] if component else 0, bounds[component]
            point = (begin * G + self._offset) % MODULUS
            steps = first_within(G, MODULUS, (low - point) % MODULUS, (high - 1 - point) % MODULUS)
            phase = phases.phase(begin) + 1
            if phase == len(phases.starts) or begin + steps < phases.starts[phase]:
                return begin + steps, share
            number = phases.starts[phase]
        return None

    def _drawn(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the component that each run draws."""
        return self._phases.drawn_at(numbers, numbers.astype(np.uint64) * np.uint64(G) + np.uint64(self._offset))

    def _before_run(self, number: int) -> NDArray[np.int64]:
        """Return [components]: how many runs before `number` draw each component."""
        known = self._known
        if known is not None and known[0] == number:
            return known[1]
        phase = self._phases.phase(number)
        counts = self._starts.of(phase) + self._between(phase, self._phases.starts[phase], number)
        self._known = number, counts
        return counts

    def _between(self, phase: int, start: int, stop: int) -> NDArray[np.int64]:
        """Return [components]: how many of the runs from `start` up to `stop`, all of one phase, draw each
        component."""
        begin = np.array([(start * G + self._offset) % MODULUS], np.uint64)
        counts: NDArray[np.int64] = drawn_in(stop - start, G, begin, self._phases.bounds[phase])[0]
        return counts


def first_within(step: int, modulus: int, low: int, high: int) -> int:
    """Return the least k >= 0 with `k * step % modulus` from `low` to `high`; if low > high, with it at least `low` or
    at most `high`.

    There is one, as `step` and `modulus` must have no common divisor. It takes O(log modulus) steps, like Euclid's
    algorithm.
    """
    if low > high or low == 0:  # the range contains 0
        return 0
    steps = -(-low // step)
    if steps * step <= high:
        return steps
    # No multiple of `step` is in the range. First find how often to go round: a smaller problem of the same kind.
    rounds = first_within(modulus % step, step, -high % step, -low % step)
    return -(-(low + modulus * rounds) // step)


def check_whole_runs(epoch_samples: int, run: int) -> None:
    """Raise UsageError unless an epoch of `epoch_samples` consists of whole runs, at least one."""
    if epoch_samples % run or not epoch_samples:
        raise UsageError(
            "an epoch of a mixture in runs must have whole runs",
            found=f"{epoch_samples} samples",
            expected=f"a multiple of run={run}",
            hint=f"give epoch_samples={max(-(-epoch_samples // run), 1) * run}, or another run",
        )
