"""The field `groups` of a run's state, which says which groups come next."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from mdsx.errors import StateError, shown
from mdsx.order import GROUPS_VERSION, MAX_SAMPLES, MAX_WINDOW, Bucketing, Grouping
from mdsx.stream.planning import EpochWindows
from mdsx.stream.state import number_of
from mdsx.stream.steps import Cursor

Rule = TypeVar("Rule", bound=Grouping | Bucketing)
_NUMBERS = ("window", "taken")
_STEPS = ("epoch", "step")
_LATER = ("planned", "origin")  # states of earlier versions lack these
_OF_KINDS = ("capacity", "oversize", "max_samples", "sizes", "batch_sizes")  # only some kinds have these


class GroupPlace(NamedTuple):
    """Where the groups of a state are."""

    window: int
    taken: int
    step: int
    epoch: int | None
    """The order's epoch, if epochs have a fixed number of steps."""
    planned: int
    origin: tuple[int, int]
    """The position and the number of the first window of the grid, in the epoch."""


@dataclass(frozen=True, slots=True)
class GroupIdentity:
    """What the groups of an order depend on, besides epoch and window."""

    rule: Grouping | Bucketing
    lengths: Mapping[str, Any]
    epoch_steps: int | None

    def state(self, cursor: Cursor, origin: tuple[int, int] = (0, 0)) -> dict[str, Any]:
        """Return the field `groups` of a state at `cursor`: JSON-able, the same on every rank. `origin`: the position
        and the number of the first window of the grid, in the cursor's epoch."""
        steps = {}
        if self.epoch_steps is not None:
            steps = {"epoch": cursor.epoch, "step": cursor.step % self.epoch_steps}
        place: dict[str, Any] = {"window": cursor.window, "taken": cursor.taken}
        if cursor.planned:
            place["planned"] = cursor.planned
        if any(origin):
            place["origin"] = list(origin)
        return {"version": GROUPS_VERSION, **steps, **place, **self.fields}

    def check(self, found: Any) -> GroupPlace:
        """Parse the field `groups`.

        Raise StateError if it is damaged, or if groups with other parameters were taken from the window.
        """
        if not isinstance(found, Mapping):
            raise StateError("the state's groups are not an object", place="groups", found=shown(found))
        fields = self.fields
        known = {"version", *_NUMBERS, *_STEPS, *_LATER, *_OF_KINDS, *fields}
        if unknown := [name for name in found if name not in known]:
            raise StateError("the state has an unknown field", place=f"groups.{unknown[0]}")
        if found.get("version") != GROUPS_VERSION:
            raise StateError(
                "the state has another version of groups",
                place="groups.version",
                found=shown(found.get("version")),
                expected=GROUPS_VERSION,
                hint="resume with the version of mdsx that wrote the checkpoint",
            )
        window, taken = (number_of(found, name, "groups.") for name in _NUMBERS)
        if taken:
            for name, expected in fields.items():
                if name == "lengths" and same_lengths(found.get(name), expected):
                    continue
                if found.get(name) != expected or type(found.get(name)) is not type(expected):
                    raise StateError(
                        "the state is in the middle of a window of groups with other parameters",
                        place=f"groups.{name}",
                        found=shown(found.get(name)),
                        expected=shown(expected),
                        hint="give the loader the dataset and the length= that the run had"
                        if name == "lengths"
                        else "give batching= the parameters that the run had, until the window ends",
                    )
        epoch = step = None
        if "step" in found or "epoch" in found:
            epoch, step = (number_of(found, name, "groups.") for name in _STEPS)
            if self.epoch_steps is None and step:
                raise StateError(
                    "the state's run had a fixed number of steps per epoch",
                    place="groups.step",
                    found=step,
                    hint="give the loader epoch_steps=",
                )
            if self.epoch_steps is not None and step >= self.epoch_steps:
                raise StateError(
                    "the epoch has fewer steps", place="groups.step", found=step, expected=f"below {self.epoch_steps}"
                )
        planned = number_of(found, "planned", "groups.") if "planned" in found else 0
        if (found.get("kind") == Bucketing.kind) != isinstance(self.rule, Bucketing):
            planned = 0  # one counts samples, the other values
        return GroupPlace(window, taken, step or 0, epoch, planned, origin_of(found))

    @property
    def fields(self) -> dict[str, Any]:
        """Return this as JSON, without `epoch_steps`."""
        return {**self.rule.fields, "lengths": dict(self.lengths)}


def same_lengths(found: Any, expected: Any) -> bool:
    """Return whether two identities of lengths are equal, ignoring components of a mixture that were added or removed
    between them."""
    if found == expected:
        return True
    if not isinstance(found, Mapping) or not isinstance(expected, Mapping):
        return False
    if found.get("added") != expected.get("added"):  # tokens, which every length includes
        return False
    found, expected = ({name: of[name] for name in of if name != "added"} for of in (found, expected))
    for name in ("longest", "pair"):  # of several columns
        if name in found and name in expected:
            one, other = found[name], expected[name]
            return isinstance(one, list | tuple) and len(one) == len(other) and all(map(same_lengths, one, other))
    if not all("each" in lengths or "fingerprint" in lengths for lengths in (found, expected)):
        return False
    each = [lengths.get("each", [lengths]) for lengths in (found, expected)]
    if not all(isinstance(one, list | tuple) for one in each):
        return False
    return all(one is None or other is None or one == other for one, other in zip(*each, strict=False))


def origin_of(found: Mapping[str, Any]) -> tuple[int, int]:
    """Return the origin of a grid that the field `groups` names. Raise StateError."""
    origin = found.get("origin", [0, 0])
    if (
        not isinstance(origin, list | tuple)
        or len(origin) != 2
        or not all(type(number) is int and 0 <= number < MAX_SAMPLES for number in origin)
    ):
        raise StateError(
            "the state's grid of windows is damaged",
            place="groups.origin",
            found=shown(origin),
            expected="a position and the number of a window",
        )
    return origin[0], origin[1]


def with_window(rule: Rule, found: Any) -> Rule:
    """Return the rule with a state's window: the default may have changed with the version or the index."""
    window = found.get("positions") if isinstance(found, Mapping) else None
    return replace(rule, window=window) if type(window) is int and 1 <= window <= MAX_WINDOW else rule


def window_at(windows: EpochWindows, start: int, window: int, taken: int) -> int:
    """Return the number of the window that begins at tick `start`, where the state says `window`.

    Raise StateError if no window begins there, or if `taken` groups were taken from another one.
    """
    every, numbers = windows.every, range(windows.first, windows.end)
    for number in (window, windows.first + bisect_left(numbers, start, key=lambda number: windows[number][0])):
        if windows.first <= number < windows.end and windows[number][0] == start and (number == window or not taken):
            return number
    if start == every.stop and not taken:
        return windows.end
    raise StateError(
        "the state's position is not at the start of a window of these groups",
        place="position",
        found=start - every.start,
        expected=f"the start of a window of {every.size} positions",
        hint="give batching= the window that the run had, or none if it had none, or resume at the start of an epoch",
    )
