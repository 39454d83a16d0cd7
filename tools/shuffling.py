"""The tables of docs/shuffling.md: mdsx next to other shuffles that hold as many samples, or bytes, at a time.

They are computed from the orders themselves.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from mdsx.order import Order
from mdsx.simulate.buffered import Buffer
from mdsx.simulate.orders import EpochOrder, Exact, Ours, ShardLine
from mdsx.simulate.py1e import Py1e
from mdsx.simulate.quality import distinct_in
from tools.pages import table, write_tables
from tools.processes import ROOT

PAGE = ROOT / "docs" / "shuffling.md"

# The published setting: 100,000 samples, stored in order. In shards of 50, so that mdsx can hold few samples too.
SAMPLES, SHARD = 100_000, 50
COUNTS = np.full(SAMPLES // SHARD, SHARD)
CLASSES, BATCH = 100, 64
BUFFERS = (100, 1_000, 10_000, 100_000)
PUBLISHED = {100: "1.0000", 1_000: "0.9994", 10_000: "0.9482", 100_000: "about 0"}
SEEDS = 4


def run(given: argparse.Namespace) -> int:
    return write_tables(PAGE, "shuffling", TABLES, docs=given.docs)


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


TABLES: dict[str, Callable[[], str]] = {"correlation": correlation_table, "classes": classes_table}
