"""A run's state: a few numbers, and what must match for them to mean the same samples."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from mdsx.errors import StateError, UsageError, shown
from mdsx.order import Weight, exact_weight

Phases = tuple[tuple[int, tuple[Weight, ...]], ...]
"""The weights of a mixture, each with the position from which on they hold; positions count on over all epochs."""

_FRACTION = re.compile(r"[0-9]{1,700}(/[1-9][0-9]{0,699})?")
_FREE_AT_START = frozenset({"lanes", "shuffle_block"})  # where no sample was read in their order yet
_HINTS = {
    "fingerprint": "the checkpoint belongs to another dataset: resume on the one that it was made with",
    "order_version": "this version of mdsx computes another order: resume with the version that wrote the checkpoint",
}


@dataclass(frozen=True, slots=True)
class OrderIdentity:
    """What the global order is a function of, beside epoch and position."""

    order_version: int
    seed: int
    lanes: int
    shuffle_block: int
    shuffle: bool
    fingerprint: str
    epoch_samples: int
    samples: int  # in all datasets; the fingerprint says which
    phases: Phases = ()  # of a weighted mixture

    def state(self, epoch: int, position: int) -> dict[str, Any]:
        """The state of a run that stands at (epoch, position): JSON-able, the same on every rank."""
        state = {"epoch": epoch, "position": position, **self._fields()}
        if self.phases:
            now = epoch * self.epoch_samples + position
            state["phases"] = [[start, list(map(_plain, weights))] for start, weights in self.phases if start <= now]
        return state

    def check(self, state: Mapping[str, Any]) -> tuple[int, int, Phases]:
        """(epoch, position, phases) of a state of this order. Raises StateError that names the field."""
        if not isinstance(state, Mapping):
            raise StateError("a state is the dict that state_dict() returned", found=type(state).__name__)
        epoch, position = (_number(state, name) for name in ("epoch", "position"))
        fresh = position == 0 and (epoch == 0 or (self.epoch_samples == self.samples and not self.phases))
        for name, expected in self._fields().items():
            if name not in state:
                raise StateError("the state lacks a field", place=name, hint="load what state_dict() returned, whole")
            found = state[name]
            if found != expected or isinstance(found, bool) != isinstance(expected, bool):
                if fresh and name in _FREE_AT_START:
                    continue
                raise StateError(
                    "the state is of another order, so its position means other samples",
                    place=name,
                    found=shown(found),
                    expected=repr(expected),
                    hint=_HINTS.get(name, f"construct the dataset with {name}={_argument(found)} to resume"),
                )
        if position > self.epoch_samples:
            expected = self.epoch_samples
            raise StateError("the position is beyond the epoch", place="position", found=position, expected=expected)
        return epoch, position, self._merged(state, epoch * self.epoch_samples + position)

    def _fields(self) -> dict[str, Any]:
        return {
            "order_version": self.order_version,
            "seed": str(self.seed),  # JSON readers do not keep 64 bits
            "lanes": self.lanes,
            "shuffle_block": self.shuffle_block,
            "shuffle": self.shuffle,
            "fingerprint": self.fingerprint,
            "epoch_samples": self.epoch_samples,
        }

    def _merged(self, state: Mapping[str, Any], now: int) -> Phases:
        """The phases that had started in the state, then those that are planned here for later."""
        if not self.phases:
            return ()
        past = _parsed(state.get("phases"), len(self.phases[0][1]))
        for start, weights in self.phases:
            same = [_shares(there) == _shares(weights) for begin, there in past if begin == start]
            if same != [True] and (start < now or start == 0):
                raise StateError(
                    "the state is of a mixture with other weights",
                    place="phases",
                    found=[[begin, list(map(_plain, there))] for begin, there in past],
                    expected=f"{list(map(_plain, weights))} from position {start} on",
                    hint="construct the mixture with the weights that the run began with, resume, then reweight",
                )
        taken = {start for start, _ in past}
        return past + tuple(phase for phase in self.phases if phase[0] >= now and phase[0] not in taken)


def _parsed(found: Any, components: int) -> Phases:
    """The phases in a state. Raises StateError."""
    try:
        phases = tuple((start, tuple(map(_weight, weights))) for start, weights in found)
        starts = [start for start, _ in phases]
        if starts[:1] != [0] or sorted(set(starts)) != starts or any(type(start) is not int for start in starts):
            raise ValueError("the starts")
        if any(len(weights) != components or not any(weights) for _, weights in phases):
            raise ValueError("the weights")
    except (TypeError, ValueError, ArithmeticError, UsageError):
        raise StateError(
            "the state lacks the phases of a mixture",
            place="phases",
            found=shown(found),
            expected=f"[[0, [weights of {components} components]], ...]",
        ) from None
    return phases


def _plain(weight: Weight) -> Any:
    """A weight for JSON, exactly: a number where binary64 has it, else text such as "1/3"."""
    exact = Fraction(weight)
    try:
        held = Fraction(float(exact)) == exact
    except OverflowError:
        held = False
    if not held:
        return str(exact)
    return exact.numerator if exact.denominator == 1 else float(exact)


def _weight(plain: Any) -> Weight:
    weight: Weight = _fraction(plain) if isinstance(plain, str) else plain
    if isinstance(weight, int) and not isinstance(weight, bool):
        weight = int(float(weight))  # as every other JSON reader takes it
    exact_weight(weight, "weight")
    return weight


def _fraction(text: str) -> Fraction:
    if _FRACTION.fullmatch(text) is None:  # Fraction also takes "1e999999999", and works it out
        raise ValueError(text)
    return Fraction(text)


def _shares(weights: Sequence[Weight]) -> list[Fraction]:
    exact = [Fraction(weight) for weight in weights]
    return [weight / sum(exact) for weight in exact]


def _argument(found: object) -> str:
    """A field's value as an argument: a seed is text in a state."""
    return found if isinstance(found, str) and found.isdecimal() and len(found) <= 20 else shown(found)


def _number(state: Mapping[str, Any], name: str) -> int:
    value = state.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**62:
        raise StateError("the state lacks a valid number", place=name, found=shown(value), expected="an integer >= 0")
    return value
