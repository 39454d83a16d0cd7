"""Mixtures: every component epoch by epoch in its own order, in the weights' proportion in every batch."""

from __future__ import annotations

import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from time import process_time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdsx.errors import UsageError
from mdsx.order import MixtureOrder, Order, bounds_of
from mdsx.order.draws import PhaseBounds, StartCounts, drawn_in, equal_before, exact_weight, successive
from mdsx.order.hashing import G, key
from mdsx.order.mixture import add_phase
from mdsx.order.needs import NEVER, active_shards
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


# --- removed components, phases, pickles ---------------------------------------------------------------------------


def removed() -> MixtureOrder:
    """A mixture whose second component was removed at 100."""
    return MixtureOrder([[300, 40], 50, [70]], [1, 1, 1], 5, 4, 64, phases=[(100, [1, 0, 1])])


def test_a_removed_component_still_counts_but_has_no_samples() -> None:
    whole = MixtureOrder([[300, 40], [50], [70]], [1, 1, 1], 5, 4, 64, phases=[(100, [1, 0, 1])])
    mixture, later = removed(), range(100, 900)
    assert places(mixture, later) == places(whole, later)
    assert (mixture.sizes, mixture.samples) == (whole.sizes, 460)
    assert [counts.tolist() for counts in mixture.counts] == [[300, 40], [], [70]]
    assert mixture.drawn(0, 400).tolist() == whole.drawn(0, 400).tolist()
    with pytest.raises(UsageError, match="a removed component"):
        mixture.locate(range(100))


def test_a_removed_component_has_no_shards() -> None:
    mixture = removed()
    assert mixture.next_needs(1, 0, np.arange(2)).tolist() == [NEVER, NEVER]
    found = mixture.in_lanes(np.ones(4, np.bool_))
    assert found.tolist() == [True, True, True], "of the other two"
    assert found.dtype == np.bool_
    expected = sum(
        active_shards(Order(counts, seed=key(5, 4, i), lanes=1, shuffle_block=64), sum(counts) // 2)
        for i, counts in ((0, [300, 40]), (2, [70]))
    )
    assert mixture.active_shards(4) == expected


def test_defaults_come_from_the_components_that_are_there() -> None:
    mixture = MixtureOrder([[2000] * 8, 10**9, [5]], [1, 1, 1])
    assert mixture.shuffle_block == 64 * -(-16_005 // 9)
    assert mixture.lanes == 8
    assert MixtureOrder([[2000] * 8, 10**9], [1, 1], run=12).lanes == 6
    assert MixtureOrder([7], [1]).lanes == 1
    assert (mixture.seed, mixture.run, mixture.phases) == (0, None, ((0, (1, 1, 1)),))


@pytest.mark.parametrize(
    ("name", "low", "most"),
    [("seed", 0, 2**64 - 1), ("lanes", 1, 2**20), ("shuffle_block", 1, 2**62), ("run", 1, 2**62)],
)
def test_an_argument_out_of_range_is_named(name: str, low: int, most: int) -> None:
    for value in (low - 1, most + 1, 1.5):
        options: dict[str, Any] = {"lanes": 1, name: value}
        with pytest.raises(UsageError, match=rf"^{name} "):
            MixtureOrder([[5]], [1], **options)
    if name != "lanes":  # which take memory
        limits: list[dict[str, Any]] = [{"lanes": 1, name: value} for value in (low, most)]
        assert [getattr(MixtureOrder([[5]], [1], **options), name) for options in limits] == [low, most]


def test_wrong_positions_components_and_phases_are_named() -> None:
    with pytest.raises(UsageError, match=r"^positions\[1\] .*0 to 4611686018427387903"):
        MixtureOrder([[5]], [1]).locate([0, 2**62])
    with pytest.raises(UsageError, match=r"^components\[1\] must be integers"):
        MixtureOrder([[5], [0.5]], [1, 1])
    with pytest.raises(UsageError, match=r"^components\[0\]\[1\] .*0 to 4611686018427387903"):
        MixtureOrder([[5, 2**62], [1]], [1, 1])
    with pytest.raises(UsageError, match=r"^the start of a phase .*0 to 4611686018427387904"):
        MixtureOrder([[5]], [1], phases=[(2**62 + 1, [1])])
    assert MixtureOrder([[5]], [1], phases=[(2**62, [1])]).last_change == 2**62


def test_a_mixture_has_at_most_4096_phases() -> None:
    phases = [(start, [1]) for start in range(1, 4096)]
    assert len(MixtureOrder([[5]], [1], phases=phases).phases) == 4096
    with pytest.raises(UsageError, match="too many phases"):
        MixtureOrder([[5]], [1], phases=[*phases, (4096, [1])])


def test_the_first_phase_starts_at_0() -> None:
    mixture = MixtureOrder([[5]], [1])
    with pytest.raises(UsageError, match="the first phase must start at 0"):
        mixture.with_phases([(1, [1])])


def test_an_added_phase_lasts_up_to_the_next_one() -> None:
    phases = ((0, (1,)), (5, (2,)), (9, (3,)))
    assert add_phase(phases, 7, (4,)) == ((0, (1,)), (5, (2,)), (7, (4,)), (9, (3,)))
    assert add_phase(phases, 5, (4,)) == ((0, (1,)), (5, (4,)), (9, (3,)))
    assert add_phase(phases, 10, (4,)) == (*phases, (10, (4,)))
    assert add_phase((), 0, (4,)) == ((0, (4,)),)


def test_the_last_change_is_where_the_last_phase_applies() -> None:
    phases = [(100, [1, 0]), (129, [0, 1])]
    assert MixtureOrder([[5], [6]], [1, 1], phases=phases).last_change == 129
    assert MixtureOrder([[5], [6]], [1, 1], lanes=4, phases=phases, run=64).last_change == 192
    assert MixtureOrder([[5], [6]], [1, 1], lanes=4, phases=[(128, [0, 1])], run=64).last_change == 128
    assert MixtureOrder([[5], [6]], [1, 1], run=64).last_change == 0


def test_what_a_mixture_computed_is_not_pickled() -> None:
    mixture = MixtureOrder([[5000, 300], [4200]], [1, 1], seed=2, lanes=4)
    size = len(pickle.dumps(mixture))
    shards, far = np.arange(2), 20_000
    mixture.locate(range(1000, 1256))
    for position in (3, 5000, far):
        mixture.next_needs(0, position, shards)
    other = pickle.loads(pickle.dumps(mixture))
    assert len(pickle.dumps(mixture)) == size
    assert other.next_needs(0, far, shards).tolist() == mixture.next_needs(0, far, shards).tolist()
    assert places(other, range(500)) == places(mixture, range(500))


def test_lanes_in_different_epochs_share_the_orders_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small component passes through its epochs fast; each is made once on the way."""
    made: list[int] = []
    at_epoch = Order.at_epoch

    def counted(order: Order, epoch: int) -> Order:
        made.append(epoch)
        return at_epoch(order, epoch)

    mixture = MixtureOrder([[40]], [1], seed=2, lanes=4)
    monkeypatch.setattr(Order, "at_epoch", counted)
    for start in range(0, 400, 10):
        mixture.locate(range(start, start + 80))
    assert made == list(range(1, 12))
    made.clear()
    for start in range(0, 400, 10):
        mixture.next_needs(0, start, np.arange(1))
    assert made == list(range(11))


# --- draws ---------------------------------------------------------------------------------------------------------


def test_later_draws_are_expected_by_the_share() -> None:
    mixture = MixtureOrder([[50], [60], [9]], [1, 3, 0], seed=1, lanes=4, phases=[(1000, [0, 1, 1]), (5000, [0, 0, 1])])
    expected, away = mixture._draws.expected, np.array([0, 1, 2, 7, NEVER])
    assert expected(0, 100, away).tolist() == [100, 104, 108, 128, NEVER]
    assert expected(0, 100, away).dtype == np.int64, "exact for far positions"
    assert expected(1, 100, away).tolist() == [100, 102, 103, 110, NEVER], "ceil of 4 / 3 positions for each"
    assert expected(2, 100, away).tolist() == [1000, 1002, 1004, 1014, NEVER], "from the phase that draws it"
    assert expected(0, 999, away[:2]).tolist() == [999, 1003]
    assert expected(0, 1000, away).tolist() == [NEVER] * 5, "no later phase draws it"
    assert expected(2, 6000, away[:2]).tolist() == [6000, 6001]
    assert mixture._draws.expected(0, 100, np.array([NEVER - 1])).tolist() == [NEVER], "without an overflow"


@given(st.lists(st.integers(0, 9)))
def test_equal_before_counts_equal_values(values: list[int]) -> None:
    expected = [values[:i].count(value) for i, value in enumerate(values)]
    assert equal_before(np.array(values, np.int64)).tolist() == expected


@given(st.lists(st.integers(0, 30), unique=True))
def test_stretches_are_of_successive_numbers(numbers: list[int]) -> None:
    stretches = [numbers[first:last] for first, last in successive(np.array(numbers, np.int64))]
    assert [number for stretch in stretches for number in stretch] == numbers
    assert all(stretch == list(range(stretch[0], stretch[0] + len(stretch))) for stretch in stretches)
    assert all(one[-1] + 1 != other[0] for one, other in pairwise(stretches))


@given(
    st.integers(0, 40),
    st.one_of(st.just(G), st.integers(0, 2**64 - 1)),
    st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=4),
    st.lists(st.integers(0, 2**64), max_size=4),
)
def test_points_are_counted_as_one_by_one(n: int, step: int, begins: list[int], inner: list[int]) -> None:
    bounds = (*sorted(inner), 2**64)
    found = drawn_in(n, step, np.array(begins, np.uint64), bounds)
    for begin, counts in zip(begins, found.tolist(), strict=True):
        points = [(begin + number * step) % 2**64 for number in range(n)]
        drawn = [next(i for i, bound in enumerate(bounds) if point < bound) for point in points]
        assert counts == [drawn.count(i) for i in range(len(bounds))]


def phase_bounds(*shares: tuple[int, int]) -> PhaseBounds:
    """Return phases (start, quarters of the circle for the first of two components)."""
    return PhaseBounds([(start, (quarters << 62, 2**64)) for start, quarters in shares])


def test_common_leading_phases_have_the_same_draws() -> None:
    mine = phase_bounds((0, 1), (10, 2), (20, 3))
    assert mine.same_start(mine) == 3
    assert mine.same_start(phase_bounds((0, 1), (10, 2))) == 2
    assert mine.same_start(phase_bounds((0, 1), (10, 2), (20, 1))) == 3, "the same up to the start at 20"
    assert mine.same_start(phase_bounds((0, 1), (10, 2), (30, 3))) == 2
    assert mine.same_start(phase_bounds((0, 1), (10, 1), (20, 3))) == 2
    assert mine.same_start(phase_bounds((0, 2))) == 1


def test_the_next_share_is_that_of_the_first_phase_that_draws_the_component() -> None:
    phases = phase_bounds((0, 1), (10, 0), (20, 3))
    assert phases.next_share(0, 5) == (5, 0.25, (1 << 62, 2**64))
    assert phases.next_share(0, 10) == phases.next_share(0, 19) == (20, 0.75, (3 << 62, 2**64))
    assert phases.next_share(1, 12) == (12, 1.0, (0, 2**64))
    assert phase_bounds((0, 0)).next_share(0, 7) is None
    assert [phases.phase(place) for place in (0, 9, 10, 19, 20, 99)] == [0, 0, 1, 1, 2, 2]


def test_counts_of_common_leading_phases_are_reused() -> None:
    asked: list[tuple[int, int, int]] = []

    def between(phase: int, start: int, stop: int) -> Any:
        asked.append((phase, start, stop))
        return np.array([stop - start])

    shares = [(10 * number, number % 4) for number in range(200)]
    counts = StartCounts(phase_bounds(*shares), between, (1,))
    assert counts.of(150).tolist() == [1500]
    assert asked == [(number, 10 * number, 10 * number + 10) for number in range(150)]
    asked.clear()
    assert [counts.of(phase).tolist() for phase in (0, 64, 128, 150)] == [[0], [640], [1280], [1500]]
    assert asked == [], "every 64th phase, and the last ones"
    assert counts.of(152).tolist() == [1520]
    assert [phase for phase, _, _ in asked] == [150, 151]
    asked.clear()
    assert counts.of(70).tolist() == [700]
    assert [phase for phase, _, _ in asked] == list(range(64, 70))
    asked.clear()
    changed = StartCounts(phase_bounds(*shares[:130], (5000, 1)), between, (1,), counts)
    assert changed.of(130).tolist() == [5000]
    assert asked == [(128, 1280, 1290), (129, 1290, 5000)]
    later = StartCounts(phase_bounds(*shares[:64], (5000, 1)), between, (1,), counts)
    assert later.of(64).tolist() == [5000], "phase 64 begins elsewhere"


def test_few_counts_are_kept() -> None:
    counts = StartCounts(phase_bounds(*((n, n % 4) for n in range(400))), lambda _, a, b: np.array([b - a]), (1,))
    assert [counts.of(phase).tolist() for phase in range(400)] == [[n] for n in range(400)]
    assert len(counts._known) <= 400 // 64 + 3


def test_rounds_of_two_positions_of_each_lane_equal_the_naive_implementation() -> None:
    options: dict[str, Any] = {
        "components": [[30], [40]], "weights": [1, 2], "seed": 3, "lanes": 100, "shuffle_block": 10,
    }  # fmt: skip
    assert places(MixtureOrder(**options), range(600)) == reference.Mixture(**options).positions(600)


@pytest.mark.parametrize("lanes", [1, 3, 64, 300])
def test_counts_by_floor_sums_are_those_one_by_one(lanes: int) -> None:
    """From any place to any other, within a round and over several."""
    mixture = MixtureOrder([[50]] * 3, [3, 0.7, 1], seed=9, lanes=lanes)
    size = mixture._draws.round_size  # type: ignore[union-attr]
    assert size == lanes * max(1, 256 // lanes)
    places = sorted({0, 1, lanes, size - 1, size, size + 1, 2 * size, 2 * size + 7, 3 * size - 1, 4 * size})
    drawn = mixture.locate(range(4 * size))[0]
    for start in places:
        for stop in (place for place in places if place >= start):
            lane = np.arange(start, stop) % lanes
            expected = np.zeros((lanes, 3), np.int64)
            np.add.at(expected, (lane, drawn[start:stop]), 1)
            assert np.array_equal(mixture._draws._between(0, start, stop), expected)
            assert mixture.drawn(start, stop).tolist() == expected.sum(axis=0).tolist()


def test_exact_weights_have_limits() -> None:
    largest = 2**2048 - 1
    assert exact_weight(largest, "w") == largest
    assert exact_weight(Fraction(1, largest), "w") == Fraction(1, largest)
    assert exact_weight(0.1, "w") == Fraction(0.1)
    assert exact_weight(np.float32(0.1), "w") == Fraction(float(np.float32(0.1)))
    assert exact_weight(0, "w") == 0
    for weight in (2**2048, Fraction(1, 2**2048)):
        with pytest.raises(UsageError, match=r"^w has too many digits"):
            exact_weight(weight, "w")
    for wrong, says in ((True, "a number"), (None, "a number"), (-1, "not negative"), (float("inf"), "finite")):
        with pytest.raises(UsageError, match=rf"^w must be .*{says}"):
            exact_weight(wrong, "w")
