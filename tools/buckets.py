"""The tables of docs/batches.md about batches of one shape: short batches, and what planning a window costs.

They are computed by `mdsx.Groups` from the numbers of buckets alone. The shares of buckets are as 1, 1/2, 1/3 and so
on.
"""

from __future__ import annotations

import argparse
from functools import cache

import numpy as np
from numpy.typing import NDArray

from mdsx.order import Groups, GroupSequence, Order
from tools.pages import table, write_tables
from tools.pretrain import PAGE, planning

SAMPLES, SHARD, STEP, LANES = 2**22, 2**14, 1024, 64
BUCKETS = (20, 40)
WINDOWS = (2**18, 2**20, 2**22)  # positions of all lanes
RANKS = (8, 64)


def run(given: argparse.Namespace) -> int:
    return write_tables(PAGE, "buckets", TABLES, timed=TIMED, docs=given.docs)


@cache
def numbers(buckets: int) -> NDArray[np.int64]:
    """Return the bucket of each sample."""
    shares = 1 / np.arange(1, buckets + 1)
    return np.random.default_rng(0).choice(buckets, SAMPLES, p=shares / shares.sum())


def grouped(buckets: int, window: int, lanes: int = LANES) -> Groups:
    order = Order([SHARD] * (SAMPLES // SHARD), lanes=lanes)
    given, width = numbers(buckets), window // lanes
    return Groups(order, given, kind="buckets", sizes=range(buckets), global_batch_size=STEP, window=width)


def tails_table() -> str:
    rows = []
    for buckets in BUCKETS:
        for window in WINDOWS:
            groups = list(grouped(buckets, window))
            sizes = np.concatenate([np.diff(each.edges) for each in groups])
            short = sizes < STEP
            spans = np.concatenate([spans_of(each) for each in groups])[~short]
            cells = [f"{short.mean():.1%}", f"{sizes[short].sum() / SAMPLES:.2%}"]
            rows.append([str(buckets), f"{window:,}", *cells, *(f"{span:,.0f}" for span in quartiles(spans))])
    heads = ["buckets", "positions of a window", "short batches", "their samples", "span, median", "span, largest"]
    return table(heads, rows, right=range(6))


def spans_of(groups: GroupSequence) -> NDArray[np.int64]:
    """Return how many positions lie between the first and the last sample of each group."""
    starts = groups.edges[:-1]
    lasts: NDArray[np.int64] = np.maximum.reduceat(groups.positions, starts)
    return lasts - np.minimum.reduceat(groups.positions, starts) + 1


def quartiles(spans: NDArray[np.int64]) -> tuple[float, float]:
    """Return the median and the largest span."""
    return float(np.median(spans)), float(spans.max())


def lanes_table() -> str:
    """Return how many samples ranks read that are not of their own lanes, whose shards their node has anyway."""
    rows = []
    order = Order([SHARD] * (SAMPLES // SHARD), lanes=LANES)
    for buckets in BUCKETS:
        groups = grouped(buckets, WINDOWS[1])[0]
        of_group = np.repeat(np.arange(len(groups)), np.diff(groups.edges))
        sizes = np.diff(groups.edges)[of_group]
        places = np.arange(len(of_group)) - groups.edges[of_group]
        own = groups.positions % order.lanes
        cells = [f"{(places * ranks // sizes != own * ranks // LANES)[sizes == STEP].mean():.1%}" for ranks in RANKS]
        rows.append([str(buckets), *cells])
    return table(["buckets", *(f"{ranks} nodes" for ranks in RANKS)], rows, right=range(3))


def planning_table() -> str:
    rows = []
    for buckets in BUCKETS:
        for lanes in (8, 64, 512):
            seconds, most = planning(grouped(buckets, WINDOWS[1], lanes))
            rows.append([str(buckets), str(lanes), f"{seconds:.2f}", f"{most / 1e6:.0f}"])
    return table(["buckets", "lanes", "seconds", "MB"], rows, right=range(4))


TABLES = {"tails": tails_table, "lanes": lanes_table, "planning": planning_table}
TIMED = ("planning",)
