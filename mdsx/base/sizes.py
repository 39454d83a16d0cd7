"""Sizes, ages and counts as people write them: `64MiB` is 64 * 2**20 bytes, `200GB` 200 * 10**9, `12h` 12 hours."""

from __future__ import annotations

import math
import re

from mdsx.errors import UsageError, shown

_UNITS = {"": 1, "B": 1}
_UNITS |= {f"{letter}B": 1000**power for power, letter in enumerate("KMGTPE", 1)}
_UNITS |= {f"{letter}IB": 1024**power for power, letter in enumerate("KMGTPE", 1)}
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
"""The units of ages."""

_AGE = re.compile(r"(\d+(?:\.\d+)?)([smhdw])", re.ASCII)
_SIZE = re.compile(r"\s*(\d{1,30})(?:\.(\d{1,30}))?\s*([A-Za-z]*)\s*", re.ASCII)


def parse_size(size: int | str, *, name: str = "size") -> int:
    """Return `size` in bytes: an integer, or text such as "64MiB", "1.5 GB", "4096". `name` is for errors.

    Raise UsageError for anything else, and for a size below 1 byte.
    """
    if isinstance(size, bool) or not isinstance(size, int | str):
        raise UsageError(f"{name} must be bytes or text such as '64MiB'", found=shown(size))
    if isinstance(size, int):
        result = size
    else:
        match = _SIZE.fullmatch(size)
        unit = _UNITS.get(match[3].upper()) if match else None
        if match is None or unit is None:
            raise UsageError(f"{name} is not a size", found=shown(size), hint="write it like '64MiB', '200GB' or 4096")
        fraction = match[2] or ""
        result = int(match[1] + fraction) * unit // 10 ** len(fraction)
    if result < 1:
        raise UsageError(f"{name} must be at least 1 byte", found=shown(size))
    return result


def is_size(text: str) -> bool:
    """Return whether `parse_size` accepts the text."""
    match = _SIZE.fullmatch(text)
    return match is not None and match[3].upper() in _UNITS


def parse_age(age: float | str, *, name: str = "age") -> float:
    """Return `age` in seconds: a number, or text such as "30m", "12h", "7d", "2w". `name` is for errors.

    Raise UsageError for anything else.
    """
    match = _AGE.fullmatch(age.strip()) if isinstance(age, str) else None
    if match is not None:
        return float(match[1]) * SECONDS[match[2]]
    if isinstance(age, int | float) and not isinstance(age, bool) and 0 <= age < math.inf:
        return float(age)
    raise UsageError(f"{name} is not an age", found=shown(age), hint="write it like 30m, 12h, 7d or 2w")


def format_count(number: int, noun: str) -> str:
    """Return a number with its noun, such as "1 shard" or "2,000 shards"."""
    return f"{number:,} {noun}" + "s" * (number != 1)


def format_size(size: int) -> str:
    """Return `size` bytes with three digits, such as "1.5 GB"; exact below 1000."""
    value, unit = float(size), "B"
    for unit in ("B", "kB", "MB", "GB", "TB", "PB", "EB"):
        if value < 999.5 or unit == "EB":
            break
        value /= 1000
    return f"{size} B" if unit == "B" else f"{value:.3g} {unit}"
