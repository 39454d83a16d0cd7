"""The tables of docs/shuffling.md: mdsx next to other shuffles that hold as many samples, or bytes, at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from mdsx.order import Order
from mdsx.simulating.advice import Advice, Job, Wanted, advise
from mdsx.simulating.buffered import Buffer
from mdsx.simulating.orders import EpochOrder, Exact, Ours, ShardLine
from mdsx.simulating.py1e import Py1e
from mdsx.simulating.quality import Quality, distinct_in, epoch_orders, quality
from mdsx.sizes import format_size
from tools.pages import table

# The published setting: 100,000 samples, stored in order. In shards of 50, so that mdsx can hold few samples too.
SAMPLES, SHARD = 100_000, 50
COUNTS = np.full(SAMPLES // SHARD, SHARD)
CLASSES, BATCH = 100, 64
BUFFERS = (100, 1_000, 10_000, 100_000)
PUBLISHED = {100: "1.0000", 1_000: "0.9994", 10_000: "0.9482", 100_000: "about 0"}
SEEDS = 4

# A dataset of images, as people train on.
LARGE_COUNTS = np.full(20_000, 640)
SAMPLE_BYTES, LARGE_BATCH = 100_000, 1024
JOB = Job(nodes=8, ranks=8, batch_size=LARGE_BATCH, processes=64)
HELD = 160_000  # samples, 16 GB: 2 GB on each node
_DEFAULT_LANES = 8
WISHES = ((0.1, 1.0), (0.5, 1.0), (0.9, 1.0), (0.9, 0.8), (0.9, 0.5), (0.9, 0.2))  # distinct, repeated

Numbers = list[NDArray[np.int64]]


def holding(counts: NDArray[np.int64], lanes: int, held: int, seed: int = 0) -> Order | None:
    """Return the order with the largest block whose shards in use have at most `held` samples; None if there is none.

    If all samples may be held, one block has them all.
    """
    samples = int(counts.sum())
    if held >= samples:
        return Order(counts, seed=seed, lanes=1, shuffle_block=samples)
    low, high = 0, samples  # held with `low`, maybe not with `high`
    while high - low > max(1, low // 64):
        block = (low + high) // 2
        if Ours(Order(counts, seed=seed, lanes=lanes, shuffle_block=block)).held <= held:
            low = block
        else:
            high = block
    return Order(counts, seed=seed, lanes=lanes, shuffle_block=low) if low else None


@cache
def compared(held: int) -> dict[str, list[EpochOrder]]:
    """Return the shuffles of the published setting, each with some seeds, that hold `held` samples at a time."""
    lanes = [lanes for lanes in (1, 2, 4, 8, 16, 32, 64) if lanes * SHARD * 2 <= max(held, 2 * SHARD)][-1]
    found: dict[str, list[EpochOrder]] = {name: [] for name in HEADS}
    for seed in range(SEEDS):
        stored, line = ShardLine.of(COUNTS, shuffle=False), ShardLine.of(COUNTS, seed=seed)
        found["buffer, as stored"].append(Buffer(stored, held, seed))
        found["buffer, shuffled shards"].append(Buffer(line, held, seed))
        found["py1e"].append(Py1e.holding(held, line, seed=seed))
        for name, number in (("mdsx, 1 lane", 1), ("mdsx, more lanes", lanes)):
            order = holding(COUNTS, number, held, seed)
            assert order is not None
            found[name].append(Ours(order))
        found["exact"].append(Exact(SAMPLES, seed))
    return found


HEADS = ("buffer, as stored", "buffer, shuffled shards", "py1e", "mdsx, 1 lane", "mdsx, more lanes", "exact")


@cache
def measured(held: int) -> dict[str, tuple[float, float]]:
    """Return what each shuffle gives: the root mean square of the correlations, and the mean number of classes."""
    found = {}
    for name, orders in compared(held).items():
        numbers = [order.numbers(0, SAMPLES) for order in orders]
        squares = [float(np.corrcoef(np.arange(SAMPLES), one)[0, 1]) ** 2 for one in numbers]
        found[name] = math.sqrt(sum(squares) / len(squares)), float(np.mean([classes(one) for one in numbers]))
    return found


def classes(numbers: NDArray[np.int64]) -> float:
    """Return the mean number of distinct classes in a batch of 64: each hundredth of the samples is a class."""
    whole = SAMPLES // BATCH * BATCH
    return float(distinct_in((numbers[:whole] * CLASSES // SAMPLES).reshape(-1, BATCH)).mean())


def correlation_table() -> str:
    """Correlation against the size of the buffer."""
    rows = []
    for held in BUFFERS:
        found = [f"{correlation:.4f}" for correlation, _ in measured(held).values()]
        rows.append([f"{held:,}", PUBLISHED[held], *found])
    return table(["samples held", "published: buffer", *HEADS], rows, right=range(8))


def classes_table() -> str:
    """Distinct classes in a batch, against the size of the buffer."""
    rows = [["none", f"{classes(np.arange(SAMPLES)):.1f}", *[""] * 5]]
    rows += [[f"{held:,}", *(f"{found:.1f}" for _, found in measured(held).values())] for held in BUFFERS]
    return table(["samples held", *HEADS], rows, right=range(7))


def settings_table() -> str:
    """The published setting: the lanes and blocks of mdsx."""
    rows = []
    for held in BUFFERS:
        for found in [compared(held)[name][0] for name in HEADS if name.startswith("mdsx")]:
            assert isinstance(found, Ours)
            rows.append([f"{held:,}", f"{found.held:,}", f"{found.order.lanes}", f"{found.order.shuffle_block:,}"])
    unique = [row for number, row in enumerate(rows) if row not in rows[:number]]
    return table(["samples held", "by mdsx", "`lanes`", "`shuffle_block`"], unique, right=range(4))


def large_table() -> str:
    """A large dataset: what mdsx gives with its defaults and with more lanes, next to others with the same bytes."""
    rows = []
    for name, order in large_orders():
        compared_to = epoch_orders(order, canonical_nodes=JOB.nodes, methods=("mdsx", "buffer", "py1e"))
        rows += [_row(name if one.method == "mdsx" else one.method, one) for one in compared_to]
    others = epoch_orders(Order(LARGE_COUNTS), methods=("exact", "none"))
    rows += [_row({"exact": "exact shuffle", "none": "no shuffle"}[one.method], one) for one in others]
    heads = ["", "held, all nodes", "correlation", "shards in a batch", "5th percentile", "repeated", "neighbours"]
    return table(heads, rows, right=range(1, 7))


def small_shards_table() -> str:
    """The same data in smaller shards: the shards in a batch of mdsx, next to a buffer of the same bytes."""
    rows = []
    for parts in (1, 2, 4, 8):
        counts = np.full(len(LARGE_COUNTS) * parts, LARGE_COUNTS[0] // parts)
        lanes = 2 * JOB.world_size * parts
        order = holding(counts, lanes, HELD, seed=1)
        assert order is not None
        orders: list[EpochOrder] = [Ours(order), Buffer(ShardLine.of(counts, seed=1), HELD)]
        found = [_quality(one, counts) for one in orders]
        size = format_size(int(counts[0]) * SAMPLE_BYTES)
        cells = [cell for one in found for cell in (f"{one.distinct:,.0f}", f"{one.repeated:.0%}")]
        rows.append([size, f"{lanes}", f"{order.shuffle_block:,}", *cells])
    heads = ["shard size", "`lanes`", "`shuffle_block`", "mdsx", "repeated", "buffer", "repeated"]
    return table(heads, rows, right=range(7))


def large_orders() -> list[tuple[str, Order]]:
    """Return the names and the orders: the defaults, a lane for each rank, and the advice."""
    chosen = advice().chosen
    found = []
    for lanes, block in ((_DEFAULT_LANES, None), (JOB.world_size, None), (chosen.lanes, chosen.shuffle_block)):
        order = Order(LARGE_COUNTS, seed=1, lanes=lanes, shuffle_block=block)
        found.append((f"**mdsx**, {lanes} lanes, block {order.shuffle_block:,}", order))
    return found


@cache
def advice(distinct: float = 0.9, repeated: float = 0.5) -> Advice:
    """Return the advice for the large dataset."""
    size = float(SAMPLE_BYTES * LARGE_COUNTS[0])
    return advise(LARGE_COUNTS, JOB, shard_bytes=size, wanted=Wanted(distinct, repeated))


def advice_table() -> str:
    """The lanes, the block and the cache for several wishes."""
    rows = []
    for share, repeated in WISHES:
        chosen = advice(share, repeated).chosen
        rows.append(
            [
                f"{share:.0%}",
                "any" if repeated == 1 else f"{repeated:.0%}",
                f"{chosen.lanes}",
                f"{chosen.shuffle_block:,}",
                format_size(chosen.cache_bytes),
                f"{chosen.distinct:,.0f}",
                f"{chosen.repeated:.0%}",
            ]
        )
    heads = ["shards in a batch, at least", "repeated, at most", "`lanes`", "`shuffle_block`", "cache of a node"]
    return table([*heads, "shards in a batch", "repeated"], rows, right=range(7))


TABLES: dict[str, Callable[[], str]] = {
    "correlation": correlation_table,
    "classes": classes_table,
    "settings": settings_table,
    "large": large_table,
    "small shards": small_shards_table,
    "advice": advice_table,
}


def _quality(one: EpochOrder, counts: NDArray[np.int64] = LARGE_COUNTS) -> Quality:
    return quality(one, counts, batch_size=LARGE_BATCH, sample_bytes=SAMPLE_BYTES)


def _row(name: str, one: EpochOrder) -> list[str]:
    found = _quality(one)
    error = f" ± {found.correlation_error:.3f}" if abs(found.correlation) < 1 - 1e-6 else ""
    digits = 0 if found.distinct >= 100 else 1
    return [
        name,
        format_size(found.held_bytes),
        f"{found.correlation:.3f}{error}",
        f"{found.distinct:,.{digits}f}",
        f"{found.distinct_p5:,.{digits}f}",
        f"{found.repeated:.0%}",
        f"{found.neighbour_distance:.2f}",
    ]
