"""Checks of arguments that many functions take. They raise a UsageError that names the argument."""

from __future__ import annotations

from mdsx.errors import UsageError, shown


def check_choice(name: str, value: object, *choices: str) -> None:
    """Raise UsageError unless `value` is one of the choices."""
    if value not in choices:
        raise UsageError(f"{name} is unknown", found=shown(value), expected=" or ".join(choices))


def check_count(name: str, value: object, least: int = 1) -> None:
    """Raise UsageError unless `value` is an integer (not a bool) of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{name} must be an integer of at least {least}", found=shown(value))
