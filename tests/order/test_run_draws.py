"""Mixtures in runs: R successive positions draw one component, and every position can be computed by itself."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mdsx.errors import UsageError
from mdsx.order import MixtureCourse, MixtureOrder, Tick
from mdsx.order.hashing import G, key
from mdsx.order.multiples import MODULUS
from mdsx.order.needs import NEVER
from mdsx.order.run_draws import RunDraws, check_whole_runs, first_within
from tests.order import reference
from tests.order.positions import draws_before, places
from tests.order.strategies import mixtures
from tests.vectors import mixtures as vectors

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "groups-v1.json").read_text(encoding="utf-8")
)["runs"]
MIXTURES = Path(__file__).parents[1] / "vectors" / "mixtures-v1.json"


@st.composite
def in_runs(draw: st.DrawFn) -> dict[str, Any]:
    """A mixture in runs, with phases."""
    options = draw(mixtures())
    sizes = [sum(component) for component in options["components"]]
    phases = []
    for start in sorted(draw(st.sets(st.integers(1, 690), max_size=4))):
        weights = [draw(st.integers(0, 3)) if size else 0 for size in sizes]
        phases.append((start, weights if any(weights) else [int(size > 0) for size in sizes]))
    return {**options, "phases": phases, "run": options["lanes"] * draw(st.integers(1, 20))}


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: f"{vector['weights']}, R={vector['run']}")
def test_runs_follow_the_vectors(vector: dict[str, Any]) -> None:
    weights, positions, lanes = vector["weights"], vector["positions"], vector["lanes"]
    mixture = MixtureOrder([[9]] * len(weights), weights, int(vector["seed"]), lanes, run=vector["run"])
    assert mixture.locate(positions)[0].tolist() == vector["value"]
    assert draws_before(mixture, positions).tolist() == vector["drawn_before_in_lane"]
    assert [mixture._draws.before(p).sum(axis=0).tolist() for p in positions] == vector["drawn_before"]


@given(in_runs(), st.data())
@settings(max_examples=10)
def test_runs_equal_the_naive_implementation(options: dict[str, Any], data: st.DataObject) -> None:
    expected = reference.Mixture(**options).positions(700)
    mixture = MixtureOrder(**options)
    assert places(mixture, range(700)) == expected
    some = data.draw(st.lists(st.integers(0, 699), max_size=20))
    assert places(MixtureOrder(**options), some) == [expected[p] for p in some]
    drawn = [component for component, _, _ in expected]
    for p, counts in zip(some, draws_before(mixture, some).tolist(), strict=True):
        before = drawn[p % mixture.lanes : p : mixture.lanes]
        assert counts == [before.count(i) for i in range(len(options["components"]))]
    for start in range(0, 700, options["run"]):
        assert len(set(drawn[start : start + options["run"]])) == 1


@pytest.mark.parametrize("lanes", [1, 2])
def test_large_components_are_read_lane_by_lane_in_runs(lanes: int) -> None:
    options: dict[str, Any] = {
        "components": [[1024 * lanes - 500, 501], [1024 * lanes - 1], [3]],  # just large, just small, tiny
        "weights": [2, 0.5, 0.25],
        "seed": 5,
        "lanes": lanes,
        "shuffle_block": 100,
        "phases": [(2001, [1, 4, 0])],
        "run": 64,
    }
    assert places(MixtureOrder(**options), range(5000)) == reference.Mixture(**options).positions(5000)


def test_a_phase_begins_with_the_next_run() -> None:
    def drawn(phases: Any) -> Any:
        return MixtureOrder([[50], [60]], [1, 0], lanes=4, phases=phases, run=64).locate(range(640))[0].tolist()

    for start in (129, 160, 192):
        assert drawn([(start, [0, 1])]) == [0] * 192 + [1] * 448
    assert drawn([(130, [1, 1]), (150, [0, 1])]) == [0] * 192 + [1] * 448  # no run starts in the first one
    assert drawn([(128, [0, 1]), (129, [1, 0])]) == [0] * 128 + [1] * 64 + [0] * 448


def test_the_shares_of_runs_match_the_weights_at_any_distance() -> None:
    mixture = MixtureOrder([[10**6]] * 3, [0.7, 0.2, 0.1], seed=11, run=512)
    for position in (512 * 1000, 512 * 10**9):
        drawn = mixture._draws.before(position).sum(axis=0)
        assert drawn.sum() == position
        assert np.abs(drawn / 512 - np.array([0.7, 0.2, 0.1]) * position / 512).max() < 4  # runs
        assert drawn.dtype == np.int64
    far = np.arange(10**15, 10**15 + 512 * 300)
    difference = mixture._draws.before(10**15 + 512 * 300) - mixture._draws.before(10**15)
    assert difference.sum(axis=0).tolist() == np.bincount(mixture.locate(far)[0], minlength=3).tolist()


RARE: dict[str, Any] = {"components": [[1], [1]], "weights": [1, Fraction(1, 2**63 - 1)], "lanes": 1, "run": 1}


@given(in_runs(), st.integers(0, 3000))
@example(RARE, 0)  # the next draw is after all positions
@settings(max_examples=10, deadline=None)
def test_a_mixture_in_runs_needs_the_shards_it_reads(options: dict[str, Any], position: int) -> None:
    order = MixtureOrder(**options)
    course = MixtureCourse(order, np.cumsum([0, *map(len, options["components"])]), 10 * options["run"])
    shards, _ = course.locate(np.arange(position, position + 20))
    for place, shard in enumerate(shards.tolist(), position):
        assert course.next_needs(Tick(place), np.array([shard])) == place
    needs = course.next_needs(Tick(position))
    assert (needs >= position).all()
    drawn = order.locate(np.arange(position, position + 3000))[0]
    for component in range(len(options["components"])):
        found = np.flatnonzero(drawn == component)
        expected = order._draws.expected(component, position, np.array([0]))[0]
        assert expected == position + found[0] if len(found) else expected >= position + 3000


def test_later_runs_are_expected_by_the_weights() -> None:
    order = MixtureOrder([[10**5]] * 2, [9, 1], seed=2, lanes=4, run=1000)
    drawn = np.flatnonzero(order.locate(np.arange(300_000))[0] == 1)
    away = np.arange(0, len(drawn), 500)
    expected = order._draws.expected(1, 0, away)
    assert np.abs(expected - drawn[away]).max() <= 10_000  # of runs that are 10,000 apart
    assert order._draws.expected(1, 0, np.array([NEVER])).tolist() == [NEVER]


def test_a_draw_after_all_positions_is_never_expected() -> None:
    """Whatever floats make of the distance."""
    for run in range(1, 200):
        draws = RunDraws([(0, (MODULUS,))], seed=1, lanes=1, run=run)
        assert draws.expected(0, 0, np.array([NEVER - 1, NEVER]))[1] == NEVER


def test_the_next_run_of_a_component_with_a_single_point_is_known() -> None:
    """A component has the points from its lower bound up to its upper bound, without that."""
    point = (5 * G + key(7, 3)) % MODULUS  # of run 5
    one, none = (point, point + 1, MODULUS), (point, point, MODULUS)
    here = np.array([0])
    assert RunDraws([(0, one)], seed=7, lanes=1, run=10).expected(1, 0, here).tolist() == [50]
    assert RunDraws([(0, one), (51, none)], seed=7, lanes=1, run=10).expected(1, 0, here).tolist() == [50]
    assert RunDraws([(0, one), (50, none)], seed=7, lanes=1, run=10).expected(1, 0, here).tolist() == [NEVER]

    inverse = pow(G, -1, MODULUS)
    seed, run = next((s, k) for s in range(1000) if (k := -key(s, 3) * inverse % MODULUS) < 2**60)  # its point is 0
    assert RunDraws([(0, (1, MODULUS))], seed=seed, lanes=1, run=1).expected(0, 0, here).tolist() == [run]


@given(st.integers(1, 300), st.integers(1, 300), st.integers(0, 299), st.integers(0, 299))
def test_first_within_is_the_first_multiple_in_range(step: int, modulus: int, low: int, high: int) -> None:
    low, high, step = low % modulus, high % modulus, step % modulus
    if math.gcd(step, modulus) == 1:
        multiples = [k * step % modulus for k in range(modulus)]
        inside = [low <= x <= high if low <= high else x >= low or x <= high for x in multiples]
        if inside.index(True) == 0 or low <= high:
            assert first_within(step, modulus, low, high) == inside.index(True)


@pytest.mark.parametrize(("run", "says"), [(0, "out of range"), (100, "run=104"), (True, "integer"), (8.0, "integer")])
def test_an_impossible_run_is_refused(run: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        MixtureOrder([[5], [6]], [1, 1], lanes=8, run=run)


@pytest.mark.parametrize(("run", "lanes"), [(64, 64), (8, 8), (96, 48), (100, 50), (67, 1), (10**6, 64)])
def test_lanes_that_are_not_given_divide_the_run(run: int, lanes: int) -> None:
    assert MixtureOrder([[2000] * 70, [6]], [1, 1], run=run).lanes == lanes


def test_an_epoch_has_whole_runs() -> None:
    order, firsts = MixtureOrder([[100], [77]], [1, 1], run=64), np.array([0, 1, 2])
    assert MixtureCourse(order, firsts).epoch_samples == 128
    assert MixtureCourse(order, firsts, 640).epoch_samples == 640
    with pytest.raises(UsageError, match=r"whole runs.*epoch_samples=192"):
        MixtureCourse(order, firsts, 177)
    with pytest.raises(UsageError, match=r"whole runs.*epoch_samples=256"):
        MixtureCourse(MixtureOrder([[100], [77]], [1, 1], run=256), firsts)


@pytest.mark.parametrize("vector", json.loads(MIXTURES.read_text())["runs"], ids=lambda vector: f"R={vector['run']}")
def test_mixtures_in_runs_follow_the_vectors(vector: dict[str, Any]) -> None:
    (_, weights), *later = vector["phases"]
    options = {name: vector[name] for name in ("lanes", "shuffle_block", "run")}
    mixture = MixtureOrder(vector["counts"], weights, int(vector["seed"]), phases=later, **options)
    assert np.stack(mixture.locate(vector["positions"]), axis=1).tolist() == vector["value"]


def test_the_vectors_of_mixtures_follow_the_specification() -> None:
    assert vectors.text() == MIXTURES.read_text()


def test_first_within_may_be_in_a_range_that_contains_0() -> None:
    assert first_within(5, 17, 16, 1) == first_within(5, 17, 0, 3) == first_within(5, 17, 9, 8) == 0
    assert first_within(5, 17, 5, 5) == first_within(5, 17, 4, 6) == 1
    assert first_within(5, 17, 16, 16) == 10  # 50 = 2 * 17 + 16


LATER: dict[str, Any] = {"phases": [(45, [1, 2]), (47, [2, 1]), (201, [0, 1])], "lanes": 2, "run": 10}  # within runs


@given(in_runs(), st.integers(0, 2000))
@example({"components": [[20], [30]], "weights": [1, 1], "seed": 3, **LATER}, 333)
@settings(max_examples=10)
def test_runs_count_what_they_draw(options: dict[str, Any], position: int) -> None:
    mixture, many = MixtureOrder(**options), len(options["components"])
    drawn, lane = mixture.locate(range(position))[0], np.arange(position) % mixture.lanes
    expected = np.zeros((mixture.lanes, many), np.int64)
    np.add.at(expected, (lane, drawn), 1)
    assert np.array_equal(MixtureOrder(**options)._draws.before(position), expected)


def test_needs_in_runs_are_exact_in_this_run_and_the_next_of_the_component() -> None:
    mixture = MixtureOrder([[50], [60], [7]], [2, 1, 1], seed=3, lanes=2, phases=[(90, [1, 1, 0])], run=10)
    drawn = mixture.locate(range(2000))[0]
    for position in range(0, 200, 3):
        for component in range(3):
            later = position + np.flatnonzero(drawn[position:] == component)
            run = position // 10 * 10
            left = int((later < run + 10).sum())  # of the current run
            sure = min(left + 10, len(later))
            expected = mixture._draws.expected(component, position, np.arange(sure))
            assert expected.tolist() == later[:sure].tolist()
            assert mixture._draws.expected(component, position, np.array([NEVER])).tolist() == [NEVER]
            if not len(later):
                assert mixture._draws.expected(component, position, np.array([0, 9])).tolist() == [NEVER] * 2


def test_runs_beyond_the_next_are_expected_by_the_share() -> None:
    mixture = MixtureOrder([[50], [60]], [3, 1], seed=3, lanes=2, run=10)
    drawn = mixture.locate(range(1000))[0]
    for position in (0, 5, 20, 34):
        for component, share in enumerate((0.75, 0.25)):
            left = 10 - position % 10 if drawn[position] == component else 0
            run = position // 10 * 10 + 10
            following = run + int(np.flatnonzero(drawn[run:] == component)[0])
            away = left + 10 * np.arange(5) + 3
            expected = [following + math.ceil(number / share) * 10 + 3 for number in range(5)]
            assert mixture._draws.expected(component, position, away).tolist() == expected


def test_far_needs_of_runs_do_not_overflow() -> None:
    draws = MixtureOrder([[1], [1]], [1, Fraction(1, 2**63 - 1)], lanes=1, run=4)._draws
    assert draws.expected(1, 2**61, np.array([0, 9, NEVER - 1, NEVER])).tolist() == [NEVER] * 4
    assert draws.expected(0, 8, np.array([NEVER - 1])).tolist() == [NEVER]
    far, only = 2**60 + 3, MixtureOrder([[50]], [1], lanes=2, run=10)._draws
    assert only.expected(0, far, np.array([0, 5, 25])).tolist() == [far, far + 5, far + 25], "and are exact"


@pytest.mark.parametrize(("samples", "hint"), [(0, 64), (1, 64), (65, 128), (127, 128), (129, 192)])
def test_an_epoch_without_whole_runs_is_refused_with_a_way_out(samples: int, hint: int) -> None:
    with pytest.raises(UsageError, match=rf"epoch_samples={hint}, or"):
        check_whole_runs(samples, 64)
    check_whole_runs(hint, 64)


def test_runs_reuse_the_counts_of_common_phases() -> None:
    """With other phases, counts are those of a new mixture."""
    options: dict[str, Any] = {"seed": 3, "lanes": 4, "run": 8}
    phases = [(start, [1, start % 3]) for start in range(40, 800, 40)]
    mixture = MixtureOrder([[500], [600]], [1, 2], phases=phases, **options)
    mixture.locate([2000])
    for other in (phases[:9], [*phases[:7], (500, [5, 1])], [(41, [3, 1])]):
        fresh = MixtureOrder([[500], [600]], [1, 2], phases=other, **options)
        again = mixture.with_phases([(0, [1, 2]), *other])
        assert places(again, range(900, 1100)) == places(fresh, range(900, 1100))
