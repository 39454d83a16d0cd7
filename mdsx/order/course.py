"""A run's whole course: what stands at a position that counts on from epoch to epoch, for a dataset or a mixture.

An epoch of a run is `epoch_samples` positions. By default a dataset's is the dataset, so that run and dataset begin
their epochs together; with another number the run goes on across the dataset's epochs, and leaves nothing out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mdsx.order.batches import batch_positions
from mdsx.order.draws import Weight
from mdsx.order.limits import MAX_SAMPLES, integer
from mdsx.order.mixture import MixtureOrder
from mdsx.order.needs import NEVER, ShardUses, active_shards, needs_ahead, shards_needed
from mdsx.order.order import Order


class Course(Protocol):
    """Positions count on over all epochs; shards are numbered through over all datasets."""

    epoch_samples: int
    samples: int  # in all datasets: after about as many positions a shard is needed again
    lanes: int
    shuffle_block: int

    def locate(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The shard, and the sample in it, at each of `positions`."""
        ...

    def rank_positions(
        self, starts: NDArray[np.int64], stops: NDArray[np.int64], rank: int, world_size: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The positions that `rank` reads of each of the global batches `[starts[i], stops[i])`, in the order in which
        it reads them, joined; and how many they are of each."""
        ...

    def needs(self, start: int, batch_size: int, rank: int, world_size: int) -> Iterator[tuple[int, int]]:
        """Each shard that `rank` will read from `start` on, with the position of its first need, in that order.

        Endless where there are samples: a shard comes again in the dataset's next epoch; in a mixture, and with epochs
        of another length, where it is needed more than two shuffle blocks after the last time. Where looking for the
        next one takes long, (position, NOTHING_NEW) says how far it has looked. `batch_size` is the global batch's.
        """
        ...

    def used_until(self, shard: int, position: int) -> int:
        """About the position at which a shard that is read at `position` is used up, until it is drawn on again."""
        ...

    def next_use(self, shard: int, position: int) -> int:
        """About the first position behind `position` from which on a shard that was used up is drawn on again."""
        ...

    def next_needs(self, position: int) -> NDArray[np.int64] | None:
        """int64 [shards]: about the first position from `position` on at which each is drawn on; None: not known."""
        ...

    def active_shards(self, lanes: int) -> int:
        """About how many shards are drawn on at a time by `lanes` of the lanes."""
        ...


class DatasetCourse:
    """The epochs of one dataset: position p is position p % N of the dataset's epoch p // N."""

    def __init__(self, order: Order, epoch_samples: int | None = None) -> None:
        self.order = order
        self.samples = len(order)
        self.epoch_samples = _epoch_samples(epoch_samples, self.samples)
        self.lanes, self.shuffle_block = order.lanes, order.shuffle_block
        self._orders = {order.epoch: order}
        self._uses: dict[int, ShardUses] = {}

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_orders": {self.order.epoch: self.order}, "_uses": {}}

    def locate(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if not len(positions):
            return self.order.locate(positions)
        first, last = int(positions.min()) // self.samples, int(positions.max()) // self.samples
        if first == last:
            return self._at(first).locate(positions - first * self.samples)
        epochs, places = np.divmod(positions, self.samples)
        shards, samples = np.empty_like(positions), np.empty_like(positions)
        for epoch in np.unique(epochs).tolist():
            here = epochs == epoch
            shards[here], samples[here] = self._at(epoch).locate(places[here])
        return shards, samples

    def rank_positions(
        self, starts: NDArray[np.int64], stops: NDArray[np.int64], rank: int, world_size: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        epochs = starts // max(self.samples, 1) * self.samples  # lanes are those of the dataset's epoch
        places, sizes = batch_positions(
            starts - epochs, stops - epochs, lanes=self.lanes, rank=rank, world_size=world_size
        )
        return places + np.repeat(epochs, sizes), sizes

    def needs(self, start: int, batch_size: int, rank: int, world_size: int) -> Iterator[tuple[int, int]]:
        if self.epoch_samples != self.samples:
            ahead = DatasetCourse(self.order.at_epoch(self.order.epoch), self.epoch_samples)
            yield from needs_ahead(ahead, len(self.order.counts), start, batch_size, rank, world_size)
        found = self.samples > 0
        epoch, position = divmod(start, self.samples) if found else (0, 0)
        while found:
            found = position > 0
            for shard, first in shards_needed(
                self.order.at_epoch(epoch), start=position, batch_size=batch_size, rank=rank, world_size=world_size
            ):
                found = True
                yield epoch * self.samples + first, shard
            epoch, position = epoch + 1, 0

    def drawn(self, positions: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
        first, last = int(positions.min()), int(positions.max()) + 1
        epoch, end = first // self.samples, (last - 1) // self.samples
        whole = np.flatnonzero(self.order.counts) if end > epoch + 1 else None
        for lane in np.unique(positions % self.samples % self.lanes).tolist():
            if whole is not None:
                yield lane, whole
                continue
            for number in range(epoch, end + 1):
                begin, stop = max(first - number * self.samples, 0), min(last - number * self.samples, self.samples)
                begin, stop = (-((lane - edge) // self.lanes) for edge in (begin, stop))  # the lane's offsets
                if begin < stop:
                    yield lane, self._at(number).drawn(lane, begin, stop)

    def find(
        self, positions: NDArray[np.int64], sources: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        chosen = np.flatnonzero(np.isin(positions % self.samples % self.lanes, sources))
        return chosen, self.locate(positions[chosen])[0]

    def used_until(self, shard: int, position: int) -> int:
        epoch, place = divmod(position, self.samples)
        return epoch * self.samples + self._uses_at(epoch).until(shard, place)

    def next_use(self, shard: int, position: int) -> int:
        epoch, place = divmod(position, self.samples)
        following = self._uses_at(epoch).after(shard, place)
        if following is not None:
            return epoch * self.samples + following
        following = self._uses_at(epoch + 1).after(shard, -1)
        return (epoch + 1) * self.samples + (following or 0)

    def next_needs(self, position: int) -> NDArray[np.int64]:
        if not self.samples:
            return np.full(len(self.order.counts), NEVER)
        epoch, place = divmod(position, self.samples)
        needs = self._uses_at(epoch).needs(place)
        over = needs == NEVER
        needs[over] = self._uses_at(epoch + 1).needs(0)[over]
        needs[over & (needs < NEVER)] += self.samples
        return needs + epoch * self.samples

    def active_shards(self, lanes: int) -> int:
        return active_shards(self.order, self.samples // 2, range(min(lanes, self.lanes))) if self.samples else 0

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
            self._orders = {**dict(list(self._orders.items())[-1:]), epoch: order}  # a batch may lie in two epochs
        return order


class MixtureCourse:
    """A weighted mixture, whose components' shards are numbered one component after the other."""

    def __init__(self, order: MixtureOrder, shards: NDArray[np.int64], epoch_samples: int | None = None) -> None:
        """`shards`: int64 [components + 1], the number of each component's first shard, and of all shards."""
        self.order = order
        self.samples = order.epoch_samples
        self.epoch_samples = _epoch_samples(epoch_samples, self.samples)
        self.lanes, self.shuffle_block = order.lanes, order.shuffle_block
        self._shards = shards

    def with_phases(self, phases: Sequence[tuple[int, Sequence[Weight]]]) -> MixtureCourse:
        """The same mixture with other phases."""
        return MixtureCourse(self.order.with_phases(phases), self._shards, self.epoch_samples)

    def locate(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        components, shards, samples = self.order.locate(positions)
        return self._shards[components] + shards, samples

    def rank_positions(
        self, starts: NDArray[np.int64], stops: NDArray[np.int64], rank: int, world_size: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return batch_positions(starts, stops, lanes=self.lanes, rank=rank, world_size=world_size)

    def needs(self, start: int, batch_size: int, rank: int, world_size: int) -> Iterator[tuple[int, int]]:
        ahead = MixtureCourse(self.order.copy(), self._shards, self.epoch_samples)
        yield from needs_ahead(ahead, int(self._shards[-1]), start, batch_size, rank, world_size)

    def drawn(self, positions: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
        lanes = np.unique(positions % self.lanes)
        for component, lane, shards in self.order.drawn(int(positions.min()), int(positions.max()) + 1, lanes):
            yield component * self.lanes + lane, shards + self._shards[component]

    def find(
        self, positions: NDArray[np.int64], sources: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        wanted = np.zeros(len(self.order.sizes) * self.lanes, np.bool_)
        wanted[sources] = True
        chosen, components, shards = self.order.find(positions, wanted.reshape(-1, self.lanes))
        return chosen, self._shards[components] + shards

    def used_until(self, shard: int, position: int) -> int:
        return position + self.order.period(self._component(shard), self.shuffle_block, position)

    def next_use(self, shard: int, position: int) -> int:
        component = self._component(shard)
        return position + self.order.period(component, self.order.sizes[component], position)

    def next_needs(self, position: int) -> None:
        return None

    def active_shards(self, lanes: int) -> int:
        return self.order.active_shards(min(lanes, self.lanes))

    def _component(self, shard: int) -> int:
        return int(np.searchsorted(self._shards, shard, side="right")) - 1


def _epoch_samples(asked: int | None, samples: int) -> int:
    return samples if asked is None else integer(asked, "epoch_samples", 1, MAX_SAMPLES)
