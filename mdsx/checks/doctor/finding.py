"""What one check found, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from mdsx.errors import MdsxError

State = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check.

    Attributes:
        check: The name of the check.
        state: "problem" if training would fail or starve, "warning" if it would slow down, else "ok".
        found: What was measured, in a sentence.
        advice: What to do about it; None if all is well.
        figures: The same numbers for programs: seconds and bytes, by name.
    """

    check: str
    state: State
    found: str
    advice: str | None = None
    figures: Mapping[str, Any] = field(default_factory=dict)


def ok(check: str, found: str, **figures: Any) -> Finding:
    return Finding(check, "ok", found, None, figures)


def warning(check: str, found: str, advice: str, **figures: Any) -> Finding:
    return Finding(check, "warning", found, advice, figures)


def problem(check: str, found: str, advice: str, **figures: Any) -> Finding:
    return Finding(check, "problem", found, advice, figures)


def refusal(check: str, error: MdsxError, *, advice: str = "") -> Finding:
    """Return an error as a problem. `advice` is used if the error has no hint."""
    found = str(error)
    if error.hint:
        found = found.removesuffix(f"; {error.hint}")
    return problem(check, found, error.hint or advice)
