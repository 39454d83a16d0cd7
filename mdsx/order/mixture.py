"""The order of a mixture of weighted datasets: the component and the sample at each position.

`draws` determines the component that a position draws. Each component is read in its own order, epoch after epoch.
Positions count over all epochs: format-spec.md calls them ticks, weights proportions, and runs stretches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mdsx.errors import UsageError
from mdsx.order.draws import Draws, Phases, Weight, bounds_of
from mdsx.order.hashing import key
from mdsx.order.limits import MAX_LANES, MAX_PHASES, MAX_SAMPLES, MAX_UINT64, integer, integers
from mdsx.order.needs import NEVER, ShardUses, active_shards
from mdsx.order.order import Order, default_lanes, default_shuffle_block
from mdsx.order.run_draws import RunDraws
from mdsx.order.sorting import by_value

_LANE_WISE = 1024  # components with more samples per lane are read lane by lane
_EPOCHS_KEPT = 4  # orders of a component in memory: its lanes are in the same epoch or in successive ones


class MixtureOrder:
    """The order of a mixture of datasets, whose shards have `components[i]` samples, by `weights`.

    A weight is an int, a Fraction or a float; its exact value counts. All components have the same `shuffle_block`
    (None: the default for all their shards together). Positions count over all epochs. `phases`: later weights, each
    with its first position; the components continue where they are. `run`: the number of successive positions that draw
    the same component. A removed component is given as its number of samples: phases that drew it still count, but its
    samples cannot be located. A MixtureOrder never changes, can be pickled, and may be used by several threads.
    """

    def __init__(
        self,
        components: Sequence[ArrayLike | int],
        weights: Iterable[Weight],
        seed: int = 0,
        lanes: int | None = None,
        shuffle_block: int | None = None,
        phases: Sequence[tuple[int, Sequence[Weight]]] = (),
        run: int | None = None,
    ) -> None:
        counts = [
            component if isinstance(component, int) else integers(component, f"components[{i}]", MAX_SAMPLES)
            for i, component in enumerate(components)
        ]
        there = [component for component in counts if not isinstance(component, int)]
        if shuffle_block is None:
            samples = sum(sum(component.tolist()) for component in there)
            shuffle_block = default_shuffle_block(samples, sum(map(len, there)))
        self.seed = integer(seed, "seed", 0, MAX_UINT64)
        self.run = None if run is None else integer(run, "run", 1, MAX_SAMPLES)
        if lanes is None:
            most = max(map(default_lanes, there), default=1)
            lanes = next(number for number in range(most, 0, -1) if self.run is None or self.run % number == 0)
        self.lanes = integer(lanes, "lanes", 1, MAX_LANES)
        if self.run is not None:
            _check_run(self.run, self.lanes)
        self.shuffle_block = integer(shuffle_block, "shuffle_block", 1, MAX_SAMPLES)
        self._streams: list[_Stream | _Gone] = [
            _Gone(component)
            if isinstance(component, int)
            else _Stream(component, key(self.seed, 4, i), self.lanes, self.shuffle_block)
            for i, component in enumerate(counts)
        ]
        self.sizes = tuple(stream.size for stream in self._streams)
        self._lane_wise: NDArray[np.bool_] = np.array([stream.lane_wise for stream in self._streams], np.bool_)
        self._use([(0, weights), *phases])

    @property
    def last_change(self) -> int:
        """Return the first position at which the last phase applies."""
        start = self.phases[-1][0]
        return start if self.run is None else -(-start // self.run) * self.run

    @property
    def counts(self) -> tuple[NDArray[np.int64], ...]:
        """Return the number of samples in each shard of each component."""
        return tuple(stream.counts for stream in self._streams)

    @property
    def samples(self) -> int:
        """Return the sum of the components' sizes."""
        return sum(self.sizes)

    def with_phases(self, phases: Sequence[tuple[int, Sequence[Weight]]]) -> MixtureOrder:
        """Return the mixture with other phases; the first must start at 0. It shares the components' orders."""
        other = object.__new__(MixtureOrder)
        other.__dict__.update(self.__dict__)
        other._use(phases)
        return other

    def _use(self, phases: Iterable[tuple[int, Iterable[Weight]]]) -> None:
        self.phases = _checked_phases([(start, tuple(weights)) for start, weights in phases])
        bounds = [(start, bounds_of(weights, self.sizes)) for start, weights in self.phases]
        seed, lanes, known = self.seed, self.lanes, getattr(self, "_draws", None)
        self._draws: Draws | RunDraws
        if self.run is None:
            self._draws = Draws(bounds, seed=seed, lanes=lanes, before=known if isinstance(known, Draws) else None)
        else:
            before = known if isinstance(known, RunDraws) else None
            self._draws = RunDraws(bounds, seed=seed, lanes=lanes, run=self.run, before=before)

    def locate(self, positions: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the component, the shard in it, and the sample in that shard, at each position.

        A call with many successive positions is fast.
        """
        positions = integers(positions, "positions", MAX_SAMPLES)
        components, counts = self._draws.at(positions, self._lane_wise)
        shards, samples = np.empty_like(components), np.empty_like(components)
        lanes = positions % self.lanes
        for component, chosen in by_value(components):
            shards[chosen], samples[chosen] = self._streams[component].locate(counts[chosen], lanes[chosen])
        return components, shards, samples

    def drawn(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return how often positions `start` up to `stop` draw each component: int64 [components]."""
        found: NDArray[np.int64] = (self._draws.before(stop) - self._draws.before(start)).sum(axis=0)
        return found

    def next_needs(self, component: int, position: int, shards: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first position, from `position` on, that draws on each of these shards of a component: `position`
        itself, or an expected value by the weights and phases; NEVER if no phase from then on draws the component."""
        away = self._streams[component].away(self._draws.before(position)[:, component], shards)
        return self._draws.expected(component, position, away)

    def in_lanes(self, lanes: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return bool [shards of all components]: whether any of `lanes` (bool [C]) draws on it."""
        return np.concatenate([stream.in_lanes(lanes) for stream in self._streams])

    def active_shards(self, lanes: int) -> int:
        """Return about how many shards the blocks of the first `lanes` lanes draw on at a time."""
        drawn = {component for _, weights in self.phases for component, weight in enumerate(weights) if weight}
        return sum(self._streams[component].active_shards(lanes) for component in drawn)


class _Gone:
    """A removed component."""

    counts = np.zeros(0, np.int64)
    lane_wise = False

    def __init__(self, size: int) -> None:
        self.size = size

    def locate(
        self, counts: NDArray[np.int64], lanes: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        raise UsageError("this position draws a removed component of the mixture")

    def away(self, counts: NDArray[np.int64], shards: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.full(len(shards), NEVER)

    def in_lanes(self, lanes: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return np.zeros(0, np.bool_)

    def active_shards(self, lanes: int) -> int:
        return 0


class _Stream:
    """The samples of one component, epoch after epoch."""

    def __init__(self, counts: ArrayLike, seed: int, lanes: int, shuffle_block: int) -> None:
        first = Order(counts, seed=seed, lanes=lanes, shuffle_block=shuffle_block)
        self.counts, self.size = first.counts, len(first)
        self.lane_wise = self.size >= _LANE_WISE * first.lanes
        self._first = first if self.lane_wise else Order(counts, seed=seed, lanes=1, shuffle_block=shuffle_block)
        self._epochs: list[Order] = [self._first] * _EPOCHS_KEPT
        self._uses: dict[int, ShardUses] = {}

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_uses": {}}

    def locate(
        self, counts: NDArray[np.int64], lanes: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the shards and samples drawn after `counts` others (in the lane, if read lane by lane)."""
        if self.lane_wise:
            many = self._first.lanes
            epochs, offsets = np.divmod(counts, self.size // many + (lanes < self.size % many))
            places = offsets * many + lanes
        else:
            epochs, places = np.divmod(counts, self.size)
        shards, samples = np.empty_like(counts), np.empty_like(counts)
        for epoch, chosen in by_value(epochs):
            shards[chosen], samples[chosen] = self._at_epoch(epoch).locate(places[chosen])
        return shards, samples

    def away(self, counts: NDArray[np.int64], shards: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the distance of each of `shards` in positions of the component, after each lane of the mixture has
        drawn `counts` ([C]) samples of it; NEVER beyond two epochs."""
        away = np.full(len(shards), NEVER)
        if not self.size:
            return away
        lanes = self._first.lanes
        counts = counts if self.lane_wise else counts.sum(keepdims=True)
        lengths = self.size // lanes + (np.arange(lanes) < self.size % lanes)
        epochs = counts // lengths
        for epoch in range(int(epochs.min()), int(epochs.max()) + 2):
            at = (counts - epoch * lengths) * lanes + np.arange(lanes)
            away = np.minimum(away, self._uses_at(epoch).away(at, shards))
        return away

    def in_lanes(self, lanes: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return bool [shards]: whether any of `lanes` (bool [C]) draws on it."""
        return self._uses_at(0).in_lanes(lanes if self.lane_wise else np.ones(1, np.bool_))

    def _uses_at(self, epoch: int) -> ShardUses:
        uses = self._uses.get(epoch)
        if uses is None:
            uses = ShardUses(self._first.at_epoch(epoch))
            self._uses = {**dict(list(self._uses.items())[1 - _EPOCHS_KEPT :]), epoch: uses}
        return uses

    def _at_epoch(self, epoch: int) -> Order:
        slot = epoch % _EPOCHS_KEPT
        order = self._epochs[slot]
        if order.epoch != epoch:
            order = self._epochs[slot] = self._first.at_epoch(epoch)
        return order

    def active_shards(self, lanes: int) -> int:
        """Return about how many shards the blocks of the first `lanes` lanes draw on at a time."""
        return active_shards(self._first, self.size // 2, range(lanes if self.lane_wise else 1))


def add_phase(phases: Phases, position: int, weights: tuple[Weight, ...]) -> Phases:
    """Add a phase that starts at `position` to `phases`. It lasts up to the next one of them."""
    before = [phase for phase in phases if phase[0] < position]
    return (*before, (position, weights), *(phase for phase in phases if phase[0] > position))


def _checked_phases(phases: list[tuple[int, tuple[Weight, ...]]]) -> Phases:
    starts = [integer(start, "the start of a phase", 0, MAX_SAMPLES) for start, _ in phases]
    if starts[0] != 0 or any(later <= start for start, later in pairwise(starts)):
        raise UsageError("the first phase must start at 0, and each later one after the one before", found=starts)
    if len(starts) > MAX_PHASES:
        raise UsageError("too many phases", found=len(starts), expected=f"at most {MAX_PHASES} in a run")
    return tuple(phases)


def _check_run(run: int, lanes: int) -> None:
    if run % lanes:
        raise UsageError(
            "run must be a multiple of the lanes",
            found=f"run={run}, {lanes} lanes",
            hint=f"give the mixture run={-(-run // lanes) * lanes}, or the dataset another shuffle=mdsx.Shuffle(lanes)",
        )
