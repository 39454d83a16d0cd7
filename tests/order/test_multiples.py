"""Multiples of a step on a circle, counted below many limits at once: against the floor sum of the specification."""

from __future__ import annotations

from math import gcd

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdsx.order import multiples
from mdsx.order.hashing import G
from mdsx.order.multiples import MODULUS, multiples_below


def floor_sum(n: int, m: int, a: int, b: int) -> int:
    """Return the sum of (a*k + b) // m for k in 0..n-1, as format-spec.md has it."""
    total = 0
    while n > 0:
        total += a // m * (n * (n - 1) // 2) + b // m * n
        a, b = a % m, b % m
        y = a * n + b
        n, b, a, m = y // m, y % m, m, a
    return total


@given(st.integers(0, 200), st.integers(1, 300), st.integers(0, 1000), st.integers(-1000, 1000))
def test_floor_sum_is_the_sum_of_floors(n: int, m: int, a: int, b: int) -> None:
    assert floor_sum(n, m, a, b) == sum((a * i + b) // m for i in range(n))


@given(st.data())
def test_counts_are_differences_of_floor_sums(data: st.DataObject) -> None:
    lanes = data.draw(st.sampled_from([1, 2, 3, 8, 64, 300, 512, 2**20]) | st.integers(1, 2**20))
    step = data.draw(st.sampled_from([lanes * G % MODULUS, data.draw(st.integers(0, 2**63 - 1)) * 2 + 1]))
    count = data.draw(st.integers(0, 50) | st.integers(0, 2**62 // lanes))
    random = st.integers(0, MODULUS - 1)
    near = st.builds(
        lambda k, off: (k * step + off) % MODULUS, st.integers(0, max(count, 1)), st.integers(-1, 1)
    )  # where a count changes
    limits = data.draw(st.lists(random | near | st.sampled_from([0, 1, 2, MODULUS // 2, MODULUS - 1]), max_size=40))
    wraps = floor_sum(count, MODULUS, step, 0)
    expected = [wraps - floor_sum(count, MODULUS, step, -limit) for limit in limits]
    assert multiples_below(count, step, np.array(limits, np.uint64)).tolist() == expected


@given(st.integers(1, 2**40), st.integers(0, 2**62))
def test_few_and_many_limits_agree(count: int, half: int) -> None:
    """With many limits the multiples are sorted, otherwise Euclid's algorithm runs."""
    step = 2 * half + 1
    count = min(count, 3000)
    limits = np.arange(1000, dtype=np.uint64) * np.uint64(MODULUS // 1000)
    together = multiples_below(count, step, limits)
    apart = np.concatenate([multiples_below(count, step, part) for part in np.array_split(limits, 1000 // 3)])
    assert together.tolist() == apart.tolist()


def counted(count: int, step: int, limit: int) -> int:
    return floor_sum(count, MODULUS, step, 0) - floor_sum(count, MODULUS, step, -limit)


STEPS = [
    1,
    2,
    3,
    7,
    2**20,
    2**32 - 1,
    2**40 + 5,
    2**62,
    2**63 - 1,
    2**63,
    2**63 + 1,
    3 * 2**62,
    MODULUS - 2,
    MODULUS - 1,
]


@pytest.mark.parametrize("step", [*STEPS, MODULUS + 3, *(lanes * G % MODULUS for lanes in (1, 3, 8, 64, 2**20))])
def test_all_steps_are_counted_exactly(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few multiples are sorted; for more, Euclid's algorithm runs."""
    monkeypatch.setattr(multiples, "_CHUNK", 5)  # limits come in chunks
    most = MODULUS // gcd(MODULUS, step)
    for count in (1, 3, 5, 6, 100, 2**16 + 1, 2**33 + 7, 2**62 - 1, 2**62):
        if count > most:
            continue
        near = [(number * step + off) % MODULUS for number in (1, 2, count - 1, count) for off in (-1, 0, 1)]
        limits = sorted({0, 1, 2, MODULUS // 2, MODULUS // 2 + 1, MODULUS - 2, MODULUS - 1, *near})
        expected = [counted(count, step % MODULUS, limit) for limit in limits]
        found = multiples_below(count, step, np.array(limits, np.uint64))
        assert found.dtype == np.int64
        assert found.tolist() == expected
        for limit, number in zip(limits, expected, strict=True):
            assert multiples_below(count, step, np.array([limit], np.uint64)).tolist() == [number]


def test_no_limits_and_no_multiples_have_no_counts() -> None:
    for count in (0, 1, 10**6):
        found = multiples_below(count, 3, np.zeros(0, np.uint64))
        assert found.dtype == np.int64
        assert found.tolist() == []
    found = multiples_below(0, 3, np.array([0, 5], np.uint64))
    assert found.dtype == np.int64
    assert found.tolist() == [0, 0]
