"""The part of a run's state that says which groups come next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mdsx.errors import StateError, shown
from mdsx.order import GROUPS_VERSION, MAX_WINDOW, Grouping, Windows
from mdsx.stream.state import number_of
from mdsx.stream.steps import Cursor

_NUMBERS = ("window", "taken")
_STEPS = ("epoch", "step")


@dataclass(frozen=True, slots=True)
class GroupIdentity:
    """What the groups of an order depend on, beside epoch and window."""

    rule: Grouping
    lengths: Mapping[str, Any]
    epoch_steps: int | None

    def state(self, cursor: Cursor) -> dict[str, Any]:
        """Return the field `groups` of a state at `cursor`: JSON-able, the same on every rank."""
        steps = {}
        if self.epoch_steps is not None:
            steps = {"epoch": cursor.epoch, "step": cursor.step % self.epoch_steps}
        return {"version": GROUPS_VERSION, **steps, "window": cursor.window, "taken": cursor.taken, **self.fields}

    def check(self, found: Any) -> tuple[int, int, int, int | None]:
        """Return (window, taken, step, epoch of the order or None) of the field `groups`.

        Raise StateError if it is damaged, or if groups of other parameters were taken from the window.
        """
        if not isinstance(found, Mapping):
            raise StateError("the state's groups are not an object", place="groups", found=shown(found))
        fields = self.fields
        known = {"version", *_NUMBERS, *_STEPS, *fields}
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
                if found.get(name) != expected or type(found.get(name)) is not type(expected):
                    raise StateError(
                        "the state is in the middle of a window, and its groups are other ones",
                        place=f"groups.{name}",
                        found=shown(found.get(name)),
                        expected=shown(expected),
                        hint="give the loader the dataset and the length= that the run had"
                        if name == "lengths"
                        else "give batching= the parameters that the run had, until it is at the end of a window",
                    )
        epoch = step = None
        if "step" in found or "epoch" in found:
            epoch, step = (number_of(found, name, "groups.") for name in _STEPS)
            if self.epoch_steps is None and step:
                raise StateError(
                    "the state is that of a run with a fixed number of steps in an epoch",
                    place="groups.step",
                    found=step,
                    hint="give the loader epoch_steps=",
                )
            if self.epoch_steps is not None and step >= self.epoch_steps:
                raise StateError(
                    "the epoch has fewer steps", place="groups.step", found=step, expected=f"below {self.epoch_steps}"
                )
        return window, taken, step or 0, epoch

    @property
    def fields(self) -> dict[str, Any]:
        """Return this as JSON has it, without `epoch_steps`."""
        rule = self.rule
        return {
            "kind": rule.kind,
            "capacity": rule.capacity,
            "positions": rule.window,
            "oversize": rule.oversize,
            "max_samples": rule.max_samples,
            "lengths": dict(self.lengths),
        }


def with_window(rule: Grouping, found: Any) -> Grouping:
    """Return the rule with the window of a state: the default may be another one since, of a later version or index."""
    window = found.get("positions") if isinstance(found, Mapping) else None
    return replace(rule, window=window) if type(window) is int and 1 <= window <= MAX_WINDOW else rule


def window_at(windows: Windows, start: int, window: int, taken: int) -> int:
    """Return the number of the window that begins at the tick `start`: `window` in the state.

    Raise StateError if no window begins there, or if `taken` groups were taken from another one.
    """
    for number in (window, (start - windows.start) // windows.size):
        if 0 <= number < len(windows) and windows[number][0] == start and (number == window or not taken):
            return number
    if start == windows.stop and not taken:
        return len(windows)
    raise StateError(
        "the state's position is not at the start of a window of these groups",
        place="position",
        found=start - windows.start,
        expected=f"a multiple of {windows.size}",
        hint="give batching= the window that the run had, or none if it had none; or resume at the start of an epoch",
    )
