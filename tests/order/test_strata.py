"""Stratified shares: exact in every stratum, and over all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from math import floor

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mdsx.order import share_edges, stratified_shares
from tests.order.reference import G, key, mix64


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


@given(
    st.lists(st.none() | st.integers(0, 4), max_size=60),
    st.lists(st.fractions(0, 1, max_denominator=12), min_size=1, max_size=4).filter(lambda shares: sum(shares) <= 1),
    st.integers(0, 2**64 - 1),
)
def test_each_sample_is_in_the_share_that_the_specification_gives(
    values: list[int | None], shares: list[Fraction], seed: int
) -> None:
    nulls = np.array([value is None for value in values], np.bool_)
    strata = np.array([value or 0 for value in values], np.uint64)
    numbers = np.arange(len(values)) * 3 + 1
    found = stratified_shares(strata, nulls, numbers, share_edges(shares), seed)
    assert found.tolist() == _specified(values, numbers.tolist(), [*shares, 1 - sum(shares, Fraction(0))], seed)


def _specified(
    values: Sequence[int | None], numbers: Sequence[int], proportions: Sequence[Fraction], seed: int
) -> list[int]:
    """Section 12.1 of the specification, word by word."""
    found, owed = [0] * len(values), [Fraction(0)] * len(proportions)
    for stratum in sorted(set(values), key=lambda value: (value is not None, value or 0)):
        members = [place for place, value in enumerate(values) if value == stratum]
        members.sort(key=lambda place: mix64((key(seed, 6) + (numbers[place] + 1) * G) % 2**64))
        exact = [proportion * len(members) for proportion in proportions]
        counts = [floor(count) for count in exact]
        owed = [before + count - floor(count) for before, count in zip(owed, exact, strict=True)]
        able = [share for share, count in enumerate(exact) if count.denominator > 1]
        for share in sorted(able, key=lambda share: (-owed[share], share))[: len(members) - sum(counts)]:
            counts[share] += 1
            owed[share] -= 1
        shares = [share for share, count in enumerate(counts) for _ in range(count)]
        for place, share in zip(members, shares, strict=True):
            found[place] = share
    return found


def _shares(strata: NDArray[np.uint64], edges: list[Fraction], seed: int) -> NDArray[np.int64]:
    return stratified_shares(strata, np.zeros(len(strata), np.bool_), np.arange(len(strata)), edges, seed)
