"""The tables of docs/batches.md: how full concatenated rows are, what planning them costs, how they crowd together, and
how evenly ranks work.

They are computed by `mdsx.Groups` from lengths alone. Lengths are lognormal with a median of 1,000.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from mdsx.order import (
    Balance,
    BusiestRank,
    Dealing,
    Grouping,
    Groups,
    GroupSequence,
    Kind,
    Order,
    Oversize,
    step_order,
)
from tools.pages import table, write_tables
from tools.processes import ROOT

PAGE = ROOT / "docs" / "batches.md"

DOCUMENTS, SHARD, MEDIAN = 1_000_000, 10_000, 1000
LANES = (8, 64, 512)
SIGMAS = (1, 2)
CAPACITIES = (2048, 8192, 32768, 131072)
NAMES: dict[Kind, str] = {"concat": "concatenated", "pack": "best fit"}

# The setting of balance: 64 ranks on 8 nodes.
RANKS, NODE, BALANCED_LANES, BALANCED = 64, 8, 64, 32768
STEPS = 100


def run(given: argparse.Namespace) -> int:
    return write_tables(PAGE, "pretrain", TABLES, timed=TIMED, docs=given.docs)


@cache
def documents(sigma: float, count: int = DOCUMENTS) -> NDArray[np.int64]:
    """Return the lengths of documents."""
    drawn = np.random.default_rng(0).lognormal(np.log(MEDIAN), sigma, count)
    return np.maximum(np.rint(drawn), 1).astype(np.int64)


def grouped(kind: Kind, capacity: int, lanes: int, sigma: float, count: int = DOCUMENTS) -> Groups:
    """Return the rows of an epoch of documents. Best fit takes the first values of longer ones."""
    shards = [SHARD] * (count // SHARD) + [count % SHARD] * (count % SHARD > 0)
    oversize: Oversize | None = None if kind == "concat" else "truncate"
    lengths = documents(sigma, count)
    return Groups(Order(shards, lanes=lanes), lengths, kind=kind, capacity=capacity, oversize=oversize)


def fill_of(groups: Groups, windows: int | None = None) -> float:
    """Return the share of the places of the rows that have a value."""
    values = rows = 0
    for number in range(len(groups) if windows is None else windows):
        found = groups[number]
        values, rows = values + int(found.sizes.sum()), rows + len(found)
    assert isinstance(groups.grouping, Grouping), "rows have a capacity"
    return values / (rows * groups.grouping.capacity)


def fill_table() -> str:
    rows = []
    for sigma in SIGMAS:
        for lanes in LANES:
            whole = [grouped("concat", capacity, lanes, sigma) for capacity in CAPACITIES]
            cells = [f"{fill_of(each, 1):.5f}, {fill_of(each):.5f}" for each in whole]
            rows.append([str(sigma), str(lanes), *cells])
    return table(["sigma", "lanes", *(f"L = {capacity:,}" for capacity in CAPACITIES)], rows, right=range(6))


def planning_table() -> str:
    rows = []
    for kind, name in NAMES.items():
        for lanes in LANES:
            for capacity in (CAPACITIES[0], CAPACITIES[-1]):
                groups = grouped(kind, capacity, lanes, 1)
                seconds, most = planning(groups)
                start, stop = groups.windows[0]
                cells = [f"{stop - start:,}", f"{len(groups[0]):,}", f"{seconds:.3f}"]
                per_token = seconds / int(groups[0].sizes.sum())
                rows.append([name, str(lanes), f"{capacity:,}", *cells, f"{most / 1e6:.0f}", f"{per_token * 1e9:.2f}"])
    heads = ["rows", "lanes", "L", "documents", "rows in it", "seconds", "MB", "ns for each token"]
    return table(heads, rows, right=range(1, 8))


def planning(groups: Groups) -> tuple[float, int]:
    """Return the processor seconds that planning the first window takes, and the most bytes."""
    groups[0]  # what the order keeps is made once
    seconds = min(thread_seconds(lambda: groups[0]) for _ in range(3))
    tracemalloc.start()
    try:
        groups[0]
        return seconds, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def thread_seconds(work: Callable[[], object]) -> float:
    """Return the processor seconds of this thread."""
    begin = time.thread_time()
    work()
    return time.thread_time() - begin


def steps_of(groups: Groups, size: int) -> Iterator[GroupSequence]:
    """Yield the whole steps of the first rows, at most STEPS."""
    for number, step in enumerate(groups.steps(size)):
        if number == STEPS or len(step) < size:
            return
        yield step


def crowding_table() -> str:
    rows = []
    for kind, name in NAMES.items():
        for capacity in CAPACITIES[:3]:
            cells = [f"{crowding(grouped(kind, capacity, lanes, 1), 512):.1%}" for lanes in LANES]
            rows.append([name, f"{capacity:,}", *cells])
    return table(["rows", "L", *(f"{lanes} lanes" for lanes in LANES)], rows, right=range(1, 5))


def crowding(groups: Groups, size: int) -> float:
    """Return the share of rows that have another row of one of their documents in their step."""
    crowded = rows = 0
    for step in steps_of(groups, size):
        row = np.repeat(np.arange(len(step)), np.diff(step.edges))
        _, document, times = np.unique(step.positions, return_inverse=True, return_counts=True)
        crowded += len(np.unique(row[times[document] > 1]))
        rows += len(step)
    return crowded / rows


def balance_table() -> str:
    """Each cell: of a step; of its micro-batches of one row."""
    rows = []
    for kind, name in NAMES.items():
        for width in (4096, 1024):
            balance = Balance(12 * width, 1)
            for own in (2, 4, 8, 16):
                count = int(1.2 * STEPS * own * RANKS * BALANCED / documents(1).mean())
                groups = grouped(kind, BALANCED, BALANCED_LANES, 1, count)
                cells = balanced(groups, balance, own)
                rows.append([name, f"{width:,}", str(own), *cells])
    heads = ["rows", "width", "rows of a rank", "without", "over a node", "over the job", "at least"]
    return table(heads, rows, right=range(1, 7))


def balanced(groups: Groups, balance: Balance, own: int) -> list[str]:
    """Return the busiest rank over the mean: without dealing, over nodes, over the job; and a bound."""
    size = own * RANKS
    finders = [
        BusiestRank(Dealing(balance, node), lanes=groups.lanes, size=size, world_size=RANKS, micro_batch=1)
        for node in (NODE, RANKS)
    ]
    least = []
    for step in steps_of(groups, size):
        for finder in finders:
            finder.add(step.lanes, step.sizes, step.edges)
        costs = np.sort(balance.costs(step.sizes, step.edges).astype(np.float64))
        heaviest = costs[-1] + costs[: own - 1].sum()  # a rank has the heaviest row, and others beside it
        least.append(max(heaviest * RANKS / costs.sum(), 1.0))
    assert len(least) == STEPS, "the documents make fewer steps"
    (node, plain), (job, _) = (found for finder in finders if (found := finder.found()))
    return [*(f"{each.step:.3f}, {each.micro_batch:.3f}" for each in (plain, node, job)), f"{np.mean(least):.3f}"]


def cost_table() -> str:
    """What balance adds to planning, on a rank."""
    rows = []
    for kind, name in NAMES.items():
        groups = grouped(kind, BALANCED, BALANCED_LANES, 1)
        seconds = min(thread_seconds(partial(groups.__getitem__, 0)) for _ in range(5)) / len(groups[0])
        for own in (4, 8):
            found = [dealing_seconds(groups[0], own * RANKS, node) for node in (NODE, RANKS)]
            cells = [f"{each * 1e6:.2f} ({each / seconds:+.1%})" for each in found]
            rows.append([name, str(own), f"{seconds * 1e6:.2f}", *cells])
    heads = ["rows", "rows of a rank", "planning a row, µs", "dealing over a node, µs", "over the job, µs"]
    return table(heads, rows, right=range(1, 5))


def dealing_seconds(rows: GroupSequence, size: int, node: int) -> float:
    """Return the processor seconds that a rank takes to deal a row of steps of `size` rows."""
    steps = len(rows) // size
    order = step_order(rows.lanes[: steps * size].reshape(steps, size), BALANCED_LANES)
    work = partial(Dealing(Balance(12 * 4096, 1), node).reorder, order, rows.sizes, rows.edges, 3, RANKS)
    return min(thread_seconds(work) for _ in range(9)) / (steps * size)


TABLES: dict[str, Callable[[], str]] = {
    "fill": fill_table,
    "crowding": crowding_table,
    "balance": balance_table,
    "planning": planning_table,
    "cost": cost_table,
}
TIMED = ("planning", "cost")
