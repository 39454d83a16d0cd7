"""The course of a run: the sample at each tick, and the ticks of each rank.

A *position* is a place in the order of one epoch. A *tick* is a position counted over all epochs: `epoch *
epoch_samples + position`. By default, an epoch of a run has as many samples as the dataset, so that both begin
together. With another number, the run continues across the dataset's epochs, and skips no sample.

The ticks of a global batch are sorted by (lane, offset) and divided equally among the ranks. So a batch has the same
samples for any world size, and a rank stays on its own lanes if the numbers allow it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NewType, Protocol

import numpy as np
from numpy.typing import NDArray

from mdsx.order.draws import Weight
from mdsx.order.excluded import Excluded
from mdsx.order.limits import MAX_LANES, MAX_SAMPLES, integer
from mdsx.order.mixture import MixtureOrder
from mdsx.order.needs import NEVER, ShardUses, active_shards
from mdsx.order.order import Order
from mdsx.order.run_draws import check_whole_runs
from mdsx.order.sorting import by_value

MAX_WORLD_SIZE = 2**24
MAX_BATCH = 2**36  # its product with the world size fits into int64
_SPREAD_BATCHES = 200


Position = NewType("Position", int)
"""A place in the order of one epoch."""

Tick = NewType("Tick", int)
"""A place in the order of a run, counted over all epochs."""


class Course(Protocol):
    """The course of a run. Shards are numbered over all datasets."""

    epoch_samples: int
    samples: int  # in all datasets; a shard is needed again after about this many ticks
    lanes: int
    shuffle_block: int
    cut: int | None  # windows of groups are cut at ticks that are multiples of it
    run: int | None  # in a mixture in runs: the number of positions that draw one component
    excluded: Excluded | None  # samples that are not read

    def lanes_of(self, ticks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the lane of each tick."""
        ...

    def locate(self, ticks: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the shard, and the sample in it, at each tick."""
        ...

    def rank_ticks(
        self, starts: NDArray[np.int64], stops: NDArray[np.int64], rank: int, world_size: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the ticks of the global batches `[starts[i], stops[i])` that `rank` reads, concatenated, in the order
        of reading; and the number of its ticks in each batch."""
        ...

    def next_needs(self, tick: Tick, shards: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Return int64 [n]: the first tick, from `tick` on, that draws on each of `shards` (default: all, in order);
        NEVER if there is none.

        It is `tick` itself if a block being read has samples of the shard. A dataset's ticks are exact. In a mixture,
        only `tick` itself is exact; later ones are expected values, by the weights.
        """
        ...

    def prepare(self, tick: Tick) -> None:
        """Compute what `next_needs` caches, from `tick` up to the end of the next epoch."""
        ...

    def shards_of(self, start: Tick, global_batch_size: int, rank: int, world_size: int) -> NDArray[np.bool_]:
        """Return bool [shards]: the shards that `rank` reads in global batches of this size from `start` on, and from
        the next epoch's start on.

        Short batches at the end of an epoch may need other shards.
        """
        ...

    def active_shards(self, lanes: int) -> int:
        """Return about how many shards this many lanes draw on at a time."""
        ...


class DatasetCourse:
    """The epochs of one dataset: tick t is position t % N of the dataset's epoch t // N."""

    run: int | None = None
    excluded: Excluded | None = None

    def __init__(self, order: Order, epoch_samples: int | None = None) -> None:
        self.order = order
        self.samples = len(order)
        self.epoch_samples = _epoch_samples(epoch_samples, self.samples)
        self.lanes, self.shuffle_block = order.lanes, order.shuffle_block
        self.cut: int | None = self.samples
        self._orders = {order.epoch: order}
        self._uses: dict[int, ShardUses] = {}

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_orders": {self.order.epoch: self.order}, "_uses": {}}

    def lanes_of(self, ticks: NDArray[np.int64]) -> NDArray[np.int64]:
        return ticks % max(self.samples, 1) % self.lanes

    def locate(self, ticks: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if not len(ticks):
            return self.order.locate(ticks)
        first, last = int(ticks.min()) // self.samples, int(ticks.max()) // self.samples
        if first == last:
            return self._at(first).locate(ticks - first * self.samples)
        epochs, places = np.divmod(ticks, self.samples)
        shards, samples = np.empty_like(ticks), np.empty_like(ticks)
        for epoch in np.unique(epochs).tolist():
            here = epochs == epoch
            shards[here], samples[here] = self._at(epoch).locate(places[here])
        return shards, samples

    def rank_ticks(
        self, starts: NDArray[np.int64], stops: NDArray[np.int64], rank: int, world_size: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        epochs = starts // max(self.samples, 1) * self.samples  # lanes count from the start of the dataset's epoch
        places, sizes = batch_ticks(starts - epochs, stops - epochs, lanes=self.lanes, rank=rank, world_size=world_size)
        return places + np.repeat(epochs, sizes), sizes

    def next_needs(self, tick: Tick, shards: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        shards = np.arange(self._shards) if shards is None else shards
        if not self.samples:
            return np.full(len(shards), NEVER)
        epoch, place = divmod(tick, self.samples)
        away = self._uses_at(epoch).away(place, shards)
        over = np.flatnonzero(away == NEVER)
        if len(over):
            away[over] = self._uses_at(epoch + 1).away(place - self.samples, shards[over])
        return np.minimum(away + tick, NEVER)

    def prepare(self, tick: Tick) -> None:
        for epoch in range(2) if self.samples else ():
            self._uses_at(tick // self.samples + epoch)

    def shards_of(self, start: Tick, global_batch_size: int, rank: int, world_size: int) -> NDArray[np.bool_]:
        if not self.samples:
            return np.zeros(self._shards, np.bool_)
        starts = (start % self.samples, 0) if self.epoch_samples == self.samples else None
        return self._uses_at(start // self.samples).in_lanes(
            lanes_read(starts, global_batch_size, lanes=self.lanes, rank=rank, world_size=world_size)
        )

    def active_shards(self, lanes: int) -> int:
        return active_shards(self.order, self.samples // 2, range(min(lanes, self.lanes)))

    @property
    def _shards(self) -> int:
        return len(self.order.counts)

    def _uses_at(self, epoch: int) -> ShardUses:
        uses = self._uses.get(epoch)
        if uses is None:
            uses = ShardUses(self.order.at_epoch(epoch))
            self._uses = {**{number: kept for number, kept in self._uses.items() if number >= epoch - 1}, epoch: uses}
        return uses

    def _at(self, epoch: int) -> Order:
        order = self._orders.get(epoch)
        if order is None:
            order = self.order.at_epoch(epoch)
            self._orders = {**dict(list(self._orders.items())[-1:]), epoch: order}  # a batch may span two epochs
        return order


class MixtureCourse:
    """A weighted mixture. Shards are numbered component by component."""

    def __init__(
        self,
        order: MixtureOrder,
        shards: NDArray[np.int64],
        epoch_samples: int | None = None,
        excluded: Excluded | None = None,
    ) -> None:
        """`shards` (int64 [components + 1]): the number of each component's first shard, and the number of all
        shards."""
        self.excluded = excluded
        self.order = order
        self.samples, self.run = order.samples, order.run
        self.epoch_samples = _epoch_samples(epoch_samples, self.samples - self.samples % (self.run or 1))
        if self.run is not None:
            check_whole_runs(self.epoch_samples, self.run)
        self.lanes, self.shuffle_block = order.lanes, order.shuffle_block
        self.cut: int | None = None
        self._shards = shards

    def lanes_of(self, ticks: NDArray[np.int64]) -> NDArray[np.int64]:
        return ticks % self.lanes

    def with_phases(self, phases: Sequence[tuple[int, Sequence[Weight]]]) -> MixtureCourse:
        """Return the course with other phases."""
        return MixtureCourse(self.order.with_phases(phases), self._shards, self.epoch_samples, self.excluded)

    def locate(self, ticks: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        components, shards, samples = self.order.locate(ticks)
        return self._shards[components] + shards, samples

    def rank_ticks(
        self, starts: NDArray[np.int64], stops: NDArray[np.int64], rank: int, world_size: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return batch_ticks(starts, stops, lanes=self.lanes, rank=rank, world_size=world_size)

    def next_needs(self, tick: Tick, shards: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        shards = np.arange(self._shards[-1]) if shards is None else shards
        components = np.searchsorted(self._shards, shards, side="right") - 1
        needs = np.empty_like(shards)
        for component, chosen in by_value(components):
            needs[chosen] = self.order.next_needs(component, tick, shards[chosen] - self._shards[component])
        return needs

    def prepare(self, tick: Tick) -> None:
        self.next_needs(tick)

    def shards_of(self, start: Tick, global_batch_size: int, rank: int, world_size: int) -> NDArray[np.bool_]:
        following = (start // self.epoch_samples + 1) * self.epoch_samples
        lanes = lanes_read((start, following), global_batch_size, lanes=self.lanes, rank=rank, world_size=world_size)
        return self.order.in_lanes(lanes)

    def active_shards(self, lanes: int) -> int:
        return self.order.active_shards(min(lanes, self.lanes))


def _epoch_samples(asked: int | None, samples: int) -> int:
    return samples if asked is None else integer(asked, "epoch_samples", 1, MAX_SAMPLES)


# --- ranks


def batch_ticks(
    starts: NDArray[np.int64], stops: NDArray[np.int64], *, lanes: int, rank: int, world_size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the ticks of the global batches `[starts[i], stops[i])` that `rank` reads, concatenated, in the order of
    reading; and the number of its ticks in each batch."""
    edges, sizes = _lane_edges(starts, stops, lanes), stops - starts
    begin, end = _share(sizes, rank, world_size)
    low = np.maximum(edges[:, :-1], begin)
    counts = np.maximum(np.minimum(edges[:, 1:], end) - low, 0)  # [batches, C]: the rank's ticks of each lane
    starts = starts[:, None]
    firsts = starts + (np.arange(lanes) - starts) % lanes + (low - edges[:, :-1]) * lanes
    stretches, total = counts.ravel(), int(counts.sum())
    before = np.cumsum(stretches) - stretches
    ticks = np.repeat(firsts.ravel() - before * lanes, stretches) + np.arange(total) * lanes
    return ticks, counts.sum(axis=1)


def rank_lanes(
    starts: NDArray[np.int64], stops: NDArray[np.int64], *, lanes: int, rank: int, world_size: int
) -> NDArray[np.int64]:
    """Return the lanes that `rank` reads in the global batches `[starts[i], stops[i])`."""
    return _lanes_between(_lane_edges(starts, stops, lanes), stops - starts, rank, world_size)


def lanes_read(
    starts: tuple[int, ...] | None, global_batch_size: int, *, lanes: int, rank: int, world_size: int
) -> NDArray[np.bool_]:
    """Return bool [C]: the lanes that `rank` reads in successive global batches of this size that begin at any of
    `starts` (None: at any tick). May overestimate."""
    step = math.gcd(global_batch_size, lanes)
    residues = {0} if step == lanes else set(range(step)) if starts is None else {start % step for start in starts}
    if len(residues) * (lanes // step) > _SPREAD_BATCHES:
        return np.ones(lanes, np.bool_)
    begins = np.array([residue + number * step for residue in residues for number in range(lanes // step)])
    found = np.zeros(lanes, np.bool_)
    found[rank_lanes(begins, begins + global_batch_size, lanes=lanes, rank=rank, world_size=world_size)] = True
    return found


def lane_spread(global_batch_size: int, *, lanes: int, world_size: int) -> float:
    """Return the sum over all ranks of the lanes that each touches, divided by `lanes`: 1.0 if no two ranks share a
    lane.

    A shard is downloaded about this many times if no two ranks share a cache. The result is at least world_size / lanes
    if that is above 1. At most 200 batches are counted.
    """
    integer(global_batch_size, "global_batch_size", 1, MAX_BATCH)
    lanes = integer(lanes, "lanes", 1, MAX_LANES)
    world_size = integer(world_size, "world_size", 1, MAX_WORLD_SIZE)
    batches = min(_SPREAD_BATCHES, lanes // math.gcd(lanes, global_batch_size))  # after these, the lanes repeat
    starts = np.arange(batches) * global_batch_size
    edges, sizes = _lane_edges(starts, starts + global_batch_size, lanes), np.full(batches, global_batch_size)
    return sum(len(_lanes_between(edges, sizes, rank, world_size)) for rank in range(world_size)) / lanes


def _below(ticks: NDArray[np.int64], lane: NDArray[np.int64], lanes: int) -> NDArray[np.int64]:
    """Count the ticks before each of `ticks` that are in lanes before `lane`."""
    return ticks // lanes * lane + np.minimum(ticks % lanes, lane)


def _lane_edges(starts: NDArray[np.int64], stops: NDArray[np.int64], lanes: int) -> NDArray[np.int64]:
    """Return `edges` [batches, C + 1]: in a sorted batch, lane c has places `edges[c]` up to `edges[c + 1]`."""
    lane = np.arange(lanes + 1)
    return _below(stops[:, None], lane, lanes) - _below(starts[:, None], lane, lanes)


def _lanes_between(edges: NDArray[np.int64], sizes: NDArray[np.int64], rank: int, world_size: int) -> NDArray[np.int64]:
    begin, end = _share(sizes, rank, world_size)
    return np.flatnonzero((np.minimum(edges[:, 1:], end) > np.maximum(edges[:, :-1], begin)).any(axis=0))


def _share(sizes: NDArray[np.int64], rank: int, world_size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first and the last place (exclusive) of `rank` in each sorted batch, [batches, 1] each."""
    return (rank * sizes // world_size)[:, None], ((rank + 1) * sizes // world_size)[:, None]
