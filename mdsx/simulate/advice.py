"""Find the lanes and the block with the wanted shuffle quality and the smallest cache.

Each pair of lanes and block that fits the job is tried with the real order. For a large dataset, only a part of its
shards is used: how many shards a batch has, and how many are in use, depends only on those near in the order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mdsx.base.sizes import format_count, format_size
from mdsx.errors import UsageError
from mdsx.order import Order, block_bytes, fitting_lanes, integer, key, own_lanes, room_ahead
from mdsx.simulate.orders import KEYS, drawn_in_blocks, most_in_use, shards_in_use
from mdsx.simulate.permuted import drawn_below, permuted
from mdsx.simulate.quality import distinct_in, exact_batches, repeated_in

_FEWEST_SHARDS = 2**13  # in the part of a dataset that is tried
_MOST_SHARDS = 2**18
_LANE_CHOICES = 6
_COUNTED = 2**16  # shards up to which those in use are counted at every position
_STRETCHES = 8
_BATCHES = 3
_ENOUGH = 0.98  # of an exact shuffle's shards: larger blocks gain little
_POOR = 0.25  # below it, fewer blocks are tried
_LUCK = 3.0  # standard deviations of the correlation of shards in random order


@dataclass(frozen=True, slots=True)
class Wanted:
    """The quality to reach.

    Attributes:
        distinct: Shards in a batch, relative to an exact shuffle.
        repeated: The largest share of a batch's shards that the previous batch has too, beyond those of an exact
            shuffle.
        correlation: The largest correlation of position and number, unless chance alone gives more.
    """

    distinct: float = 0.9
    repeated: float = 0.5
    correlation: float = 0.01

    def __post_init__(self) -> None:
        for name in ("distinct", "repeated", "correlation"):
            value = getattr(self, name)
            if not 0 < value <= 1:
                raise UsageError(f"wanted {name} is out of range", found=str(value), expected="above 0, up to 1")

    def most_repeated(self, exact: float) -> float:
        """Return the share that may be repeated if an exact shuffle repeats `exact`."""
        return exact + self.repeated * (1 - exact)

    def most_correlation(self, shards: int) -> float:
        """Return the correlation that these many tried shards may have. Even shards in random order have some by
        chance, about 1 divided by the root of their number, which no setting changes."""
        return max(self.correlation, _LUCK / math.sqrt(shards))


@dataclass(frozen=True, slots=True)
class ReadingJob:
    """The job that reads the data. `batch_size`: of all ranks together; `processes`: reading processes per node, ranks
    times workers."""

    nodes: int
    ranks: int
    batch_size: int
    processes: int

    @property
    def world_size(self) -> int:
        """Return the number of ranks on all nodes."""
        return self.nodes * self.ranks


@dataclass(frozen=True, slots=True)
class Choice:
    """One setting.

    Attributes:
        lanes: For `mdsx.Shuffle`.
        shuffle_block: For `mdsx.Shuffle`.
        cache_bytes: The cache that a node needs: the sum of the following two.
        in_use_bytes: The shards that the node's ranks draw on at a time, at most.
        ahead_bytes: Room for prefetched shards.
        distinct: The mean number of shards in a batch.
        distinct_share: The same, relative to an exact shuffle.
        repeated: The share of a batch's shards that the previous batch has too.
        correlation: The correlation of position and number, measured on a part of the dataset if it is large.
        most_correlation: The largest that is good enough.
        enough: Whether this has the wanted quality.
    """

    lanes: int
    shuffle_block: int
    cache_bytes: int
    in_use_bytes: int
    ahead_bytes: int
    distinct: float
    distinct_share: float
    repeated: float
    correlation: float
    most_correlation: float
    enough: bool


@dataclass(frozen=True, slots=True)
class Advice:
    """The settings that were tried, and the best.

    Attributes:
        curve: All settings, by lanes and block.
        chosen: The setting with the wanted quality and the smallest cache; if none has the quality, the nearest one.
        reasons: The reasons, in sentences.
        wanted: The requested quality.
        most_repeated: The largest share of a batch's shards that the previous batch may have too.
        exact_distinct: Shards in a batch of an exact shuffle.
        tried_shards: How many shards were tried: all, or a part.
    """

    curve: list[Choice]
    chosen: Choice
    reasons: list[str]
    wanted: Wanted
    most_repeated: float
    exact_distinct: float
    tried_shards: int


def advise(
    counts: NDArray[np.int64],
    job: ReadingJob,
    *,
    shard_bytes: float,
    largest_shard: int | None = None,
    seed: int = 0,
    wanted: Wanted | None = None,
) -> Advice:
    """Return the setting with the wanted quality and the smallest cache.

    Args:
        counts: Samples of each shard.
        job: The job that reads the data.
        shard_bytes: The mean size of a shard in the cache.
        largest_shard: The size of the largest shard; the default is the mean.
        seed: The seed of the order.
        wanted: The quality; default `Wanted()`.
    """
    wanted = wanted or Wanted()
    counts = counts[counts > 0]
    if not len(counts):
        raise UsageError("an empty dataset has no order to choose", hint="give shards with samples")
    batch = integer(job.batch_size, "batch_size", 1, 2**24)
    exact = exact_batches(counts, batch)
    curve, tried = list[Choice](), 0
    for number in lanes_to_try(job):
        for block in _blocks(counts, number, batch, exact[0]):
            part = _part(counts, number, block, batch, seed)
            order = Order(part, seed=seed, lanes=number, shuffle_block=block)
            sizes = (shard_bytes, max(shard_bytes, largest_shard or 0))
            choice = _measured(order, job, wanted, exact, sizes, len(counts))
            curve.append(choice)
            tried = max(tried, len(part))
            if choice.enough and choice.distinct_share >= _ENOUGH and choice.repeated <= exact[1] + 0.2:
                break
    enough = [choice for choice in curve if choice.enough]
    if enough:
        chosen = min(enough, key=lambda choice: (choice.cache_bytes, -choice.distinct_share))
    else:
        chosen = max(curve, key=lambda choice: (min(choice.distinct_share / wanted.distinct, 1), -choice.repeated))
    reasons = list(_reasons(chosen, curve, job, wanted, exact, round(len(counts) * shard_bytes)))
    return Advice(curve, chosen, reasons, wanted, wanted.most_repeated(exact[1]), exact[0], tried)


def lanes_to_try(job: ReadingJob) -> list[int]:
    """Return some numbers of lanes, ascending, that keep each node on its own shards (see `order.fitting_lanes`)."""
    found = fitting_lanes(job.batch_size, world_size=job.world_size, nodes=job.nodes)
    wanted = np.geomspace(found[0], found[-1], _LANE_CHOICES)
    return sorted({min(found, key=lambda lanes: (abs(lanes - target), lanes)) for target in wanted.tolist()})


def _blocks(counts: NDArray[np.int64], lanes: int, batch: int, exact: float) -> Iterator[int]:
    """Yield blocks, each twice the previous one: from a shard, or two samples of each lane, to the whole dataset. Steps
    are larger while too few shards are in use for a good batch."""
    samples = int(counts.sum())
    mean = samples / len(counts)
    block = 2 ** (max(round(mean), 2 * lanes) - 1).bit_length()
    limit = 64 * max(batch, lanes) * mean  # a batch then shares hardly any shard with the previous one
    while block < min(samples, limit):
        yield block
        block *= 2 if lanes + 4 * block / mean > _POOR * exact else 4
    yield min(block, samples)


def _part(counts: NDArray[np.int64], lanes: int, block: int, batch: int, seed: int) -> NDArray[np.int64]:
    """Return the sizes of enough shards to try this setting: some blocks of each lane, and more shards than a batch
    has."""
    mean = int(counts.sum()) / len(counts)
    wanted = round(max(_FEWEST_SHARDS, 32 * lanes, 4 * block / mean, 4 * batch))
    wanted = max(min(wanted, _MOST_SHARDS), round(2 * block / mean))
    if wanted >= len(counts):
        return counts
    return counts[np.sort(permuted(key(KEYS, 8, seed), np.arange(wanted), len(counts)))]


def _measured(
    order: Order, job: ReadingJob, wanted: Wanted, exact: tuple[float, float], sizes: tuple[float, float], shards: int
) -> Choice:
    """Measure a setting. `exact`: distinct and repeated shards of an exact shuffle; `sizes`: the mean and largest
    shard."""
    batch = min(job.batch_size, len(order))
    distinct, repeated = _batches(order, batch)
    mean, largest = sizes
    own = own_lanes(order.lanes, ranks_here=job.ranks, world_size=job.world_size)
    counted = len(order.counts) <= _COUNTED
    most = min(most_in_use(order, own), shards) if counted else shards_in_use(order, own)[1]
    in_use = round(most * mean)
    total = mean * len(order.counts)
    block = block_bytes(total, samples=len(order), lanes=order.lanes, shuffle_block=order.shuffle_block)
    ahead = max(round(min(own * block, job.processes * room_ahead(block, largest))), round(job.ranks * largest))
    ahead = min(ahead, max(0, round(shards * mean) - in_use))
    correlation, most_correlation = _correlation(order), wanted.most_correlation(len(order.counts))
    share = distinct / exact[0]
    enough = (
        share >= wanted.distinct and repeated <= wanted.most_repeated(exact[1]) and abs(correlation) <= most_correlation
    )
    return Choice(
        order.lanes,
        order.shuffle_block,
        in_use + ahead,
        in_use,
        ahead,
        distinct,
        share,
        repeated,
        correlation,
        most_correlation,
        enough,
    )


def _batches(order: Order, batch: int) -> tuple[float, float]:
    """Return how many shards a batch has, and the share of them that the previous batch has too."""
    size = min(_BATCHES, max(1, len(order) // batch)) * batch
    starts = drawn_below(key(KEYS, 9), np.arange(_STRETCHES), len(order) // batch - size // batch + 1) * batch
    distinct, repeated = list[float](), list[float]()
    for start in np.sort(starts).tolist():
        positions = np.arange(start, start + size)
        shards = drawn_in_blocks(order, positions)[0]
        kinds = shards.reshape(-1, batch)
        distinct.append(float(distinct_in(kinds).mean()))
        if len(kinds) > 1:
            repeated.append(float(repeated_in(kinds).mean()))
    return float(np.mean(distinct)), float(np.mean(repeated)) if repeated else 0.0


def _correlation(order: Order) -> float:
    """Return the correlation of each piece's shard with the middle of the blocks that draw on the piece."""
    shards, starts, stops = order.pieces_drawn()
    middles = starts + stops
    x, y = middles - middles.mean(), shards - shards.mean()
    spread = float((x * x).sum()) * float((y * y).sum())
    return float((x * y).sum()) / spread**0.5 if spread else 0.0


def _reasons(
    chosen: Choice, curve: list[Choice], job: ReadingJob, wanted: Wanted, exact: tuple[float, float], dataset: int
) -> Iterator[str]:
    yield (
        f"With lanes={chosen.lanes} and shuffle_block={chosen.shuffle_block}, a batch of {job.batch_size:,} has "
        f"samples of {format_count(round(chosen.distinct), 'shard')}. An exact shuffle has {exact[0]:,.0f}."
    )
    if chosen.enough:
        yield (
            f"Of {len(curve)} settings that were tried, it needs the smallest cache of those with at least "
            f"{wanted.distinct:.0%} of an exact shuffle's shards in a batch, and at most "
            f"{wanted.most_repeated(exact[1]):.0%} of a batch's shards in the next batch too."
        )
    else:
        yield (
            f"No setting has the wanted quality: {wanted.distinct:.0%} of an exact shuffle's shards in a batch, at "
            f"most {wanted.most_repeated(exact[1]):.0%} of them in the next one too, and a correlation of at most "
            f"{wanted.correlation:g}. This one comes nearest. Smaller shards, or more of them, would mix better."
        )
    if chosen.cache_bytes >= dataset:
        yield f"A node needs room for the whole dataset, {format_size(chosen.cache_bytes)}."
    else:
        yield (
            f"{format_size(chosen.in_use_bytes)} are the shards that the ranks of a node draw on at a time; "
            f"{format_size(chosen.ahead_bytes)} are room for the shards that come next."
        )
    world = job.world_size
    if chosen.lanes % world == 0:
        own = chosen.lanes // world
        who = "The rank" if world == 1 else f"Each of {world} ranks"
        yield f"{who} has {format_count(own, 'lane')} and reads shards of its own."
    elif chosen.lanes % job.nodes == 0:
        own = chosen.lanes // job.nodes
        yield f"Each node has {format_count(own, 'lane')} and reads shards of its own, which its ranks share."
    else:
        yield f"{chosen.lanes} lanes cannot be divided among {job.nodes} nodes: nodes download the same shards."
