"""The phases of a mixture in a run's state: its proportions, with the ticks from which on they apply."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from mdsx.errors import StateError, UsageError, shown
from mdsx.order import MAX_PHASES, Phases, Weight, exact_weight

_FRACTION = re.compile(r"[0-9]{1,700}(/[1-9][0-9]{0,699})?")
REWEIGHT = (
    "construct the mixture with the proportions, or the schedule, that the run began with, resume, and change the "
    "proportions from there on by reweight()"
)


def fields_of(phases: Phases, declared: Sequence[Weight], reached: int) -> dict[str, Any]:
    """Return the fields of a state: the phases that begin up to the tick `reached`. `declared`: the proportions that
    the mixture was made with."""
    fields: dict[str, Any] = {"phases": [[start, in_json(weights)] for start, weights in phases if start <= reached]}
    if _shares(declared) != _shares(phases[0][1]):  # reweighted before the first sample
        fields["proportions"] = in_json(declared)
    return fields


def merged(
    state: Mapping[str, Any], schedule: Phases, declared: Sequence[Weight], now: int, changed: bool = False
) -> Phases:
    """Return the state's phases that had begun by the tick `now`, then those of the schedule that begin later.

    `changed`: the run's components were changed, so that only the present proportions are compared.
    """
    past = phases_of(state, len(declared), now)
    if changed:
        return past + _later(past, schedule, now)
    began = phases_of({"phases": [[0, state["proportions"]]]}, len(declared), 0) if "proportions" in state else past
    if _shares(declared) not in (_shares(past[0][1]), _shares(began[0][1])):
        raise StateError(
            "the state's mixture had other proportions",
            place="phases",
            found=[[begin, in_json(there)] for begin, there in past],
            expected=f"{in_json(declared)} from position 0 on",
            hint=REWEIGHT,
        )
    begun = {start for start, _ in past}
    if missing := [start for start, _ in schedule if start <= now and start not in begun]:
        raise StateError(
            "the state lacks a phase of the mixture's schedule",
            place="phases",
            found=f"phases from positions {sorted(begun)}",
            expected=f"one from position {missing[0]}",
        )
    return past + tuple(phase for phase in schedule if phase[0] > now)


def _later(past: Phases, schedule: Phases, now: int) -> Phases:
    """Return the entries of a schedule that begin after the tick `now`. Raise StateError if its present proportions
    differ from the state's."""
    present = next((weights for start, weights in reversed(schedule) if start <= now), None)
    if present is not None and _shares(present) != _shares(past[-1][1]):
        raise StateError(
            "the components in the state's run have other proportions now",
            place="phases",
            found=in_json(past[-1][1]),
            expected=f"{in_json(present)}, by number of the state's components",
            hint="give the mixture the proportions last given to mdsx.change or reweight()",
        )
    return tuple(phase for phase in schedule if phase[0] > now)


def in_json(weights: Sequence[Weight]) -> list[Any]:
    """Return exact weights for JSON: numbers if binary64 can represent them, otherwise text like "1/3"."""
    return list(map(_plain, weights))


def phases_of(state: Mapping[str, Any], components: int, now: int) -> Phases:
    """Return the phases of a state, all started by the tick `now`. Raise StateError."""
    found: Any = state.get("phases")
    try:
        if len(listed(found)) > MAX_PHASES:
            raise ValueError("the number")
        pairs = [(start, listed(weights)) for start, weights in map(listed, found)]
        if any(type(start) is not int for start, _ in pairs) or any(len(weights) != components for _, weights in pairs):
            raise ValueError("the types")
        starts = [start for start, _ in pairs]
        if starts[:1] != [0] or sorted(set(starts)) != starts or starts[-1] > now:
            raise ValueError("the starts")
        phases = tuple((start, tuple(map(weight_of, weights))) for start, weights in pairs)
        if not all(any(weights) for _, weights in phases):
            raise ValueError("the weights")
    except (TypeError, ValueError, ArithmeticError, UsageError):
        raise StateError(
            "the state lacks the phases of a mixture",
            place="phases",
            found=shown(found),
            expected=f"[[0, [weights of {components} components]], ...]",
        ) from None
    return phases


def same_shares(one: Sequence[Weight], other: Sequence[Weight]) -> bool:
    """Return whether two lists of proportions have the same ratios."""
    return _shares(one) == _shares(other)


def listed(found: Any) -> Sequence[Any]:
    """Return a JSON array. Raise TypeError."""
    if not isinstance(found, list | tuple):
        raise TypeError("not a list")
    return found


def _plain(weight: Weight) -> Any:
    """Return an exact weight for JSON: a number if binary64 can represent it, otherwise text like "1/3"."""
    exact = Fraction(weight)
    try:
        held = Fraction(float(exact)) == exact
    except OverflowError:
        held = False
    if not held:
        return str(exact)
    return exact.numerator if exact.denominator == 1 else float(exact)


def weight_of(plain: Any) -> Weight:
    """Return a weight of a state. Raise TypeError, ValueError or UsageError if it is invalid."""
    if not isinstance(plain, str | int | float | Fraction):
        raise TypeError("not a weight")
    weight: Weight = _fraction(plain) if isinstance(plain, str) else plain
    if isinstance(weight, int) and not isinstance(weight, bool):
        weight = int(float(weight))  # as other JSON readers parse it
    exact_weight(weight, "weight")
    return weight


def _fraction(text: str) -> Fraction:
    if _FRACTION.fullmatch(text) is None:  # Fraction would expand "1e999999999"
        raise ValueError(text)
    return Fraction(text)


def _shares(weights: Sequence[Weight]) -> list[Fraction]:
    exact = [Fraction(weight) for weight in weights]
    return [weight / sum(exact) for weight in exact]
