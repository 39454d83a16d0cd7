"""Killed at any batch and resumed with any world and batch size: no sample is lost or repeated."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdsx.order import Order
from tests.order.positions import rank_positions
from tests.order.strategies import orders

WORLD_SIZES = (1, 2, 3, 4, 8)
PER_RANK = {1: 13, 2: 8, 3: 5, 4: 7, 8: 4}  # a rank's batch; no global batch divides a multiple of another
ORDER = Order([40, 0, 3, 77, 1, 128, 51], seed=11, epoch=2, shuffle_block=64)  # 300 samples


def read(order: Order, start: int, world_size: int, batch_size: int, batches: int | None) -> tuple[list[int], int]:
    """Return what the ranks read from position `start` in `batches` batches (None: to the end), and where they stop."""
    samples = []
    first_sample = np.cumsum(order.counts) - order.counts
    while start < len(order) and batches != 0:
        stop = min(start + batch_size, len(order))
        for rank in range(world_size):
            positions = rank_positions(start, stop, lanes=order.lanes, rank=rank, world_size=world_size)
            shards, places = order.locate(positions)
            samples += (first_sample[shards] + places).tolist()
        start, batches = stop, None if batches is None else batches - 1
    return samples, start


def lost_and_repeated(order: Order, samples: list[int]) -> tuple[int, int]:
    times = Counter(samples)
    return len(order) - len(times), sum(many - 1 for many in times.values())


@pytest.mark.parametrize(("before", "after"), list(itertools.product(WORLD_SIZES, WORLD_SIZES)))
def test_any_world_size_resumes_at_any_batch(before: int, after: int) -> None:
    size_before, size_after = before * PER_RANK[before], after * PER_RANK[after] + (before == after)
    for killed_after in range(-(-len(ORDER) // size_before) + 1):
        first, position = read(ORDER, 0, before, size_before, killed_after)
        fresh = Order(
            ORDER.counts, seed=ORDER.seed, epoch=ORDER.epoch, lanes=ORDER.lanes, shuffle_block=ORDER.shuffle_block
        )  # a new process
        second, position = read(fresh, position, after, size_after, None)
        assert position == len(ORDER)
        assert lost_and_repeated(ORDER, first + second) == (0, 0)


@given(orders(), st.lists(st.tuples(st.sampled_from(WORLD_SIZES), st.integers(1, 30), st.integers(0, 4)), max_size=5))
@settings(max_examples=30)
def test_any_sequence_of_runs_is_exact(order: Order, runs: list[tuple[int, int, int]]) -> None:
    samples, position = [], 0
    for world_size, batch_size, batches in [*runs, (3, 17, None)]:
        more, position = read(order, position, world_size, batch_size, batches)
        samples += more
    assert lost_and_repeated(order, samples) == (0, 0)


def test_the_check_finds_lost_and_repeated_samples() -> None:
    samples, _ = read(ORDER, 0, 2, 16, None)
    assert lost_and_repeated(ORDER, samples) == (0, 0)
    assert lost_and_repeated(ORDER, samples[3:]) == (3, 0)
    assert lost_and_repeated(ORDER, samples + samples[:2]) == (0, 2)
