"""Check options whose values are words."""

from __future__ import annotations

from mdsx.errors import UsageError, shown


def check_choice(option: str, value: object, *choices: str) -> None:
    """Raise UsageError unless the value of an option is one of the choices."""
    if value not in choices:
        raise UsageError(f"{option} is unknown", found=shown(value), expected=" or ".join(choices))
