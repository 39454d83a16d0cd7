"""Each order gives each sample once and any stretch as the whole epoch has it; and qualities are what they are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from mdsx.errors import UsageError
from mdsx.order import Order
from mdsx.simulate.buffered import Buffer
from mdsx.simulate.orders import EpochOrder, Exact, Ours, ShardLine, Unshuffled
from mdsx.simulate.py1e import Py1e
from mdsx.simulate.quality import Labels, Quality, epoch_orders, exact_batches, order_map, quality

METHODS = ("mdsx", "exact", "buffer", "py1e", "none")
COUNTS = np.array([900, 0, 1100, 450, 1000] * 40)
N = int(COUNTS.sum())
LINE = ShardLine.of(COUNTS)
ORDERS: Sequence[EpochOrder] = [
    Ours(Order(COUNTS, seed=3, lanes=4, shuffle_block=8192)),
    Exact(N),
    Unshuffled(COUNTS),
    *(Buffer(LINE, size) for size in (1, 100, 20_000, N)),
    *(Py1e(LINE, block, nodes) for block, nodes in ((8192, 1), (3000, 4), (500, 7), (N, 3))),
]


def qualities(order: Order, *, methods: Sequence[str] = METHODS, **given: Any) -> list[Quality]:
    """Return the quality of an order, and of the other methods with as many bytes held at a time."""
    return [quality(one, order.counts, **given) for one in epoch_orders(order) if one.method in methods]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: f"{order.method}-{order.held}")
def test_an_epoch_has_each_sample_once_and_stretches_of_it(order: EpochOrder) -> None:
    whole = order.numbers(0, N)
    assert np.array_equal(np.sort(whole), np.arange(N))
    for start, stop in ((0, 70), (30_000, 31_000), (N - 25_000, N - 24_000), (N - 300, N), (60_000, 60_001)):
        assert np.array_equal(order.numbers(start, stop), whole[start:stop])


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: f"{order.method}-{order.held}")
def test_draws_are_distributed_as_the_order(order: EpochOrder) -> None:
    """Which tenth of the numbers is how often in each quarter of the epoch."""
    whole, drawn = order.numbers(0, N), order.drawn(np.arange(N))
    for part in range(4):
        here = slice(part * N // 4, (part + 1) * N // 4)
        often = [np.histogram(numbers[here], bins=10, range=(0, N))[0] for numbers in (whole, drawn)]
        assert np.abs(often[0] - often[1]).max() < 0.02 * N / 4


def test_a_buffer_is_the_loop_of_its_description() -> None:
    size, order = 50, Buffer(ShardLine.of(np.array([1000]), shuffle=False), 50)
    slots = order._slots_at(np.arange(1000)).tolist()
    buffer, found = list(range(size)), []
    for time in range(1000 - size):
        found.append(buffer[slots[time]])
        buffer[slots[time]] = time + size
    found += [buffer[slot] for slot in slots[1000 - size :]]
    assert order.numbers(0, 1000).tolist() == found


@pytest.mark.parametrize(("size", "published"), [(100, 1.0000), (1000, 0.9994), (10_000, 0.9482), (100_000, 0.0)])
def test_a_buffer_leaves_the_published_correlation(size: int, published: float) -> None:
    line = ShardLine.of(np.array([100_000]), shuffle=False)
    seeds = 8 if size == 100_000 else 1
    numbers = [Buffer(line, size, seed).numbers(0, 100_000) for seed in range(seeds)]
    found = np.mean([np.corrcoef(np.arange(100_000), one)[0, 1] for one in numbers])
    assert found == pytest.approx(published, abs=0.0006 if size < 100_000 else 0.004)  # of one random run


def test_a_small_epoch_is_measured_whole() -> None:
    order = Order(COUNTS, seed=1, lanes=4, shuffle_block=4096)
    numbers = Ours(order).numbers(0, N)
    found = quality(Ours(order), COUNTS, batch_size=100, sample_bytes=10)
    shards = np.searchsorted(np.cumsum(COUNTS), numbers, side="right")
    counted = [len(set(shards[start : start + 100].tolist())) for start in range(0, N - 99, 100)]
    assert found.correlation == pytest.approx(np.corrcoef(np.arange(N), numbers)[0, 1])
    assert found.distinct == pytest.approx(np.mean(counted))
    batches = [set(shards[start : start + 100].tolist()) for start in range(0, N - 99, 100)]
    again = [len(one & before) / len(one) for before, one in pairwise(batches)]
    assert found.repeated == pytest.approx(np.mean(again))
    assert found.distinct_p5 == np.percentile(counted, 5)
    assert found.neighbour_distance == pytest.approx(np.abs(np.diff(numbers)).mean() / (N / 3))
    assert (found.correlation_error, found.distinct_error, found.sampled) == (0, 0, N)


def test_a_sample_of_an_epoch_agrees_with_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    order = Order(np.full(500, 500), seed=5, lanes=8, shuffle_block=8192)
    whole = qualities(order, batch_size=128, sample_bytes=100.0)
    monkeypatch.setattr("mdsx.simulate.quality._WHOLE", 1000)
    for one, part in zip(whole, qualities(order, batch_size=128, sample_bytes=100.0), strict=True):
        assert one.method == part.method
        assert 128 * 8 <= part.sampled < one.sampled
        assert abs(one.correlation - part.correlation) <= 5 * part.correlation_error
        assert abs(one.distinct - part.distinct) <= 5 * part.distinct_error + 0.02 * one.distinct
        assert one.neighbour_distance == pytest.approx(part.neighbour_distance, rel=0.1)


def test_all_methods_hold_as_much_and_tell_shuffled_from_stored() -> None:
    order = Order(np.full(500, 200), seed=1, lanes=4)
    found = {one.method: one for one in qualities(order, batch_size=64, sample_bytes=1000.0)}
    assert tuple(found) == METHODS
    held = found["mdsx"].held_bytes
    assert found["buffer"].held_bytes == held
    assert found["py1e"].held_bytes == pytest.approx(held, rel=0.01)
    assert found["none"].correlation == pytest.approx(1)
    assert found["none"].distinct < 2 < 20 < found["mdsx"].distinct < found["exact"].distinct


def test_batches_of_an_exact_shuffle_are_as_expected() -> None:
    found = quality(Exact(N), COUNTS, batch_size=64, sample_bytes=1)
    distinct, repeated = exact_batches(COUNTS, 64)
    assert found.distinct == pytest.approx(distinct, rel=0.01)
    assert found.repeated == pytest.approx(repeated, rel=0.05)


def test_values_of_a_column_are_counted() -> None:
    order = Order(np.full(100, 100), seed=1)
    labels = Labels("class", np.arange(10_000) // 5000)
    (found,) = qualities(order, batch_size=64, sample_bytes=1.0, labels=labels, methods=["exact"])
    assert (found.distinct, found.distinct_of) == (2, "class")
    with pytest.raises(UsageError, match="class"):
        qualities(order, batch_size=64, sample_bytes=1.0, labels=Labels("class", np.arange(5)))


def test_values_may_be_any_integers() -> None:
    order, values = Order(np.full(100, 100), seed=1), np.arange(10_000) // 100
    small, large = (
        qualities(order, batch_size=16, sample_bytes=1.0, labels=Labels("class", labels), methods=["mdsx"])
        for labels in (values, values * -(2**55))
    )
    assert small == large


def test_a_stored_order_is_measured_too() -> None:
    found = {one.method: one for one in qualities(Order(COUNTS, shuffle=False), batch_size=64, sample_bytes=1.0)}
    assert found["mdsx"].correlation == found["none"].correlation == pytest.approx(1)
    assert found["mdsx"].distinct == found["none"].distinct


def test_large_blocks_and_buffers_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    order = Order(np.full(2200, 500), seed=5, lanes=8, shuffle_block=2**16)
    methods = ("mdsx", "buffer", "py1e")
    followed = qualities(order, batch_size=128, sample_bytes=1.0, methods=methods)
    for module in ("orders", "buffered", "py1e"):
        monkeypatch.setattr(f"mdsx.simulate.{module}.FOLLOWED", 1000)
    for one, drawn in zip(followed, qualities(order, batch_size=128, sample_bytes=1.0, methods=methods), strict=True):
        assert drawn != one
        assert abs(drawn.distinct - one.distinct) < 4 * (one.distinct_error + drawn.distinct_error)
        assert drawn.repeated == pytest.approx(one.repeated, abs=0.07)


def test_an_empty_dataset_is_refused() -> None:
    with pytest.raises(UsageError, match="empty"):
        list(epoch_orders(Order([0])))


def test_an_order_map_has_points_of_the_order() -> None:
    for order in epoch_orders(Order(COUNTS, seed=2, lanes=4)):
        found = order_map(order, 500)
        assert found.numbers == order.numbers(0, N)[found.positions].tolist()
        assert len(found.positions) == 500


@pytest.mark.parametrize("samples", [1, 2, 5])
def test_tiny_datasets_have_a_quality(samples: int) -> None:
    assert [one.sampled for one in qualities(Order([samples]), batch_size=4, sample_bytes=1.0)] == [samples] * 5
