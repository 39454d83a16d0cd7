"""Permutations by item, and draws."""

from __future__ import annotations

import numpy as np
import pytest

from mdsx.simulate.permuted import drawn_below, permutation_of, permuted, shares


@pytest.mark.parametrize("n", [1, 2, 3, 5, 64, 65, 1000, 65_537, 100_003])
def test_each_number_comes_once(n: int) -> None:
    assert np.array_equal(np.sort(permutation_of(7, n)), np.arange(n))


def test_an_item_is_the_same_by_itself() -> None:
    whole = permutation_of(9, 1001)
    places = np.array([1000, 0, 3, 500])
    assert np.array_equal(permuted(9, places, 1001), whole[places])
    keys, sizes = np.full(4, 9, np.uint64), np.full(4, 1001)
    assert np.array_equal(permuted(keys, places, sizes), whole[places])


def test_permutations_have_no_pattern() -> None:
    """Correlation, and the places of each item over many keys."""
    n, keys = 64, 2000
    found = np.array([permutation_of(key, n) for key in range(keys)])
    often = np.array([np.bincount(found[:, place], minlength=n) for place in range(n)])
    assert abs(often.std() / np.sqrt(keys / n) - 1) < 0.1  # as of uniform draws
    large = permutation_of(3, 100_000)
    assert abs(np.corrcoef(np.arange(100_000), large)[0, 1]) < 0.015
    assert np.abs(np.diff(large)).mean() == pytest.approx(100_000 / 3, rel=0.01)


def test_draws_are_uniform_and_below_their_limit() -> None:
    places = np.arange(100_000)
    assert np.bincount(drawn_below(1, places, 10)).std() < 300
    found = shares(2, places)
    assert 0 < found.min() < found.max() < 1
    assert found.mean() == pytest.approx(0.5, abs=0.01)
