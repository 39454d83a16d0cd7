"""Mixtures: every component epoch by epoch in its own order, in the weights' proportion in every batch."""

from __future__ import annotations

import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from fractions import Fraction
from time import process_time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdsx.errors import UsageError
from mdsx.order import MixtureOrder, Order, bounds_of
from mdsx.order.draws import PhaseBounds, StartCounts
from mdsx.order.hashing import key
from tests.order import reference
from tests.order.positions import draws_before, places
from tests.order.strategies import mixtures


@given(mixtures())
@settings(max_examples=10)
def test_a_mixture_equals_the_naive_implementation(options: dict[str, Any]) -> None:
    mixture, naive = MixtureOrder(**options), reference.Mixture(**options)
    assert list(bounds_of(options["weights"], mixture.sizes)) == naive.bounds
    expected = naive.positions(700)
    assert places(mixture, range(700)) == expected


@given(mixtures(), st.data())
@settings(max_examples=10)
def test_phases_equal_the_naive_implementation(options: dict[str, Any], data: st.DataObject) -> None:
    starts = sorted(data.draw(st.sets(st.integers(1, 690), min_size=1, max_size=4)))
    sizes = [sum(component) for component in options["components"]]
    phases = []
    for start in starts:
        weights = [data.draw(st.integers(0, 3)) if size else 0 for size in sizes]
        phases.append((start, weights if any(weights) else [int(size > 0) for size in sizes]))
    mixture, naive = MixtureOrder(**options, phases=phases), reference.Mixture(**options, phases=phases)
    expected = naive.positions(700)
    assert places(mixture, range(700)) == expected
    some = data.draw(st.lists(st.integers(0, 699), max_size=20))
    assert places(MixtureOrder(**options, phases=phases), some) == [expected[p] for p in some]
    drawn = [component for component, _, _ in expected]
    for p, counts in zip(some, draws_before(mixture, some).tolist(), strict=True):
        before = drawn[p % mixture.lanes : p : mixture.lanes]
        assert counts == [before.count(i) for i in range(len(sizes))]


def test_components_keep_their_positions_across_phases() -> None:
    """However often the weights change, each sample comes once in each epoch of its component."""
    counts = [[30_000, 10_000], [900], [20_000]]
    for start in (5000, 7777, 8192):
        steady = MixtureOrder(counts, [1, 1, 1], seed=3, lanes=4)
        changed = MixtureOrder(counts, [1, 1, 1], seed=3, lanes=4, phases=[(start, [5, 1, 0]), (2 * start, [1, 3, 9])])
        one, other = places(steady, range(20_000)), places(changed, range(20_000))
        assert one[:start] == other[:start]
        assert one[start:] != other[start:]
        for component in range(3):  # lanes read a large component side by side, so compare lane by lane
            for lane in range(4):
                streams = [
                    [place for p, place in enumerate(run) if place[0] == component and p % 4 == lane]
                    for run in (one, other)
                ]
                if component != 1:
                    shorter = min(map(len, streams))
                    assert streams[0][:shorter] == streams[1][:shorter]
        small = [[place for place in run if place[0] == 1] for run in (one, other)]
        assert small[0][: len(small[1])] == small[1][: len(small[0])]


def test_a_phase_with_the_same_weights_changes_nothing() -> None:
    counts = [[3000, 5000], [40]]
    plain = MixtureOrder(counts, [2, 1], seed=3, lanes=4)
    phased = MixtureOrder(counts, [2, 1], seed=3, lanes=4, phases=[(777, [4, 2]), (1003, [2, 1])])
    assert places(phased, range(5000)) == places(plain, range(5000))
    assert places(plain.with_phases([(0, [2, 1]), (50, [1, 0])]), range(500)) == places(
        MixtureOrder(counts, [2, 1], seed=3, lanes=4, phases=[(50, [1, 0])]), range(500)
    )


@pytest.mark.parametrize(
    ("phases", "says"),
    [
        ([(0, [1, 1])], "after the one before"),
        ([(9, [1, 1]), (9, [2, 1])], "after the one before"),
        ([(9, [1])], "a weight for each component"),
        ([(9, [0, 0])], "above 0"),
        ([(-1, [1, 1])], "out of range"),
        ([(9, [1, float("nan")])], "finite"),
    ],
)
def test_impossible_phases_are_refused(phases: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        MixtureOrder([[5], [6]], [1, 1], phases=phases)


@pytest.mark.parametrize("lanes", [1, 2])
def test_large_components_are_read_lane_by_lane(lanes: int) -> None:
    options: dict[str, Any] = {
        "components": [[1024 * lanes - 500, 501], [1024 * lanes - 1], [3]],  # just large, just small, tiny
        "weights": [2, Fraction(1, 2), 0.25],
        "seed": 5,
        "lanes": lanes,
        "shuffle_block": 100,
    }
    expected = reference.Mixture(**options).positions(5000)
    assert places(MixtureOrder(**options), range(5000)) == expected


@given(st.lists(st.integers(0, 20_000), min_size=1, max_size=50), st.sampled_from([1, 3, 8]))
@settings(max_examples=10)
def test_positions_in_one_call_or_many_are_equal(positions: list[int], lanes: int) -> None:
    options: tuple[Any, ...] = ([[3000, 5000], [40], [9000]], [5, 1, 3], 3, lanes, 64)
    anywhere = places(MixtureOrder(*options), positions)
    run = places(MixtureOrder(*options), range(20_001))
    assert anywhere == [run[p] for p in positions]
    mixture = MixtureOrder(*options)
    assert [place for p in positions for place in places(mixture, [p])] == anywhere


def test_every_sample_comes_once_per_epoch_of_its_component() -> None:
    counts = [[30_000, 10_000], [2000], [7]]
    mixture = MixtureOrder(counts, [6, 3, 1], seed=2, lanes=4, shuffle_block=256)
    drawn = places(mixture, range(60_000))
    for i, (sizes, epochs) in enumerate(zip(counts, (0, 9, 857), strict=True)):
        samples = [place[1:] for place in drawn if place[0] == i]
        whole = sorted((shard, sample) for shard, size in enumerate(sizes) for sample in range(size))
        if sum(sizes) < 1024 * 4:  # in one line: epoch after epoch
            assert len(samples) // len(whole) >= epochs - 1
            for epoch in range(len(samples) // len(whole)):
                assert sorted(samples[epoch * len(whole) : (epoch + 1) * len(whole)]) == whole
        else:
            assert len(set(samples)) == len(samples), "nothing repeated within an epoch"


def test_a_mixtures_lane_reads_its_large_components_lane() -> None:
    mixture = MixtureOrder([[5000], [6000]], [1, 1], seed=9, lanes=4, shuffle_block=256)
    lane = np.arange(2, 8000, 4)
    drawn, _, samples = mixture.locate(lane)
    order = Order([6000], seed=key(9, 4, 1), lanes=4, shuffle_block=256)
    own = order.locate(np.arange(2, 6000, 4))[1]
    assert samples[drawn == 1].tolist() == own[: (drawn == 1).sum()].tolist()


def test_every_batch_has_each_components_share() -> None:
    drawn = MixtureOrder([[10**6], [10**6]], [0.5, 0.5], seed=1).locate(range(256 * 1000))[0].reshape(-1, 256)
    assert drawn.sum(axis=1).std() < 1.5, "a random draw would give 8"
    small = MixtureOrder([[10**6], [10**6]], [0.5, 0.5], seed=1).locate(range(8 * 1000))[0].reshape(-1, 8)
    assert len({tuple(batch) for batch in small.tolist()}) > 50, "and small batches have no pattern"


def test_the_draws_of_a_long_run_match_the_weights() -> None:
    mixture = MixtureOrder([[10**6]] * 3, [0.7, 0.2, 0.1], seed=11)
    end = mixture.lanes * 10**9
    total = sum(draws_before(mixture, range(end, end + mixture.lanes)))
    assert total / end == pytest.approx([0.7, 0.2, 0.1], abs=1e-7)


@given(mixtures(), st.integers(0, 3000))
@settings(max_examples=20)
def test_draws_before_equals_a_count(options: dict[str, Any], position: int) -> None:
    mixture = MixtureOrder(**options)
    lane = mixture.locate(np.arange(position % mixture.lanes, position, mixture.lanes))[0]
    expected = np.bincount(lane, minlength=len(options["components"]))
    assert draws_before(mixture, [position])[0].tolist() == expected.tolist()


def test_far_draws_are_counted_exactly() -> None:
    """The floor sums at two far positions differ by the draws between them."""
    mixture = MixtureOrder([[10**6]] * 3, [3, Fraction(1, 3), 0.1], seed=4, lanes=8)
    for start in (10**12 + 5, 2**61 + 123):
        lane = np.arange(start, start + 8 * 500, 8)
        before, after = draws_before(mixture, [start, start + 8 * 500])
        assert (after - before).tolist() == np.bincount(mixture.locate(lane)[0], minlength=3).tolist()


def test_weights_are_taken_exactly() -> None:
    assert bounds_of([1, 1], [9] * 2) == (2**63, 2**64)
    assert bounds_of([Fraction(1, 3)] * 3, [9] * 3) == (2**64 // 3, 2**65 // 3, 2**64)
    assert bounds_of([0.1, 0.9], [9] * 2)[0] == 2**64 * Fraction(0.1) // (Fraction(0.1) + Fraction(0.9))
    assert bounds_of(list(np.array([1, 3])), [9] * 2) == bounds_of([0.25, 0.75], [9] * 2)
    assert bounds_of([10**400, 1], [9] * 2) == (2**64 - 1, 2**64)


def test_a_point_at_a_bound_belongs_to_the_next_component() -> None:
    point = key(3, 3)  # the point of position 0, with rounds of one offset
    for bound, component in ((point, 1), (point + 1, 0)):
        mixture = MixtureOrder([[9]] * 2, [bound, 2**64 - bound], seed=3, lanes=300)
        assert bounds_of([bound, 2**64 - bound], mixture.sizes) == (bound, 2**64)
        assert mixture.locate([0])[0].tolist() == [component]
        assert draws_before(mixture, [300])[0].argmax() == component


def test_a_component_without_weight_is_never_drawn() -> None:
    mixture = MixtureOrder([[], [50], [0], [60], []], [0, 1, 0, 1, 0], seed=3)
    assert set(mixture.locate(range(2000))[0].tolist()) == {1, 3}
    assert {place[0] for place in places(mixture, range(2000))} == {1, 3}


def test_a_single_component_keeps_its_own_order() -> None:
    mixture = MixtureOrder([[9000, 1000]], [3], seed=8, lanes=4, shuffle_block=64)
    for epoch in (0, 1):
        order = Order([9000, 1000], seed=key(8, 4, 0), epoch=epoch, lanes=4, shuffle_block=64)
        shards, samples = order.locate(range(10_000))
        run = range(epoch * 10_000, (epoch + 1) * 10_000)
        assert places(mixture, run) == [(0, *p) for p in zip(shards.tolist(), samples.tolist(), strict=True)]


def test_a_mixture_has_the_given_attributes() -> None:
    mixture = MixtureOrder([[30, 50], [40]], [1, 2], seed=6)
    assert (mixture.sizes, mixture.samples) == ((80, 40), 120)
    assert (mixture.seed, mixture.lanes) == (6, 1)
    assert mixture.shuffle_block == 64 * 40, "the default for all shards together"
    assert mixture.locate([])[0].tolist() == []
    assert places(pickle.loads(pickle.dumps(mixture)), range(500)) == places(mixture, range(500))


@pytest.mark.parametrize(
    ("counts", "weights", "message"),
    [
        ([[5], [0]], [1, 1], r"components\[1\] has a weight but no samples"),
        ([[5], []], [1, 0.5], r"components\[1\] has a weight but no samples"),
        ([[5], [5]], [1], "a weight for each component"),
        ([], [], "a component with a weight above 0"),
        ([[5]], [0], "a component with a weight above 0"),
        ([[5]], [-1], r"weights\[0\] must be finite and not negative"),
        ([[5]], [float("nan")], r"weights\[0\] must be finite"),
        ([[5]], [float("inf")], r"weights\[0\] must be finite"),
        ([[5]], ["1"], r"weights\[0\] must be a number"),
        ([[5]], [True], r"weights\[0\] must be a number"),
        ([[5]], [Decimal(1)], r"weights\[0\] must be a number"),
        ([[-5]], [1], r"components\[0\]\[0\] is out of range"),
    ],
)
def test_invalid_arguments_raise(counts: Any, weights: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        MixtureOrder(counts, weights)


def test_positions_out_of_range_are_refused() -> None:
    mixture = MixtureOrder([[5]], [1])
    with pytest.raises(UsageError, match="out of range"):
        mixture.locate([-1])


def test_a_run_with_a_thousand_phases_opens_in_seconds() -> None:
    random = np.random.default_rng(5)
    components = [[2**20] * 4] * 64
    starts = np.unique(random.integers(1, 10**9, 1000))
    phases = [(int(start), random.integers(0, 1000, 64).tolist()) for start in starts]
    begin = process_time()
    mixture = MixtureOrder(components, [1] * 64, seed=3, lanes=512, phases=phases)
    found = places(mixture, range(10**9 + 7, 10**9 + 1007))
    assert process_time() - begin < 5
    begin = process_time()
    more = mixture.with_phases([*mixture.phases, (10**9 + 500, [1] * 64)])  # which counts only what is new
    assert places(more, range(10**9 + 7, 10**9 + 507))[:493] == found[:493]
    assert process_time() - begin < 1


@pytest.mark.parametrize("lanes", [1, 3, 64, 300])
def test_counts_of_a_phase_continue_those_of_the_phases_before_it(lanes: int) -> None:
    """A phase that changes nothing, and 200 phases: far counts are the same as without them."""
    weights = [3, 0, 1, 2]
    plain = MixtureOrder([[50]] * 4, weights, seed=9, lanes=lanes)
    phases = [(start, weights) for start in np.random.default_rng(lanes).integers(1, 10**6, 200).cumsum().tolist()]
    many = MixtureOrder([[50]] * 4, weights, seed=9, lanes=lanes, phases=phases)
    for position in (0, 1, 10**6 + 5, phases[77][0], phases[130][0] + 1, phases[-1][0] + 10**9, phases[3][0] - 1):
        assert draws_before(many, [position]).tolist() == draws_before(plain, [position]).tolist()


def test_threads_may_count_the_draws_of_many_phases() -> None:
    phases = PhaseBounds([(start, (2**64,)) for start in range(5000)])
    counts = StartCounts(phases, lambda phase, start, stop: np.array([stop - start]), (1,))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(1) as pool:
            last = pool.submit(counts.of, 4999)
            while not last.done():
                assert counts.of(0).tolist() == [0]
            assert last.result().tolist() == [4999]
    finally:
        sys.setswitchinterval(interval)
