"""A state resumes only the order that it is of, and says which field differs."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from mdsx import StateError
from mdsx.stream import OrderIdentity

IDENTITY = OrderIdentity(order_version=1, seed=7, lanes=8, shuffle_block=64, shuffle=True, fingerprint="ab" * 16)


def test_a_state_is_a_few_numbers_that_survive_json() -> None:
    state = IDENTITY.state(epoch=2, position=96)
    assert IDENTITY.check(json.loads(json.dumps(state)), samples=100) == (2, 96)


CHANGES: list[tuple[str, Any]] = [
    ("order_version", 2),
    ("seed", 8),
    ("lanes", 4),
    ("shuffle_block", 65),
    ("shuffle", False),
    ("fingerprint", "cd" * 16),
]


@pytest.mark.parametrize(("field", "value"), CHANGES)
def test_another_order_is_refused_by_the_name_of_the_field(field: str, value: object) -> None:
    state = {**IDENTITY.state(2, 96), field: value}
    with pytest.raises(StateError, match=field) as caught:
        IDENTITY.check(state, samples=100)
    assert caught.value.place == field


def test_every_field_is_checked() -> None:
    assert {field for field, _ in CHANGES} == set(asdict(IDENTITY))
    for field in IDENTITY.state(2, 96):
        state = IDENTITY.state(2, 96)
        del state[field]
        with pytest.raises(StateError, match=field):
            IDENTITY.check(state, samples=100)


def test_at_an_epochs_start_lanes_and_block_may_change() -> None:
    state = {**IDENTITY.state(3, 0), "lanes": 4, "shuffle_block": 9}
    assert IDENTITY.check(state, samples=100) == (3, 0)
    with pytest.raises(StateError, match="seed"):
        IDENTITY.check({**state, "seed": 8}, samples=100)


@pytest.mark.parametrize("position", [-1, 101, 1.5, "3", None, True])
def test_a_position_is_a_place_in_the_epoch(position: object) -> None:
    with pytest.raises(StateError, match="position"):
        IDENTITY.check({**IDENTITY.state(0, 0), "position": position}, samples=100)


def test_what_is_no_state_is_refused() -> None:
    with pytest.raises(StateError, match="state_dict"):
        IDENTITY.check([1, 2], samples=100)  # type: ignore[arg-type]  # a user's mistake
