"""The hash, its keys and its permutations, against those written from format-spec.md."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mdsx.order import key, keys, mix64, mixed, sample_seeds
from mdsx.order.hashing import G, permutation, permutations, sort_keys
from tests.order import reference
from tests.order.strategies import uint64

any_64_bits = st.integers(0, 2**64 - 1)
numbers = st.integers(0, 5) | st.integers(0, 2**62)


@given(st.lists(any_64_bits, max_size=5))
def test_the_hash_is_that_of_the_specification(values: list[int]) -> None:
    expected = list(map(reference.mix64, values))
    assert list(map(mix64, values)) == expected
    array = np.array(values, np.uint64)
    assert mixed(array) is array
    assert array.tolist() == expected


@given(st.lists(any_64_bits, max_size=4), st.lists(numbers, max_size=4))
def test_a_key_continues_with_each_of_many_parts(parts: list[int], more: list[int]) -> None:
    assert key(*parts) == reference.key(*parts)
    found = keys(key(*parts), np.array(more, np.int64))
    assert found.dtype == np.uint64
    assert found.tolist() == [reference.key(*parts, part) for part in more]


@given(uint64, st.lists(st.tuples(numbers, numbers), max_size=8))
def test_a_sample_has_the_seed_of_its_epoch_and_position(seed: int, places: list[tuple[int, int]]) -> None:
    epochs, positions = np.array(places, np.int64).reshape(-1, 2).T
    found = sample_seeds(seed, epochs, positions)
    assert found.dtype == np.uint64
    assert found.tolist() == [reference.key(seed, 8, epoch, position) for epoch, position in places]


@given(st.lists(any_64_bits, max_size=3), st.lists(numbers, max_size=3))
def test_a_permutation_sorts_the_hashes_of_places(given_keys: list[int], places: list[int]) -> None:
    found = sort_keys(np.array(given_keys, np.uint64)[:, None], np.array(places, np.int64))
    assert found.tolist() == [[mix64((k + (place + 1) * G) % 2**64) for place in places] for k in given_keys]
    several = permutations(np.array(given_keys, np.uint64), 7)
    assert several.tolist() == [reference.permutation(k, 7) for k in given_keys]
    assert [permutation(k, 7).tolist() for k in given_keys] == several.tolist()
