"""File names of shards, and the runs of them in the index: `["shard.", ".mdsx", 0, 3]` are three names.

A number is written with at least five digits. Names are relative to the index's folder, with `/` between components,
and so made that none leads outside.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_NAME_SIZE = 512

Run = tuple[str, str, int, int]
"""Prefix, suffix, first number, how many."""

_COMPONENT = "[A-Za-z0-9][A-Za-z0-9._-]*"
_NAME = re.compile(f"{_COMPONENT}(?:/{_COMPONENT})*")
_NUMBER = re.compile("[0-9]{5,}")


def join_name(prefix: str, suffix: str, number: int) -> str:
    return f"{prefix}{number:05d}{suffix}"


def split_name(name: str) -> tuple[str, str, int] | None:
    """Prefix, suffix and number, which is the last one in the name of five digits or more; None where there is none."""
    numbers = list(_NUMBER.finditer(name))
    if not numbers:
        return None
    number, end = int(numbers[-1][0]), numbers[-1].end()
    return name[: end - len(f"{number:05d}")], name[end:], number


def is_name(name: str) -> bool:
    """Whether `name` may be a shard's."""
    return len(name) <= MAX_NAME_SIZE and _NAME.fullmatch(name) is not None


def runs_of(names: Iterable[str]) -> list[Run]:
    """The fewest runs that give `names` in their order. Raises ValueError for a name that is none."""
    runs: list[Run] = []
    following = None  # the name that would continue the last run
    for name in names:
        if name == following and len(name) <= MAX_NAME_SIZE:
            prefix, suffix, first, count = runs[-1]
            runs[-1] = (prefix, suffix, first, count + 1)
        else:
            parts = split_name(name)
            if parts is None or not is_name(name) or parts[2] >= 2**63:
                raise ValueError(name)
            prefix, suffix, first, count = *parts, 0
            runs.append((prefix, suffix, first, 1))
        following = join_name(prefix, suffix, first + count + 1)
    return runs
