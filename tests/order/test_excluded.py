"""Samples that a run leaves out, from a tick on: against a search in plain lists."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mdsx.order import Excluded, LeftOut

components = st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=3), min_size=1, max_size=4)


@given(components, st.integers(0, 20), st.data())
def test_samples_are_left_out_from_their_ticks_on(counts: list[list[int]], tick: int, data: st.DataObject) -> None:
    """Components, and the samples left out of each, may be given in any order; some have none."""
    lists: dict[int, dict[int, int]] = {}
    for component in data.draw(st.permutations(range(len(counts)))):
        if size := sum(counts[component]):
            entries = st.dictionaries(st.integers(0, size - 1), st.integers(0, 20), max_size=6)
            lists[component] = data.draw(entries)
    left_out = {
        component: LeftOut(np.array(list(since), np.int64), np.array(list(since.values()), np.int64))
        for component, since in lists.items()
    }
    firsts = np.cumsum([0, *map(len, counts)])
    excluded = Excluded(np.array([count for shards in counts for count in shards]), firsts, left_out)
    places, expected = [], []
    for component, shards in enumerate(counts):
        samples = [(int(firsts[component]) + shard, sample) for shard, n in enumerate(shards) for sample in range(n)]
        for number, place in enumerate(samples):
            places.append(place)
            expected.append(tick < lists.get(component, {}).get(number, 100))
    shards_, samples_ = np.array(places, np.int64).reshape(-1, 2).T
    kept = excluded.kept(np.full(len(places), tick), shards_, samples_)
    assert kept.dtype == np.bool_
    assert kept.tolist() == expected


def test_far_samples_and_ticks_are_exact() -> None:
    far = 2**60
    excluded = Excluded(np.array([2**61]), np.array([0, 1]), {0: LeftOut(np.array([far + 1]), np.array([far + 1]))})
    places = [(far, far + 1), (far + 1, far + 1), (far + 1, far), (far + 1, far + 2)]  # ticks and samples
    ticks, samples = np.array(places).T
    assert excluded.kept(ticks, np.zeros(4, np.int64), samples).tolist() == [True, False, True, True]
