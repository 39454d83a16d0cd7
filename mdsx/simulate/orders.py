"""The order of an epoch as numbers: the dataset's number of the sample at each position.

Each order computes the exact numbers of a stretch of positions. It also draws numbers for single positions, which have
the right distribution one by one and cost little. This module has mdsx's own order, an exact shuffle and no shuffle;
`buffered.py` and `py1e.py` have the shuffles of other libraries.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mdsx.order import Order, active_shards, key, keys
from mdsx.simulate.course import most_at_a_time
from mdsx.simulate.permuted import drawn_below, permutation_of, permuted

_PLACES = 15  # of an epoch, its middle among them, where the shards in use are counted
_LANES = 128  # lanes in which they are counted; the other lanes use as many
FOLLOWED = 2**20  # samples of a block or buffer; for larger ones, single positions are drawn
KEYS = 0x51A1  # the first part of every key here, so that none is a key of the order


class EpochOrder(Protocol):
    """The sample at each position of an epoch of `samples`.

    `held`: the samples held at a time, in the shards in use or in a buffer. `work`: about how many samples must be
    computed for a stretch.
    """

    method: str
    samples: int
    held: int
    work: int

    def numbers(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the numbers of the samples at positions `start` up to `stop` (exclusive)."""
        ...

    def drawn(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return a number for each position, drawn from the order's distribution, independently of the others."""
        ...


class Ours:
    """The order of mdsx."""

    method = "mdsx"

    def __init__(self, order: Order) -> None:
        self.order = order
        self.samples = len(order)
        in_use, shards = shards_in_use(order)[0], max(1, int((order.counts > 0).sum()))
        self.held = min(round(in_use * self.samples / shards), self.samples)
        follow = order.shuffle_block <= FOLLOWED
        self.work = max(order.shuffle_block, 65536) + 400 * order.lanes if follow else 1  # a tile of each lane
        self._firsts = np.cumsum(order.counts) - order.counts

    def numbers(self, start: int, stop: int) -> NDArray[np.int64]:
        if self.order.shuffle_block > FOLLOWED and (start, stop) != (0, self.samples):
            return self.drawn(np.arange(start, stop))
        shards, samples = self.order.locate(np.arange(start, stop))
        return samples + self._firsts[shards]

    def drawn(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        shards, samples = drawn_in_blocks(self.order, positions)
        return samples + self._firsts[shards]


class Exact:
    """An exact shuffle of all samples."""

    method = "exact"

    def __init__(self, samples: int, seed: int = 0) -> None:
        self.samples = self.held = samples
        self.work = 1
        self._key = key(KEYS, 2, seed)

    def numbers(self, start: int, stop: int) -> NDArray[np.int64]:
        return permuted(self._key, np.arange(start, stop), self.samples)

    def drawn(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        return permuted(self._key, positions, self.samples)


class Unshuffled:
    """The samples as they are stored."""

    method = "none"

    def __init__(self, counts: NDArray[np.int64]) -> None:
        self.samples = int(counts.sum())
        self.held = -(-self.samples // max(1, int((counts > 0).sum())))  # a shard
        self.work = 1

    def numbers(self, start: int, stop: int) -> NDArray[np.int64]:
        return np.arange(start, stop)

    def drawn(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        return positions


@dataclass(frozen=True, slots=True)
class ShardLine:
    """All shards, shuffled or in stored order, one after the other on a line of places.

    `starts` [shards + 1] is the place of each shard's first sample, and `firsts` that sample's number.
    """

    starts: NDArray[np.int64]
    firsts: NDArray[np.int64]

    @classmethod
    def of(cls, counts: NDArray[np.int64], *, seed: int = 0, shuffle: bool = True) -> ShardLine:
        """Permute the shards, as the loaders do with which mdsx is compared."""
        firsts = np.cumsum(counts) - counts
        if shuffle:
            order = permutation_of(key(KEYS, 3, seed), len(counts))
            counts, firsts = counts[order], firsts[order]
        if not counts.all():
            filled = counts > 0
            counts, firsts = counts[filled], firsts[filled]
        return cls(np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]), firsts)

    @property
    def samples(self) -> int:
        return int(self.starts[-1])

    def numbers_at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of the samples at these places."""
        at = np.searchsorted(self.starts, places, side="right") - 1
        return self.firsts[at] + places - self.starts[at]


def sampled_positions(samples: int, count: int, seed: int = 0) -> NDArray[np.int64]:
    """Return `count` ascending positions below `samples`, drawn by hashing; or all, if there are fewer."""
    if samples <= count:
        return np.arange(samples)
    return np.sort(drawn_below(key(KEYS, 4, seed), np.arange(count), samples))


def drawn_in_blocks(order: Order, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the shard, and the sample in it, at each position, as if blocks were permuted by another permutation, one
    that can compute single items."""
    firsts, sizes = order.blocks_of(positions)
    if not order.shuffle:
        return order.unshuffled(positions)
    block_keys = keys(key(KEYS, 1, order.seed, order.epoch), firsts)
    places = permuted(block_keys, (positions - firsts) // order.lanes, sizes)
    return order.unshuffled(firsts + places * order.lanes)


def most_in_use(order: Order, lanes: int) -> int:
    """Return the most pieces of shards that any node draws on at a time, if each node has `lanes` successive lanes. It
    is exact, except that shards with pieces in two lanes count twice."""
    _, starts, stops = order.pieces_drawn()
    turns = starts % order.lanes // lanes * (len(order) + 1)  # node after node
    return most_at_a_time(starts + turns, stops + turns, np.ones_like(starts))


def shards_in_use(order: Order, lanes: int | None = None) -> tuple[float, int]:
    """Return how many shards the first `lanes` lanes (default: all) draw on at a time: the mean over the epoch, and the
    maximum."""
    samples, lanes = len(order), order.lanes if lanes is None else lanes
    chosen = np.unique(np.linspace(0, lanes - 1, min(_LANES, lanes)).astype(np.int64)).tolist()
    places = [samples * (place + 1) // (_PLACES + 1) for place in range(_PLACES)]
    counted = [active_shards(order, place, chosen) for place in places]
    more, shards = lanes / len(chosen), int((order.counts > 0).sum())
    return min(sum(counted) / len(counted) * more, shards), min(math.ceil(max(counted) * more), shards)
