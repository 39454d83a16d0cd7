"""Samples chosen by their numbers: every form of a choice, and how it is kept, against plain lists."""

from __future__ import annotations

import pickle
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mdsx.errors import UsageError
from mdsx.order import (
    AllSamples,
    Marks,
    Subset,
    bits_of,
    chosen,
    chosen_by_bits,
    chosen_of,
    same_samples,
    select_between,
    select_chosen,
    select_fraction,
)
from mdsx.order.chosen import Chosen
from mdsx.order.subset import select_run
from tests.order.test_subset import numbers

SIZE = 40
choices = st.sets(st.integers(0, SIZE - 1)).map(sorted)
windows = st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)).map(sorted), min_size=1, max_size=5)
stored_counts = st.lists(st.integers(0, 30), min_size=1, max_size=6)


def mask_of(listed: list[int], size: int = SIZE) -> NDArray[np.bool_]:
    return np.isin(np.arange(size), listed)


def of_list(listed: Any, stored: Any) -> Subset:
    counts = np.asarray(stored, np.int64)
    return select_chosen(AllSamples(counts), counts, chosen_of(listed, int(counts.sum())))


# --- a choice gives its numbers between any two others


@given(choices, windows)
def test_every_form_gives_the_numbers_of_the_list(listed: list[int], windows: list[list[int]]) -> None:
    mask, marks = mask_of(listed), Marks()
    for part in np.split(mask, [3, 3, 20]):
        marks.add(part)
    bits = np.packbits(mask, bitorder="little").tobytes()
    forms: list[Chosen] = [
        chosen_of(listed, SIZE),
        chosen_of(np.array(listed, np.uint8), SIZE),
        chosen_of(np.ma.masked_array(listed), SIZE),  # nothing is masked
        chosen_of(mask, SIZE),
        marks,
        chosen_by_bits(bits, SIZE),
    ]
    for form in forms:
        for start, stop in windows:
            found = form(start, stop)
            assert found.dtype == np.int64
            assert found.tolist() == [number for number in listed if start <= number < stop]


@given(st.slices(SIZE), windows)
def test_ranges_and_slices_give_their_numbers(given_slice: slice, windows: list[list[int]]) -> None:
    places = range(SIZE)[given_slice]
    if places.step < 0 and len(places) > 1:
        with pytest.raises(UsageError, match=r"must ascend.*found range\(.*reverse the range"):
            chosen_of(places, SIZE)
        return
    for form in (chosen_of(places, SIZE), chosen_of(given_slice, SIZE)):
        for start, stop in windows:
            found = form(start, stop)
            assert found.dtype == np.int64
            assert found.tolist() == [number for number in places if start <= number < stop]


def test_numbers_beyond_floats_are_exact() -> None:
    far = 2**60 + 7
    forms: list[Any] = [range(2**61), range(1, 2**61, 2), [5, far, far + 2]]
    for samples in forms:
        expected = [number for number in range(far, far + 3) if number in samples]
        assert chosen_of(samples, 2**62)(far, far + 3).tolist() == expected


@pytest.mark.parametrize("chunk", [1, 2, 3, 2**20])
def test_numbers_that_do_not_ascend_are_named(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are checked in chunks."""
    monkeypatch.setattr(chosen, "_CHUNK", chunk)
    for listed in product(range(4), repeat=4):
        wrong = [place for place in range(3) if listed[place + 1] <= listed[place]]
        if not wrong:
            assert chosen_of(listed, 4)(0, 4).tolist() == list(listed)
            continue
        pair = f"{listed[wrong[0]]}, {listed[wrong[0] + 1]} at {wrong[0]}"
        with pytest.raises(UsageError) as caught:
            chosen_of(listed, 4)
        assert f"must ascend, without repetitions (found {pair}); give np.unique" in str(caught.value)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([0, 10], "a sample number is out of range .expected 0 to 9, found 10"),
        ([-1, 10], "out of range .expected 0 to 9, found -1"),
        (range(10, 11), "found 10"),
        (range(10, 11, -5), None),
        (range(6, -2, -5), "must ascend"),
        (range(9, 0, -20), None),  # one number does not descend
        ([False] * 9, "a mask must have a bool for each sample .expected 10, found 9 bools"),
        (np.ma.masked_array([1, 2], [False, True]), "must be selected by two numbers, a range"),
        (np.ma.masked_array([True] * 10, [False] * 9 + [True]), "must be selected by two numbers, a range"),
        (np.ones((10, 1), np.bool_), "must be selected by two numbers, a range"),
        (np.ones((2, 2), np.int64), "must be selected by two numbers, a range"),
        (np.ones(10), "must be selected by.*found .*1.*; make a mask of the numbers"),
        (["a"] * 10, "must be selected by"),
    ],
)
def test_what_is_no_choice_is_refused(samples: Any, message: str | None) -> None:
    if message is None:
        assert chosen_of(samples, 10)(0, 10).tolist() == list(samples)
        return
    with pytest.raises(UsageError, match=message) as caught:
        chosen_of(samples, 10)
    assert ("make a mask" in str(caught.value)) == (getattr(samples, "dtype", None) == np.float64)


def test_nothing_is_chosen_of_no_samples() -> None:
    nothing: list[Any] = [[], range(0), slice(None), np.zeros(0), np.zeros(0, np.bool_)]
    for samples in nothing:
        assert chosen_of(samples, 0)(0, 0).tolist() == []
    with pytest.raises(UsageError, match="expected none: there are no samples, found 0"):
        chosen_of([0], 0)


# --- subsets of them


@given(stored_counts, st.data())
def test_a_bitmap_has_the_samples_of_its_subset(stored: list[int], data: st.DataObject) -> None:
    size = sum(stored)
    listed = data.draw(st.sets(st.integers(0, size - 1)).map(sorted)) if size else []
    bits = bits_of(of_list(listed, stored), np.array(stored))
    assert bits == np.packbits(mask_of(listed, size), bitorder="little").tobytes()


@pytest.mark.parametrize("chunk", [3, 2**20])
@given(stored=stored_counts, data=st.data())
def test_a_choice_of_a_choice_has_the_name_of_its_samples(chunk: int, stored: list[int], data: st.DataObject) -> None:
    """Samples are processed in chunks."""
    size = sum(stored)
    outer = data.draw(st.sets(st.integers(0, size - 1)).map(sorted)) if size else []
    inner = data.draw(st.sets(st.sampled_from(outer)).map(sorted)) if outer else []
    counts = np.array(stored)
    whole = of_list(inner, stored)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chosen, "_CHUNK", chunk)
        found = select_chosen(of_list(outer, stored), counts, chosen_of(mask_of(inner, size)[outer], len(outer)))
        assert numbers(found, stored) == inner
        assert found.name == whole.name
        assert same_samples((found, counts), (whole, counts))


@given(stored_counts, stored_counts, st.data())
def test_subsets_of_different_shards_have_the_same_samples_by_number(
    one: list[int], other: list[int], data: st.DataObject
) -> None:
    size = min(sum(one), sum(other))
    listed = data.draw(st.sets(st.integers(0, size - 1)).map(sorted)) if size else []
    changed = data.draw(st.sampled_from(listed)) if listed else None
    less = [number for number in listed if number != changed]
    first = of_list(listed, one), np.array(one)
    assert same_samples(first, (of_list(listed, other), np.array(other)))
    assert same_samples(first, (of_list(less, other), np.array(other))) == (changed is None)


def test_all_samples_are_the_same_only_if_they_are_as_many() -> None:
    def whole(*stored: int) -> tuple[Subset, NDArray[np.int64]]:
        return AllSamples(stored), np.array(stored)

    assert same_samples(whole(2, 3), whole(5))
    assert not same_samples(whole(2, 3), whole(2, 4))
    assert same_samples(whole(2, 3), (select_run(whole(2, 4)[0], 0, 5), np.array([2, 4])))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chosen, "_CHUNK", 2)
        assert same_samples(whole(2, 3), (select_run(whole(1, 1, 1, 1, 2)[0], 0, 5), np.array([1, 1, 1, 1, 2])))


def test_far_samples_differ() -> None:
    stored = np.array([2**55, 10])
    one, other = (select_run(AllSamples(stored), 2**54 + k, 2**54 + k + 1) for k in (0, 1))
    assert not same_samples((one, stored), (other, stored))


def test_a_part_of_a_share_is_named_by_its_numbers_in_it() -> None:
    stored = np.array([30, 30])
    share = select_fraction(AllSamples(stored), stored, 0.0, 0.5, 7)
    assert select_between(share, stored, 1, 5).name == f"{share.name} 1:5"
    listed = of_list(range(0, 60, 2), stored)
    share = select_fraction(listed, stored, 0.0, 0.5, 7)
    assert share.name.startswith(f"{listed.name} ")
    assert select_between(share, stored, 1, 5).name == f"{share.name} 1:5"


# --- in memory


@pytest.mark.parametrize("size", [1, 8, 64, 255, 256, 257, 1000, 65_536, 65_537])
@pytest.mark.parametrize("step", [1, 2, 3, 7, 8, 9, 16, 17, 40, 300])
def test_a_shard_is_kept_in_its_smallest_form(size: int, step: int) -> None:
    for run, last in product([1, 2, 5, 100], [False, True]):
        check_form(size, step, run, last)


def check_form(size: int, step: int, run: int, last: bool) -> None:
    """Choose `run` numbers of every `step * run` in a shard between two others, and maybe the last."""
    places = np.arange(size)
    mask = places // run % step == 0
    mask[-1] |= last
    listed = np.flatnonzero(mask)
    subset = of_list(np.concatenate(([0], listed + 2, [size + 3])), [2, size, 2])
    assert subset.samples(1, np.arange(len(listed))).tolist() == listed.tolist()
    assert subset.samples(1, np.arange(len(listed))[::-3]).tolist() == listed[::-3].tolist()
    assert subset.samples(1, np.arange(1)).dtype == np.int64
    width = np.min_scalar_type(size - 1).itemsize
    runs = 1 + int((np.diff(listed) != 1).sum())
    ends = 2  # the shards beside it take a byte each
    if len(listed) + 2 < size + 4 and subset.name.startswith("#"):
        smallest = min(len(listed) * width, 2 * runs * width, -(-size // 8))
        assert vars(subset)["_data"].nbytes - ends == smallest


def test_unpacked_numbers_are_kept_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen, "_KEPT", 100)
    stored = np.full(6, 100)
    subset = of_list(np.flatnonzero(np.arange(600) % 5 < 2), stored)  # 40 numbers in each shard, as a bitmap
    for shard in (0, 1, 2, 0):
        subset.samples(shard, np.arange(40))
    assert list(vars(subset)["_kept"]) == [2, 0], "the oldest leaves first"
    first = vars(subset)["_kept"][2]
    subset.samples(2, np.arange(40))
    assert vars(subset)["_kept"][2] is first, "it is not unpacked again"
    monkeypatch.setattr(chosen, "_KEPT", 120)
    subset.samples(3, np.arange(40))
    assert list(vars(subset)["_kept"]) == [2, 0, 3], "all 120"
    assert first.dtype == np.uint32


def test_unpacked_numbers_leave_only_until_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bitmap of shards with 10, 80 and 60 numbers."""
    monkeypatch.setattr(chosen, "_KEPT", 100)
    stored = np.array([25, 200, 150])
    subset = of_list(np.flatnonzero(np.arange(375) % 5 < 2), stored)
    for shard in range(3):
        subset.samples(shard, np.arange(10))
    assert list(vars(subset)["_kept"]) == [2], "60 do not fit beside 80"

    stored = np.array([100, 50, 50, 100])
    subset = of_list(np.flatnonzero(np.arange(300) % 5 < 2), stored)
    for shard in range(4):
        subset.samples(shard, np.arange(10))
    assert list(vars(subset)["_kept"]) == [1, 2, 3], "40, 20, 20 and 40: 40 must leave"


def test_a_pickle_has_no_unpacked_numbers() -> None:
    subset = of_list(np.flatnonzero(np.arange(10_000) % 5 < 2), [10_000])
    before = len(pickle.dumps(subset))
    assert subset.samples(0, np.arange(4000))[-1] == 9996
    assert len(pickle.dumps(subset)) == before
    assert pickle.loads(pickle.dumps(subset)).samples(0, np.arange(4000))[-1] == 9996
