"""Epochs of 10^12 samples and datasets of 2,000,000 shards start fast, with memory only for shards and blocks.

Limits of time are far above what is measured: only work that grows with the samples exceeds them.
"""

from __future__ import annotations

import time
import tracemalloc

import numpy as np
import pytest

from mdsx.order import MixtureOrder, Order
from tests.order import reference


def test_a_trillion_samples_start_fast() -> None:
    counts = np.full(2_000_000, 500_000)
    began = time.process_time()
    order = Order(counts, seed=3, epoch=5)
    shards, samples = order.locate(np.arange(10**11, 10**11 + 256))
    assert time.process_time() - began < 20  # 0.5 s on an idle machine
    assert len(order) == 10**12
    assert len(set(zip(shards.tolist(), samples.tolist(), strict=True))) == 256
    assert (samples >= 0).all()
    assert (samples < 500_000).all()


def test_memory_grows_only_with_shards_and_blocks() -> None:
    tracemalloc.start()
    try:
        order = Order(np.full(20_000, 50_000_000), seed=1)  # 10^12 samples
        for start in range(0, 10**12, 10**11):
            order.locate(np.arange(start, start + 4096))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    per_shard, per_block_sample, lanes = 200, 16, 8
    assert peak < per_shard * 20_000 + 2 * per_block_sample * (order.shuffle_block + lanes) + 10 * 2**20


@pytest.mark.parametrize(
    ("counts", "lanes"), [([10**11] * 10, 8), ([10**12], 8), ([1, 10**12 - 2, 0, 1], 5), ([50_000_000] * 20_000, 8)]
)
def test_far_positions_are_those_of_the_specification(counts: list[int], lanes: int) -> None:
    order = Order(counts, seed=7, epoch=1, lanes=lanes, shuffle_block=8000)
    positions = [0, 999, 10**6 + 1, 10**11, 10**12 // 3, 10**12 - 8001, 10**12 - 1]
    shards, samples = order.locate(positions)
    expected = [reference.place_at(p, counts, 7, 1, lanes, 8000) for p in positions]
    assert list(zip(shards.tolist(), samples.tolist(), strict=True)) == expected


def test_arithmetic_does_not_overflow_at_the_limits() -> None:
    counts = [2**61, 2**61 - 2, 1]
    order = Order(counts, seed=2**64 - 1, epoch=2**64 - 1, lanes=3, shuffle_block=300)
    positions = [0, 2**61 + 5, 2**62 - 2]
    expected = [reference.place_at(p, counts, 2**64 - 1, 2**64 - 1, 3, 300) for p in positions]
    assert np.stack(order.locate(positions), axis=1).tolist() == [list(place) for place in expected]
    largest_block = Order([5, 6], seed=1, lanes=7, shuffle_block=2**62)
    assert sorted(largest_block.locate(range(11))[0].tolist()) == [0] * 5 + [1] * 6


def test_small_batches_reuse_the_blocks_in_use() -> None:
    order = Order(np.full(100_000, 5000), seed=3)  # a block of each lane takes milliseconds to compute
    began = time.process_time()
    for start in range(10**7, 10**7 + 64 * 1000, 64):
        order.locate(np.arange(start, start + 64))
    assert time.process_time() - began < 8  # 0.3 s on an idle machine; a minute if each batch computes its blocks


def test_a_mixture_of_tens_of_billions_is_fast() -> None:
    began = time.process_time()
    mixture = MixtureOrder([np.full(20_000, 500_000)] * 3, [0.5, 0.3, 0.2], seed=1)  # 10^10 samples each
    components, _, _ = mixture.locate(np.arange(10**11, 10**11 + 256))
    assert time.process_time() - began < 20
    assert np.abs(np.bincount(components) - 256 * np.array([0.5, 0.3, 0.2])).max() <= 4
