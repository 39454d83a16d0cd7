"""Subsets: some samples of a dataset, by number or by a share that stays the same when the dataset grows."""

from __future__ import annotations

import itertools
import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdsx.errors import UsageError
from mdsx.order import (
    AllSamples,
    Marks,
    Subset,
    chosen,
    chosen_of,
    select_between,
    select_chosen,
    select_fraction,
    share_edges,
    shares_of,
)
from mdsx.order.hashing import mixed
from mdsx.order.subset import hashed as hash_of
from mdsx.order.subset import select_run
from tests.order import reference
from tests.order.strategies import uint64

counts = st.lists(st.integers(0, 30), min_size=1, max_size=8)
fractions = st.one_of(st.floats(0, 1), st.fractions(0, 1), st.sampled_from([0, 1, 0.0, 1.0, 0.5]))


def numbers(subset: Subset, stored: Any) -> list[int]:
    """Return the dataset's numbers of the subset's samples, in its order."""
    firsts = np.cumsum(stored) - np.asarray(stored)
    parts = [
        (firsts[shard] + subset.samples(shard, np.arange(count))).tolist()
        for shard, count in enumerate(subset.counts.tolist())
    ]
    return list(itertools.chain.from_iterable(parts))


def share(stored: Any, start: Any, stop: Any, seed: int = 0) -> Subset:
    return select_fraction(AllSamples(stored), np.asarray(stored, np.int64), start, stop, seed)


@given(counts, st.data())
def test_a_selection_by_number_is_a_slice(stored: list[int], data: st.DataObject) -> None:
    size = sum(stored)
    start, stop = sorted(data.draw(st.tuples(st.integers(0, size), st.integers(0, size))))
    assert numbers(select_run(AllSamples(stored), start, stop), stored) == list(range(start, stop))


@given(counts, fractions, fractions, uint64)
def test_a_share_follows_the_specification(stored: list[int], a: Any, b: Any, seed: int) -> None:
    start, stop = sorted([Fraction(a), Fraction(b)])
    expected = [n for n in range(sum(stored)) if reference.in_selection(n, seed, start, stop)]
    assert numbers(share(stored, start, stop, seed), stored) == expected


@given(counts, st.lists(fractions, max_size=4), uint64)
def test_adjacent_shares_have_every_sample_once(stored: list[int], cuts: list[Any], seed: int) -> None:
    edges = [0, *sorted(cuts), 1]
    parts = [numbers(share(stored, a, b, seed), stored) for a, b in itertools.pairwise(edges)]
    assert sorted(itertools.chain.from_iterable(parts)) == list(range(sum(stored)))


@given(counts, counts, fractions)
def test_a_sample_stays_in_its_share_as_the_dataset_grows(stored: list[int], more: list[int], stop: Any) -> None:
    before = numbers(share(stored, 0, stop), stored)
    assert before == [n for n in numbers(share(stored + more, 0, stop), stored + more) if n < sum(stored)]
    assert before == numbers(share([sum(stored)], 0, stop), [sum(stored)])


@given(counts, fractions, st.data())
def test_selections_of_selections_compose(stored: list[int], stop: Any, data: st.DataObject) -> None:
    part = share(stored, 0, stop, seed=1)
    all_of_it = numbers(part, stored)
    size = len(all_of_it)
    begin, end = sorted(data.draw(st.tuples(st.integers(0, size), st.integers(0, size))))
    run = select_run(part, begin, end)
    assert numbers(run, stored) == all_of_it[begin:end]
    half = select_fraction(run, np.asarray(stored), 0, 0.5, 2)
    assert set(numbers(half, stored)) == set(all_of_it[begin:end]) & set(numbers(share(stored, 0, 0.5, 2), stored))


def test_a_share_has_about_the_requested_size() -> None:
    stored = [100_000] * 3
    assert abs(int(share(stored, 0.0, 0.01).counts.sum()) - 3000) < 200
    assert abs(int(share(stored, 0.5, 0.75).counts.sum()) - 75_000) < 1000


def test_selections_work_beyond_the_shards_kept_in_memory() -> None:
    stored = [20] * 300  # 256 are kept
    subset = share(stored, 0.25, 1)
    assert numbers(subset, stored) == numbers(pickle.loads(pickle.dumps(subset)), stored)
    assert numbers(subset, stored) == [
        n for n in range(6000) if reference.in_selection(n, 0, Fraction(1, 4), Fraction(1))
    ]


def test_shards_larger_than_a_hash_block_work() -> None:
    size = 2**20 + 50  # 2^20 are hashed at once
    whole = numbers(share([size], 0.25, 1), [size])
    assert whole == numbers(share([size // 2] * 2, 0.25, 1), [size // 2] * 2)
    first = 2**20 - 50
    expected = [n for n in range(first, size) if reference.in_selection(n, 0, Fraction(1, 4), Fraction(1))]
    assert [n for n in whole if n >= first] == expected


@pytest.mark.parametrize("kept", [2**22, 10])
@pytest.mark.parametrize("form", ["dense", "sparse", "runs", "both ends"])
def test_lists_are_kept_in_every_form(form: str, kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen, "_KEPT", kept)
    stored = np.array([70_000, 5, 0, 300, 66_000])
    places = np.arange(int(stored.sum()))
    hashes = mixed(places.astype(np.uint64))
    mask = {
        "dense": hashes % np.uint64(3) != 0,
        "sparse": hashes % np.uint64(100) == 0,
        "runs": places // 1000 % 2 == 1,
        "both ends": (places == 0) | (places == places[-1]),
    }[form]
    subset = select_chosen(AllSamples(stored), stored, chosen_of(mask, len(mask)))
    assert numbers(subset, stored) == np.flatnonzero(mask).tolist() == numbers(subset, stored)
    again = pickle.loads(pickle.dumps(subset))
    assert again.name == subset.name
    for shard in (4, 0):
        some = np.arange(int(subset.counts[shard]))[::-7]
        assert again.samples(shard, some).tolist() == subset.samples(shard, some).tolist()


def test_a_list_takes_a_bit_for_each_sample_at_most() -> None:
    stored = np.full(100, 100_000)
    total = 10**7
    for step in (2, 10, 1000):
        subset = select_chosen(AllSamples(stored), stored, chosen_of(range(1, total, step), total))
        assert len(pickle.dumps(subset)) < total / 8 + 10_000
    assert len(pickle.dumps(subset)) < 4 * total / 1000 + 10_000  # 32 bits each, if they are few


@given(counts, st.data())
def test_marks_choose_as_a_mask_does(stored: list[int], data: st.DataObject) -> None:
    size = sum(stored)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)), np.bool_)
    marks, edges = Marks(), sorted(data.draw(st.lists(st.integers(0, size), max_size=5)))
    for start, stop in itertools.pairwise([0, *edges, size]):
        marks.add(mask[start:stop])
    subset = select_chosen(AllSamples(stored), np.asarray(stored, np.int64), marks)
    assert numbers(subset, stored) == np.flatnonzero(mask).tolist()


def test_a_hash_on_an_edge_is_in_the_share_that_begins_there() -> None:
    stored, seed = [50], 9
    for number in range(50):
        hashed = reference.mix64((reference.key(seed, 6) + (number + 1) * reference.G) % 2**64)
        edge, next_edge = Fraction(hashed, 2**64), Fraction(hashed + 1, 2**64)
        assert number in numbers(share(stored, edge, 1, seed), stored)
        assert numbers(share(stored, edge, next_edge, seed), stored) == [number]
        assert number not in numbers(share(stored, 0, edge, seed), stored)
        values = mixed(np.array([number, 10**6 + number], np.uint64))  # any 64 bits
        cut = Fraction(int(hash_of(values, seed)[0]), 2**64)
        assert shares_of(values[:1], [Fraction(0), cut], seed).tolist() == [1]
        assert shares_of(values[:1], [Fraction(0), cut + Fraction(1, 2**64)], seed).tolist() == [0]


@given(st.lists(st.integers(0, 2**64 - 1), max_size=9), st.lists(fractions, max_size=4), uint64)
def test_values_are_in_the_shares_of_their_hashes(values: list[int], cuts: list[Any], seed: int) -> None:
    """Shares may be empty, and may end before 1."""
    edges = sorted(Fraction(cut) for cut in [0, *cuts])
    expected = [
        sum(
            int(edge * 2**64) <= reference.mix64((reference.key(seed, 6) + (x + 1) * reference.G) % 2**64)
            for edge in edges
        )
        - 1
        for x in values
    ]
    assert shares_of(np.array(values, np.uint64), edges, seed).tolist() == expected


@given(st.lists(fractions, max_size=4))
def test_a_share_ends_where_the_next_one_begins(shares: list[Any]) -> None:
    total = sum(map(Fraction, shares), Fraction(0))
    if total > 1 + Fraction(1, 2**40):
        with pytest.raises(UsageError, match=r"add up to more than 1.*at most 1, found [1-4].*split\(0.9, 0.1\)"):
            share_edges(shares)
        return
    ends = [sum(map(Fraction, shares[:n]), Fraction(0)) for n in range(len(shares) + 1)]
    near = [Fraction(1) if abs(end - 1) < Fraction(1, 2**40) else end for end in ends]
    assert share_edges(shares) == near


def test_only_a_sum_that_nearly_is_1_counts_as_1() -> None:
    near = Fraction(1, 2**40)
    assert share_edges([1 - near, 0]) == [0, 1 - near, 1 - near]
    assert share_edges([1 - near / 2, 0]) == [0, 1, 1]
    assert share_edges([1 + near / 2]) == [0, 1]
    with pytest.raises(UsageError, match="more than 1"):
        share_edges([1 + near])
    with pytest.raises(UsageError, match=r"^share 1 must be finite and not negative"):
        share_edges([0.5, -0.1])


def test_numbers_of_shares_are_kept_for_some_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdsx.order.subset._KEPT", 2)
    part = share([50] * 5, 0.5, 1)
    before = len(pickle.dumps(part))
    for shard in (0, 1, 2, 1):
        part.samples(shard, np.arange(5))
    kept = dict(vars(part)["_kept"])
    assert list(kept) == [1, 2], "the oldest leaves first"
    part.samples(1, np.arange(5))
    assert vars(part)["_kept"][1] is kept[1], "it is not hashed again"
    assert len(pickle.dumps(part)) == before, "they are not pickled"


def test_every_selection_has_its_own_name() -> None:
    stored = [10, 10]
    whole = AllSamples(stored)
    run, part = select_run(whole, 2, 9), share(stored, 0, 0.5)
    others = [select_run(run, 0, 3), share(stored, 0, 0.5, 1), share(stored, 0.5, 1), select_run(part, 0, 1)]
    names = [subset.name for subset in (whole, run, part, *others)]
    assert len(set(names)) == len(names)
    assert whole.name == ""


@pytest.mark.parametrize(
    ("start", "stop"), [(-1, 5), (5, 4), (0, 21), (0, 2.5), (-0.1, 0.5), (0.5, 0.2), (0.0, float("nan")), (True, 5)]
)
def test_selections_outside_the_dataset_raise(start: Any, stop: Any) -> None:
    by_share = isinstance(start, float) or isinstance(stop, float)
    with pytest.raises(UsageError):
        share([10, 10], start, stop) if by_share else select_run(AllSamples([10, 10]), start, stop)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-0.5, 1, 0), "start must be finite and not negative"),
        ((0, "all", 0), "stop must be a number"),
        ((0, 1, -1), "seed is out of range .expected 0 to 18446744073709551615, found -1"),
        ((0, 1, 2**64), "seed is out of range"),
        ((0, 1.5, 0), "fractions must be between 0 and 1, start before stop .found 0 to 1.5"),
        ((1.25, 1.5, 0), "fractions must be between 0 and 1"),
        ((0.5, 0.25, 0), "fractions must be between 0 and 1"),
    ],
)
def test_the_wrong_argument_of_a_share_is_named(arguments: tuple[Any, Any, int], message: str) -> None:
    with pytest.raises(UsageError, match="^" + message):
        share([10], *arguments)


def test_the_wrong_argument_of_a_run_is_named() -> None:
    with pytest.raises(UsageError, match=r"^stop is out of range .expected 0 to 10, found 11"):
        select_run(AllSamples([10]), 0, 11)
    with pytest.raises(UsageError, match=r"^start is out of range .expected 0 to 4, found 5"):
        select_run(AllSamples([10]), 5, 4)
    with pytest.raises(UsageError, match=r"^counts\[1\] is out of range .expected 0 to 4611686018427387903"):
        AllSamples([1, 2**62])


def test_one_selection_has_one_name_however_it_was_made() -> None:
    stored = np.array([4, 0, 9, 3])
    whole = AllSamples(stored)

    def listed(subset: Subset, numbers: range | list[int]) -> Subset:
        return select_chosen(subset, stored, chosen_of(numbers, int(subset.counts.sum())))

    def between(subset: Subset, start: int, stop: int) -> Subset:
        return select_between(subset, stored, start, stop)

    assert between(between(whole, 3, 9), 1, 2).name == listed(listed(whole, range(3, 9)), range(1, 2)).name == "4:5"
    assert between(between(whole, 3, 9), 2, 2).name == listed(whole, []).name == "0:0"
    odd = listed(whole, [1, 3, 5, 7])
    assert between(odd, 1, 3).name == listed(whole, [3, 5]).name
    assert between(odd, 1, 2).name == between(whole, 3, 4).name == "3:4"
    assert between(odd, 0, 4).name == odd.name
    share = select_fraction(between(whole, 1, 15), stored, 0.0, 0.5, 7)
    assert between(between(share, 1, 5), 1, 2).name == f"{share.name} 2:3"
