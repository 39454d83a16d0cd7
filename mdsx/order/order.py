"""Order version 1: the sample at each position of an epoch.

The order is a pure function of (counts, seed, epoch, lanes, shuffle_block, shuffle). format-spec.md specifies it. Any
position can be computed by itself, with memory for the shards and for two blocks of each lane.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mdsx.errors import UsageError
from mdsx.order.hashing import key, keys, permutation, permutations
from mdsx.order.limits import MAX_LANES, MAX_SAMPLES, MAX_UINT64, integer, integers
from mdsx.order.pieces import Line, Pieces, cut, lane_starts, line_up
from mdsx.order.sorting import by_value

ORDER_VERSION = 1
_MOST_LANES = 64
_LANE_SAMPLES = 1024
_DEFAULT_BLOCK = 262144
_SHARDS_PER_BLOCK = 64
_TILE = 65536  # samples, over all lanes, to compute at least at once if blocks are small


def default_lanes(counts: NDArray[np.int64]) -> int:
    """Return the largest power of two, at most 64, with which each lane has a shard and 1,024 samples; 1 if none has.

    A shard that several lanes divide is mixed worse: each lane has a region of it. Short lanes repeat their order from
    epoch to epoch, and the samples of each one make fewer full rows.
    """
    most = max(1, min(_MOST_LANES, int(np.count_nonzero(counts)), int(counts.sum()) // _LANE_SAMPLES))
    return 1 << most.bit_length() - 1


def default_shuffle_block(samples: int, shards: int) -> int:
    """Return the number of samples in about 64 shards, from 1 to 262,144. `shards` includes empty ones."""
    return max(1, min(_DEFAULT_BLOCK, _SHARDS_PER_BLOCK * -(-samples // max(1, shards))))


@dataclass(frozen=True, slots=True)
class Shuffle:
    """How far a shuffled order mixes. format-spec.md specifies it.

        data = StreamingDataset(url, seed=7, shuffle=mdsx.Shuffle(shuffle_block=2**20))

    A run that loads a state uses its lanes and its block unless you give others.

    Args:
        lanes: The number of interleaved sub-streams in the order. Ranks read separate shards if their number divides
            the number of lanes, or is a multiple of it. The default is 64, or the largest power of two below it with
            which each lane has a shard and 1,024 samples. For a mixture, the component with the most lanes counts; with
            `run`, it is the largest number up to there that divides `run`.
        shuffle_block: Samples are shuffled within blocks of this many samples. Larger blocks mix better, but keep more
            shards in use at a time. The default is the samples of about 64 shards, at most 262,144.
    """

    lanes: int | None = None
    shuffle_block: int | None = None


@dataclass(frozen=True, slots=True)
class _Tile:
    """A run of whole blocks of one lane (or the end of the lane), with the location of the sample at each offset."""

    identity: tuple[int, int]  # lane, number of the tile in it
    shards: NDArray[np.int64]
    samples: NDArray[np.int64]


class Order:
    """The order of one epoch: the sample at each position. It does no I/O. format-spec.md specifies it.

        order = mdsx.Order([1000, 1000, 500], seed=7, epoch=3)
        shards, samples = order.locate([0, 1, 2])

    An Order never changes, can be pickled, and may be used by several threads.

    Args:
        counts: The number of samples in each shard.
        seed: An unsigned 64-bit integer.
        epoch: An unsigned 64-bit integer.
        shuffle: Whether to shuffle. If not, there is one lane, in the order of the index.
        lanes: As in `mdsx.Shuffle`.
        shuffle_block: As in `mdsx.Shuffle`.

    Raises:
        UsageError: An argument is invalid.
    """

    counts: NDArray[np.int64]
    seed: int
    epoch: int
    lanes: int
    shuffle_block: int
    shuffle: bool
    version = ORDER_VERSION

    _samples: int
    _block: int  # b, the size of every block of a lane but its first and last
    _row: int  # blocks in a tile
    _tile_size: int
    _first_tiles: NDArray[np.int64]  # [C]: the size of each lane's first block, which is a separate tile
    _lane_starts: NDArray[np.int64]
    _pieces: Pieces
    _line: Line
    _tiles: list[_Tile | None]  # two for each lane: bounded, and without a lock that a fork could leave locked

    def __init__(
        self,
        counts: ArrayLike,
        *,
        seed: int = 0,
        epoch: int = 0,
        shuffle: bool = True,
        lanes: int | None = None,
        shuffle_block: int | None = None,
    ) -> None:
        counts = integers(counts, "counts", MAX_SAMPLES).copy()
        counts.flags.writeable = False
        ends = np.cumsum(counts)
        samples = int(ends[-1]) if len(ends) else 0
        if len(ends) and (samples >= MAX_SAMPLES or int(ends.min()) < 0):  # an overflow leads to negative sums
            raise UsageError("too many samples in all", expected=f"less than {MAX_SAMPLES}")
        if shuffle_block is None:
            shuffle_block = default_shuffle_block(samples, len(counts))
        lanes = integer(default_lanes(counts) if lanes is None else lanes, "lanes", 1, MAX_LANES)
        # Bypass __setattr__, here and below: an Order is immutable from outside.
        self.__dict__.update(
            counts=counts,
            seed=integer(seed, "seed", 0, MAX_UINT64),
            lanes=lanes if shuffle else 1,
            shuffle_block=integer(shuffle_block, "shuffle_block", 1, MAX_SAMPLES),
            shuffle=bool(shuffle),
            _samples=samples,
        )
        self._prepare()
        self._begin(integer(epoch, "epoch", 0, MAX_UINT64))

    def _prepare(self) -> None:
        """Set the fields that all epochs share."""
        lane = np.arange(self.lanes)
        block = -(-self.shuffle_block // self.lanes) if self.shuffle else 1
        row = max(1, _TILE // self.lanes // block)
        self.__dict__.update(
            _block=block,
            _row=row,
            _tile_size=row * block,
            _first_tiles=-(-block * (lane + 1) // self.lanes),
            _lane_starts=lane_starts(self._samples, self.lanes),
            _pieces=cut(self.counts, seed=self.seed, lanes=self.lanes, block=block, shuffle=self.shuffle),
        )

    def _begin(self, epoch: int) -> None:
        if self.__dict__.get("epoch") != epoch:
            line = line_up(self._pieces, seed=self.seed, epoch=epoch, shuffle=self.shuffle)
            self.__dict__.update(epoch=epoch, _line=line)
        self.__dict__.update(_tiles=[None] * (2 * self.lanes))

    def at_epoch(self, epoch: int) -> Order:
        """Return the order of another epoch, or a fresh copy for the same epoch."""
        other = object.__new__(Order)
        other.__dict__.update(self.__dict__)
        other._begin(integer(epoch, "epoch", 0, MAX_UINT64))
        return other

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"an Order is immutable ({name}); make another one, or use at_epoch()")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"an Order is immutable ({name})")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.counts, self.seed, self.epoch, self.shuffle, self.lanes, self.shuffle_block)

    def __repr__(self) -> str:
        return (
            f"Order(<{len(self.counts)} shards, {self._samples} samples>, seed={self.seed}, epoch={self.epoch}, "
            f"lanes={self.lanes}, shuffle_block={self.shuffle_block}, shuffle={self.shuffle})"
        )

    def __len__(self) -> int:
        """Return N, the number of samples in the epoch."""
        return self._samples

    def pieces_drawn(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return each piece's shard, and the first and last position (exclusive) of the blocks that draw on the
        piece."""
        lanes = np.repeat(np.arange(self.lanes), np.diff(self._pieces.lanes))
        offsets = np.empty_like(self._line.starts)
        offsets[self._line.pieces] = self._line.starts
        offsets -= self._lane_starts[lanes]
        last = offsets + self._pieces.sizes - 1
        first_block = self._first_tiles[lanes]
        starts = np.where(offsets < first_block, 0, offsets - (offsets - first_block) % self._block)
        stops = np.where(last < first_block, first_block, last - (last - first_block) % self._block + self._block)
        stops = np.minimum(stops, np.diff(self._lane_starts)[lanes])
        return self._pieces.shards, starts * self.lanes + lanes, (stops - 1) * self.lanes + lanes + 1

    def lane_length(self, lane: int) -> int:
        """Return the number of samples in `lane`: 0 if there are more lanes than samples."""
        return int(self._lane_starts[lane + 1] - self._lane_starts[lane])

    def locate(self, positions: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the shard, and the sample in that shard, at each of `positions`.

        `positions` is one-dimensional, 0 to N-1, in any order. Many positions of the same blocks in one call are fast.

        Raises:
            UsageError: A position is out of range.
        """
        positions = integers(positions, "positions", self._samples)
        shards, samples = np.empty_like(positions), np.empty_like(positions)
        offsets, lanes = np.divmod(positions, self.lanes)
        # Count as if each lane began with a whole tile that ends with the lane's first block.
        lacking = self._tile_size - self._first_tiles
        numbers, within = np.divmod(offsets + lacking[lanes], self._tile_size)
        for identity, chosen in by_value(numbers * self.lanes + lanes):
            number, lane = divmod(identity, self.lanes)
            places = within[chosen]
            if number == 0:
                places -= lacking[lane]
            tile = self._tile(lane, number)
            shards[chosen] = tile.shards[places]
            samples[chosen] = tile.samples[places]
        return shards, samples

    def drawn(self, lane: int, first: int, last: int) -> NDArray[np.int64]:
        """Return the distinct shards that the blocks with offsets `first` up to `last` of `lane` draw on."""
        begin = self._block_start(lane, self._block_number(lane, first))
        end = min(self._block_start(lane, self._block_number(lane, last - 1) + 1), self.lane_length(lane))
        return np.unique(self._pieces.shards[self._line.pieces[self._over(lane, begin, end)]])

    def blocks_of(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first position of each position's block, and the number of samples in the block."""
        offsets, lanes = np.divmod(positions, self.lanes)
        first = self._first_tiles[lanes]
        begins = np.where(offsets < first, 0, offsets - (offsets - first) % self._block)
        ends = np.minimum(np.where(offsets < first, first, begins + self._block), np.diff(self._lane_starts)[lanes])
        return begins * self.lanes + lanes, ends - begins

    def unshuffled(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the shard, and the sample in it, that would be at each position if no block was permuted.

        This is cheap for any positions, as no permutation is computed.
        """
        offsets, lanes = np.divmod(positions, self.lanes)
        places = self._lane_starts[lanes] + offsets
        at = np.searchsorted(self._line.starts, places, side="right") - 1
        pieces = self._line.pieces[at]
        return self._pieces.shards[pieces], self._pieces.firsts[pieces] + places - self._line.starts[at]

    def _block_number(self, lane: int, offset: int) -> int:
        return max(0, (offset - int(self._first_tiles[lane])) // self._block + 1)

    def _block_start(self, lane: int, number: int) -> int:
        return int(self._first_tiles[lane]) + (number - 1) * self._block if number else 0

    def _over(self, lane: int, begin: int, end: int) -> slice:
        """Return the pieces of the line at places `begin` up to `end` (exclusive, above `begin`) of `lane`."""
        start = self._lane_starts[lane]
        before = np.searchsorted(self._line.starts, start + begin, side="right")
        after = np.searchsorted(self._line.starts, start + end, side="left")
        return slice(int(before) - 1, int(after))

    def _tile(self, lane: int, number: int) -> _Tile:
        slot = 2 * lane + number % 2
        tile = self._tiles[slot]
        if tile is None or tile.identity != (lane, number):
            tile = self._tiles[slot] = self._make_tile(lane, number)
        return tile

    def _make_tile(self, lane: int, number: int) -> _Tile:
        blocks = 1 + (number - 1) * self._row if number else 0
        begin = self._block_start(lane, blocks)
        end = min(self._block_start(lane, blocks + self._row if number else 1), self.lane_length(lane))
        over = self._over(lane, begin, end)
        pieces = self._line.pieces[over]
        starts = self._line.starts[over] - self._lane_starts[lane]  # the first may begin before the tile
        sizes = np.diff(np.maximum(starts, begin), append=end)
        shards = np.repeat(self._pieces.shards[pieces], sizes)
        samples = np.repeat(self._pieces.firsts[pieces] - starts, sizes)
        samples += np.arange(begin, end)
        if self.shuffle:
            places = self._shuffled(lane, blocks, end - begin)
            shards, samples = shards[places], samples[places]
        return _Tile((lane, number), shards, samples)

    def _shuffled(self, lane: int, number: int, size: int) -> NDArray[np.int64]:
        """Return the next `size` places in the order of reading, starting with block `number`."""
        parent = key(self.seed, 2, self.epoch, lane)
        whole, rest = divmod(size, self._block) if number else (0, size)
        places = np.empty(size, np.int64)
        if whole:
            starts = np.arange(whole)[:, None] * self._block
            block_keys = keys(parent, np.arange(number, number + whole))
            places[: size - rest] = (starts + permutations(block_keys, self._block)).ravel()
        if rest:
            (last_key,) = keys(parent, np.array([number + whole])).tolist()
            places[size - rest :] = size - rest + permutation(last_key, rest)
        return places


def _rebuild(counts: NDArray[np.int64], seed: int, epoch: int, shuffle: bool, lanes: int, shuffle_block: int) -> Order:
    return Order(counts, seed=seed, epoch=epoch, shuffle=shuffle, lanes=lanes, shuffle_block=shuffle_block)
