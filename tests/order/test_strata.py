"""Stratified shares: exact in every stratum, and over all of them."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mdsx.order import share_edges, stratified_shares


@given(
    st.lists(st.integers(0, 6), max_size=80),
    st.lists(st.fractions(0, 1, max_denominator=12), min_size=1, max_size=4).filter(lambda shares: sum(shares) <= 1),
    st.integers(0, 2**64 - 1),
)
def test_each_share_has_its_part_of_every_stratum(values: list[int], shares: list[Fraction], seed: int) -> None:
    edges = share_edges(shares)
    strata = np.array(values, np.uint64) * np.uint64(2**60 + 7)
    found = _shares(strata, edges, seed)
    proportions: list[Fraction] = [*shares, 1 - sum(shares, Fraction(0))]
    for value in set(values):
        size = values.count(value)
        counts = Counter(found[strata == strata[values.index(value)]].tolist())
        for share, proportion in enumerate(proportions):
            assert abs(Fraction(counts[share]) - proportion * size) < 1
    for share, proportion in enumerate(proportions):
        assert abs(Fraction(int((found == share).sum())) - proportion * len(values)) < len(proportions)
    again = _shares(np.concatenate([strata, np.array([2**63], np.uint64)]), edges, seed)
    assert np.array_equal(again[:-1], found)  # a stratum that comes after all others changes nothing


def test_the_rule_is_that_of_the_specification() -> None:
    strata = np.array([0, 1, 0, 0, 1, 2, 0, 1, 2, 0], np.uint64)
    edges = share_edges([Fraction(1, 2), Fraction(3, 10)])
    assert _shares(strata, edges, 7).tolist() == [0, 2, 0, 0, 1, 1, 2, 0, 0, 1]
    assert _shares(np.zeros(0, np.uint64), share_edges([0.5]), 7).tolist() == []


def _shares(strata: NDArray[np.uint64], edges: list[Fraction], seed: int) -> NDArray[np.int64]:
    return stratified_shares(strata, np.zeros(len(strata), np.bool_), np.arange(len(strata)), edges, seed)
