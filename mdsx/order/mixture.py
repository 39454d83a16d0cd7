"""The order of a mixture of weighted datasets: the component and the sample at each position.

`draws` says which component a position draws. Each component is read in an order of its own, epoch after epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mdsx.errors import UsageError
from mdsx.order.draws import Draws, Weight, bounds_of
from mdsx.order.hashing import key
from mdsx.order.limits import MAX_LANES, MAX_PHASES, MAX_SAMPLES, MAX_UINT64, integer, integers
from mdsx.order.needs import NEVER, ShardUses, active_shards
from mdsx.order.order import Order, default_shuffle_block, groups

_LANE_WISE = 1024  # samples for each lane; larger components are read lane by lane
_EPOCHS_KEPT = 4  # orders of a component in memory: its lanes are in the same epoch or in successive ones


class MixtureOrder:
    """The order of a mixture of datasets, whose shards have `components[i]` samples, by `weights`.

    A weight is an int, a Fraction or a float, and its exact value counts. All components have the same `shuffle_block`
    (None: the default for all their shards together). Positions count over all epochs. `phases` are later weights, each
    with its first position; the components continue where they are. A MixtureOrder never changes, can be pickled, and
    may be used by several threads.
    """

    def __init__(
        self,
        components: Sequence[ArrayLike],
        weights: Iterable[Weight],
        seed: int = 0,
        lanes: int = 8,
        shuffle_block: int | None = None,
        phases: Sequence[tuple[int, Sequence[Weight]]] = (),
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
        self.phases = _checked_phases([(0, tuple(weights)), *((start, tuple(later)) for start, later in phases)])
        bounds = [(start, bounds_of(weights, self.sizes)) for start, weights in self.phases]
        self.bounds = bounds[0][1]
        self._draws = Draws(bounds, seed=self.seed, lanes=self.lanes)
        self._lane_wise: NDArray[np.bool_] = np.array([stream.lane_wise for stream in self._streams], np.bool_)

    @property
    def epoch_samples(self) -> int:
        """Return the default number of positions in an epoch: the sum of the components' sizes."""
        return sum(self.sizes)

    def with_phases(self, phases: Sequence[tuple[int, Sequence[Weight]]]) -> MixtureOrder:
        """Return the mixture with other phases, the first from position 0 on. It shares the components' orders."""
        other = object.__new__(MixtureOrder)
        other.__dict__.update(self.__dict__)
        other.phases = _checked_phases([(start, tuple(weights)) for start, weights in phases])
        bounds = [(start, bounds_of(weights, self.sizes)) for start, weights in other.phases]
        other.bounds = bounds[0][1]
        other._draws = Draws(bounds, seed=self.seed, lanes=self.lanes)
        return other

    def locate(self, positions: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the component, the shard in it, and the sample in that shard, at each position.

        A call with many successive positions is fast.
        """
        positions = integers(positions, "positions", MAX_SAMPLES)
        components, counts = self._drawn(positions)
        shards, samples = np.empty_like(components), np.empty_like(components)
        lanes = positions % self.lanes
        for component, chosen in groups(components):
            shards[chosen], samples[chosen] = self._streams[component].locate(counts[chosen], lanes[chosen])
        return components, shards, samples

    def next_needs(self, component: int, position: int, shards: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first position, from `position` on, that draws on each of these shards of a component, as expected
        from the weights. It is NEVER for a weight of 0, unless `position` itself draws on the shard."""
        weights = next(weights for start, weights in reversed(self.phases) if start <= position)
        away = self._streams[component].away(self._draws.before(position)[:, component], shards)
        ratio = (
            float(sum(Fraction(weight) for weight in weights) / Fraction(weights[component]))
            if weights[component]
            else np.inf
        )
        ahead = np.minimum(np.ceil(np.maximum(away, 1) * ratio), float(NEVER)).astype(np.int64)
        return np.where(away > 0, np.minimum(position + ahead, NEVER), position)

    def in_lanes(self, lanes: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return bool [shards of all components]: whether any of `lanes` (bool [C]) draws on it."""
        return np.concatenate([stream.in_lanes(lanes) for stream in self._streams])

    def active_shards(self, lanes: int) -> int:
        """Return about how many shards the blocks of the first `lanes` lanes draw on at a time."""
        drawn = {component for _, weights in self.phases for component, weight in enumerate(weights) if weight}
        return sum(self._streams[component].active_shards(lanes) for component in drawn)

    def _drawn(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the component at each position, and how often it was drawn before (see `_successive_rounds`)."""
        size = self._draws.round_size
        rounds, places = np.divmod(positions, size)
        unique, at = np.unique(rounds, return_inverse=True)
        places += at * size
        drawn, earlier = np.zeros((2, len(unique), size), np.int64)
        edges = [0, *(np.flatnonzero(np.diff(unique) != 1) + 1).tolist(), len(unique)] if len(unique) else [0]
        for first, last in pairwise(edges):
            drawn[first:last], earlier[first:last] = self._successive_rounds(int(unique[first]), last - first)
        return drawn.ravel()[places], earlier.ravel()[places]

    def _successive_rounds(self, first: int, rounds: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return, [rounds, M*C] each, the components of rounds from `first` on, and how often each was drawn before.

        A component that is read lane by lane is counted in each lane, a smaller one over all lanes.
        """
        drawn = self._draws.rounds(np.arange(first, first + rounds)).ravel()
        lanes = np.tile(np.arange(self.lanes), rounds * self._draws.row)
        counters = drawn * self.lanes + np.where(self._lane_wise[drawn], lanes, 0)
        by_counter = np.argsort(counters, kind="stable")
        sizes = np.bincount(counters, minlength=len(self.sizes) * self.lanes)
        earlier = np.empty_like(drawn)
        earlier[by_counter] = np.arange(len(drawn)) - np.repeat(np.cumsum(sizes) - sizes, sizes)

        before = self._draws.before_round(first)
        together = np.where(self._lane_wise, before, before.sum(axis=0))
        earlier += together.T.ravel()[counters]
        shape = (rounds, self._draws.round_size)
        return drawn.reshape(shape), earlier.reshape(shape)


class _Stream:
    """The samples of one component, epoch after epoch."""

    def __init__(self, counts: ArrayLike, seed: int, lanes: int, shuffle_block: int) -> None:
        first = Order(counts, seed=seed, lanes=lanes, shuffle_block=shuffle_block)
        self.size = len(first)
        self.lane_wise = self.size >= _LANE_WISE * first.lanes
        self._first = first if self.lane_wise else Order(counts, seed=seed, lanes=1, shuffle_block=shuffle_block)
        self._epochs: list[Order] = [self._first] * _EPOCHS_KEPT
        self._uses: dict[int, ShardUses] = {}

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_uses": {}}

    def locate(
        self, counts: NDArray[np.int64], lanes: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the shards and samples drawn after `counts` others (of the lane, if read lane by lane)."""
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

    def away(self, counts: NDArray[np.int64], shards: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many of the component's positions each of `shards` is away, after each lane of the mixture drew
        `counts` ([C]) samples of it; NEVER for more than two epochs."""
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
        return active_shards(self._first, self.size // 2, range(lanes if self.lane_wise else 1)) if self.size else 0


def _checked_phases(phases: list[tuple[int, tuple[Weight, ...]]]) -> tuple[tuple[int, tuple[Weight, ...]], ...]:
    starts = [integer(start, "the start of a phase", 0, MAX_SAMPLES) for start, _ in phases]
    if starts[0] != 0 or any(later <= start for start, later in pairwise(starts)):
        raise UsageError("each phase starts after the one before it, the first at 0", found=starts)
    if len(starts) > MAX_PHASES:
        raise UsageError("too many phases", found=len(starts), expected=f"at most {MAX_PHASES} in a run")
    return tuple(phases)
