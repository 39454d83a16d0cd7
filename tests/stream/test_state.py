"""A state resumes only its own order. For another order, the error names the field that differs."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from fractions import Fraction
from typing import Any

import pytest

from mdsx import StateError
from mdsx.order import MAX_PHASES
from mdsx.stream import OrderIdentity, WorkerShare

IDENTITY = OrderIdentity(
    order_version=1,
    seed=7,
    lanes=8,
    shuffle_block=64,
    shuffle=True,
    fingerprint="ab" * 16,
    epoch_samples=100,
    samples=100,
)
PHASES = ((0, (0.7, Fraction(1, 3))), (150, (1, 1)))
MIXTURE = replace(IDENTITY, samples=300, phases=PHASES, schedule=PHASES)


def test_a_state_is_a_few_numbers_that_survive_json() -> None:
    state = IDENTITY.state(epoch=2, position=96)
    assert IDENTITY.check(json.loads(json.dumps(state))) == (2, 96, ())


CHANGES: list[tuple[str, Any]] = [
    ("order_version", 2),
    ("seed", "8"),
    ("lanes", 4),
    ("shuffle_block", 65),
    ("shuffle", False),
    ("fingerprint", "cd" * 16),
    ("epoch_samples", 99),
]


@pytest.mark.parametrize(("field", "value"), CHANGES)
def test_another_order_raises_naming_the_field(field: str, value: object) -> None:
    state = {**IDENTITY.state(2, 96), field: value}
    with pytest.raises(StateError, match=field) as caught:
        IDENTITY.check(state)
    assert caught.value.place == field


def test_another_dataset_is_named_before_its_defaults() -> None:
    state = {**IDENTITY.state(2, 96), "shuffle_block": 65, "fingerprint": "cd" * 16}
    with pytest.raises(StateError, match="belongs to another dataset"):
        IDENTITY.check(state)


def test_every_field_is_checked() -> None:
    of_others = {
        "samples",
        "phases",
        "schedule",
        "run",
        "components",
        "changed",
        "held",
    }  # the fingerprint's, and below
    assert {field for field, _ in CHANGES} == set(asdict(IDENTITY)) - of_others
    for field in IDENTITY.state(2, 96):
        state = IDENTITY.state(2, 96)
        del state[field]
        with pytest.raises(StateError, match=field):
            IDENTITY.check(state)


def test_at_an_epochs_start_lanes_and_block_may_change() -> None:
    state = {**IDENTITY.state(3, 0), "lanes": 4, "shuffle_block": 9}
    assert IDENTITY.check(state) == (3, 0, ())
    with pytest.raises(StateError, match="seed"):
        IDENTITY.check({**state, "seed": 8})


@pytest.mark.parametrize(
    ("changes", "argument"),
    [
        ({"seed": f"{2**64 - 1}"}, f"seed={2**64 - 1}"),
        ({"seed": "1" * 21}, "seed='" + "1" * 21 + "'"),  # no seed
        ({"lanes": 4}, f"shuffle=mdsx.Shuffle(lanes=4, shuffle_block={IDENTITY.shuffle_block})"),
        ({"lanes": 1, "shuffle": False}, "shuffle=False"),
        ({"epoch_samples": 90}, "epoch_samples=90"),
    ],
)
def test_the_way_out_is_the_argument_to_give(changes: dict[str, Any], argument: str) -> None:
    with pytest.raises(StateError, match=re.escape(f"construct the dataset with {argument} to resume")):
        IDENTITY.check({**IDENTITY.state(2, 96), **changes})


@pytest.mark.parametrize("position", [-1, 101, 1.5, "3", None, True])
def test_a_position_is_a_place_in_the_epoch(position: object) -> None:
    with pytest.raises(StateError, match="position"):
        IDENTITY.check({**IDENTITY.state(0, 0), "position": position})


def test_values_that_are_no_state_raise() -> None:
    with pytest.raises(StateError, match="state_dict"):
        IDENTITY.check([1, 2])  # type: ignore[arg-type]  # a user's mistake


def test_continuous_epochs_fix_lanes_after_the_start() -> None:
    identity = replace(IDENTITY, epoch_samples=64)
    assert identity.check({**identity.state(0, 0), "lanes": 4}) == (0, 0, ())
    with pytest.raises(StateError, match="lanes"):
        identity.check({**identity.state(3, 0), "lanes": 4})


def test_a_state_carries_the_phases_that_have_started_exactly() -> None:
    before, after = (json.loads(json.dumps(MIXTURE.state(1, position))) for position in (49, 50))
    assert before["phases"] == [[0, [0.7, "1/3"]]]
    assert after["phases"] == [[0, [0.7, "1/3"]], [150, [1, 1]]]
    plain = replace(MIXTURE, phases=PHASES[:1], schedule=PHASES[:1])  # the weights changed during the run
    assert plain.check(after) == (1, 50, PHASES)
    assert plain.check(before) == (1, 49, PHASES[:1])


def test_the_rest_of_the_schedule_follows_a_states_phases() -> None:
    assert MIXTURE.check(MIXTURE.state(1, 20)) == (1, 20, PHASES)
    changed = replace(MIXTURE, phases=(PHASES[0], (120, (5, 1)), PHASES[1]))
    assert MIXTURE.check(changed.state(1, 20)) == (1, 20, changed.phases)
    instead = (PHASES[0], (150, (5, 1)))  # the weights changed where an entry of the schedule begins
    assert MIXTURE.check(replace(MIXTURE, phases=instead).state(1, 50)) == (1, 50, instead)


def test_changes_after_the_state_are_forgotten() -> None:
    changed = replace(MIXTURE, phases=(PHASES[0], (120, (5, 1)), PHASES[1]))
    assert changed.check(MIXTURE.state(1, 10)) == (1, 10, PHASES)


def test_the_run_of_a_mixture_is_in_its_state() -> None:
    in_runs = replace(MIXTURE, run=64)
    state = json.loads(json.dumps(in_runs.state(1, 60)))
    assert state["run"] == 64
    assert in_runs.check(state) == (1, 60, PHASES)
    assert "run" not in MIXTURE.state(1, 60)
    for identity, other in (
        (MIXTURE, state),
        (in_runs, MIXTURE.state(1, 60)),
        (IDENTITY, {**IDENTITY.state(2, 9), "run": 8}),
    ):
        with pytest.raises(StateError, match="run=") as caught:
            identity.check(other)
        assert caught.value.place == "run"
    for value in (8, "64", 64.0, True, None):
        with pytest.raises(StateError, match="run="):
            in_runs.check({**state, "run": value})


def test_weights_count_by_their_proportions() -> None:
    state = MIXTURE.state(1, 60)
    state["phases"][0] = [0, [1.4, "2/3"]]
    assert MIXTURE.check(state)[2][0] == (0, (1.4, Fraction(2, 3)))


@pytest.mark.parametrize(
    "phases",
    [
        None,
        [],
        [[0, [0.7, 0.3]]],
        [[0, [0.7, "1/3"]]],  # an entry of the schedule was not in force, so other samples were read
        [[0, [0.7, "1/3"]], [151, [1, 1]]],
        [[0, [0.7, "1/3"]], [150, [1]]],
        [[0, [0.7, "1/3"]], [150, ["1/0", 1]]],
        [[0, [0.7, "1/3"]], [150, [0, 0]]],
        [[0, [0.7, "1/3"]], [150, [True, 1]]],
        [[150, [1, 1]], [0, [0.7, "1/3"]]],
        [[0, [0.7, "1/3"]], ["150", [1, 1]]],
        "[[0, [0.7]]]",
    ],
)
def test_other_phases_are_refused(phases: object) -> None:
    with pytest.raises(StateError, match="mixture") as caught:
        MIXTURE.check({**MIXTURE.state(1, 60), "phases": phases})
    assert caught.value.place == "phases"


def test_too_many_phases_raise_immediately() -> None:
    phases = [[start, [1, 1]] for start in range(MAX_PHASES + 1)]
    with pytest.raises(StateError, match="phases"):
        MIXTURE.check({**MIXTURE.state(1000, 60), "phases": phases})


def test_a_phase_that_has_not_started_is_refused() -> None:
    with pytest.raises(StateError, match="phases"):
        MIXTURE.check({**MIXTURE.state(0, 60), "phases": [[0, [0.7, "1/3"]], [61, [1, 1]]]})


@pytest.mark.parametrize("extra", ["Phases", "Epoch", "", 7, None, (1, 2)])
def test_an_unknown_field_is_refused(extra: object) -> None:
    with pytest.raises(StateError, match="unknown field"):
        IDENTITY.check({**IDENTITY.state(2, 96), extra: 1})  # type: ignore[dict-item]  # a user's mistake


@pytest.mark.parametrize("value", [True, 8.0, float("nan"), None, "8", [8], 0, -1, 2**63, 10**30])
@pytest.mark.parametrize("field", ["lanes", "shuffle_block", "seed", "epoch_samples", "order_version", "fingerprint"])
def test_a_value_of_another_type_raises(field: str, value: object) -> None:
    with pytest.raises(StateError, match=field):
        IDENTITY.check({**IDENTITY.state(0, 0), field: value})


@pytest.mark.parametrize("epoch", [-1, True, 1.0, 2**62 // 100, 10**30])
def test_an_epoch_beyond_all_positions_is_refused_in_a_state(epoch: object) -> None:
    with pytest.raises(StateError, match="epoch"):
        IDENTITY.check({**IDENTITY.state(0, 0), "epoch": epoch})


def test_the_last_epoch_is_the_last_one_below_2_62() -> None:
    last = 2**62 // IDENTITY.epoch_samples - 1
    assert IDENTITY.check(IDENTITY.state(last, IDENTITY.epoch_samples))[:2] == (last, IDENTITY.epoch_samples)
    with pytest.raises(StateError, match=f"too large.*expected at most {last}"):
        IDENTITY.check(IDENTITY.state(last + 1, 0))


# --- the share of a worker

SHARE = WorkerShare(id=1, count=3, origin=20, global_batch=8)


@pytest.mark.parametrize("position", [20, 36, 60, 84])  # nothing yet, and after its batches number 1, 4 and 7
def test_the_share_of_a_worker_survives_json(position: int) -> None:
    state = {**IDENTITY.state(2, position), "worker": SHARE.state(position)}
    assert IDENTITY.check(json.loads(json.dumps(state)), (1, 3)) == (2, position, ())
    assert WorkerShare.parse(state["worker"], position) == SHARE


def test_a_share_saved_at_an_epochs_start_begins_there() -> None:
    assert WorkerShare.parse(SHARE.state(0), 0) == replace(SHARE, origin=0)


@pytest.mark.parametrize("worker", [(0, 1), (0, 3), (1, 2), (1, 4)])
def test_the_share_of_another_worker_is_refused(worker: tuple[int, int]) -> None:
    state = {**IDENTITY.state(2, 36), "worker": SHARE.state(36)}
    with pytest.raises(StateError, match="as many workers") as caught:
        IDENTITY.check(state, worker)
    assert caught.value.place == "worker"


@pytest.mark.parametrize(
    "worker",
    [
        None,
        3,
        [[1]],
        {},
        {"id": 1, "count": 3, "origin": 20},
        {**asdict(SHARE), "more": 1},
        *({**asdict(SHARE), "id": value} for value in (-1, 3, True, "1", 1.0, 0, 2)),
        *({**asdict(SHARE), "count": value} for value in (0, 1, True, None, -3)),
        *({**asdict(SHARE), "origin": value} for value in (-(10**15), -4, 19, 21, 37, 10**30, "x", None, float("nan"))),
        *({**asdict(SHARE), "global_batch": value} for value in (0, -8, 7, 10**30, 8.0, None)),
    ],
)
def test_impossible_worker_shares_raise(worker: object) -> None:
    with pytest.raises(StateError, match="worker"):
        IDENTITY.check({**IDENTITY.state(2, 36), "worker": worker}, (1, 3))
