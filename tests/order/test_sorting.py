"""Integers are sorted and grouped as Python does it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdsx.order import by_value
from mdsx.order.sorting import stable_order


@given(st.data(), st.sampled_from([1, 2, 5, 300, 2**31, 2**57, 2**60, 2**61, 2**62, 2**62 + 1, 2**63]))
def test_equal_keys_keep_their_order(data: st.DataObject, stop: int) -> None:
    """Large keys leave no bits for their places."""
    drawn = st.integers(max(stop - 3, 0), stop - 1) | st.integers(0, min(stop - 1, 3)) | st.integers(0, stop - 1)
    keys = data.draw(st.lists(drawn, max_size=40))
    given_keys = np.array(keys, np.int64)
    assert stable_order(given_keys, stop).tolist() == sorted(range(len(keys)), key=keys.__getitem__)
    assert given_keys.tolist() == keys, "the caller's array is left alone"


@pytest.mark.parametrize("count", [1, 3, 4, 7, 8])
def test_keys_are_sorted_where_their_bits_just_fit_with_those_of_places(count: int) -> None:
    room = 2**63 >> count.bit_length()
    for stop in (room - 1, room, room + 1, 2 * room):
        keys = np.array([stop - 1, 0, stop - 1, stop // 2, 0, 1, stop - 2, 0][:count], np.int64)
        expected = sorted(range(count), key=keys.tolist().__getitem__)
        assert stable_order(keys, stop).tolist() == expected


@given(st.lists(st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1), max_size=30))
def test_values_are_grouped_in_ascending_order(values: list[int]) -> None:
    found = [(value, sorted(indices.tolist())) for value, indices in by_value(np.array(values, np.int64))]
    assert found == [
        (value, [place for place, other in enumerate(values) if other == value]) for value in sorted(set(values))
    ]
