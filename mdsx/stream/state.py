"""A run's state: a few numbers, and what must match for them to mean the same samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from mdsx.errors import StateError

_FREE_AT_START = frozenset({"lanes", "shuffle_block"})  # at position 0 no sample was read in their order yet
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

    def state(self, epoch: int, position: int) -> dict[str, Any]:
        """The state of a run that stands at (epoch, position): JSON-able, the same on every rank."""
        return {"epoch": epoch, "position": position, **asdict(self)}

    def check(self, state: Mapping[str, Any], samples: int) -> tuple[int, int]:
        """(epoch, position) of a state of this order over `samples`. Raises StateError that names the field."""
        if not isinstance(state, Mapping):
            raise StateError("a state is the dict that state_dict() returned", found=type(state).__name__)
        epoch, position = (_number(state, name) for name in ("epoch", "position"))
        for name, expected in asdict(self).items():
            if name not in state:
                raise StateError("the state lacks a field", place=name, hint="load what state_dict() returned, whole")
            found = state[name]
            if found != expected or isinstance(found, bool) != isinstance(expected, bool):
                if position == 0 and name in _FREE_AT_START:
                    continue
                raise StateError(
                    "the state is of another order, so its position means other samples",
                    place=name,
                    found=repr(found),
                    expected=repr(expected),
                    hint=_HINTS.get(name, f"construct the dataset with {name}={found!r} to resume, or start anew"),
                )
        if position > samples:
            raise StateError("the position is beyond the epoch", place="position", found=position, expected=samples)
        return epoch, position


def _number(state: Mapping[str, Any], name: str) -> int:
    value = state.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**64:
        raise StateError("the state lacks a valid number", place=name, found=repr(value), expected="an integer >= 0")
    return value
