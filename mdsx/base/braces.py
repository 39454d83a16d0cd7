"""Expand braces in names as the shell does: `{0000..0099}`, `{a,b}`, nested, several in one text.

Braces without a range or a comma stay as they are. If an end of a range has leading zeros, all numbers are padded to
its width. `{0..100..10}` has a step, `{9..0}` counts down, `{a..e}` expands to letters.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from mdsx.errors import UsageError

_MOST_NAMES = 1_000_000
_MOST_CHARACTERS = 2**28  # in all names
_LONGEST = 4096  # characters of a text with braces; a path has no more
_NUMBERS = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?", re.ASCII)
_LETTERS = re.compile(r"([A-Za-z])\.\.([A-Za-z])(?:\.\.(-?\d+))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Choice:
    """The expansions of a piece, and their count."""

    count: int
    texts: Callable[[], Iterable[str]]


def expand_braces(text: str) -> list[str]:
    """Return the expansions of `text` in order; only `text` itself if it has no braces. Raise UsageError."""
    if "{" not in text:
        return [text]
    shown = repr(text[:80])
    if len(text) > _LONGEST:
        raise UsageError("name with braces is too long", found=shown, expected=f"at most {_LONGEST} characters")
    try:
        choice = _parse(text)
        if choice.count > _MOST_NAMES:
            raise UsageError(f"braces expand to more than {_MOST_NAMES:,} names", found=shown)
        if choice.count * len(text) > _MOST_CHARACTERS:
            expected = f"at most {_MOST_CHARACTERS:,} characters in all names"
            raise UsageError("braces expand to too many long names", found=shown, expected=expected)
        return list(choice.texts())
    except RecursionError:
        raise UsageError("braces are nested too deeply", found=shown) from None


def _parse(text: str) -> _Choice:
    """Return the expansions of `text`, counted but not yet made."""
    pieces, start, done = [], 0, 0
    while (opening := text.find("{", start)) >= 0:
        start = opening + 1
        split = _split(text, start)
        choice = _choice(split[0]) if split else None
        if split and choice:
            pieces += [_literal(text[done:opening]), choice]
            start = done = split[1]
    pieces.append(_literal(text[done:]))
    count = math.prod(piece.count for piece in pieces)
    return _Choice(count, lambda: map("".join, product(*(piece.texts() for piece in pieces))))


def _literal(text: str) -> _Choice:
    return _Choice(1, lambda: (text,))


def _split(text: str, start: int) -> tuple[list[str], int] | None:
    """Return the items of the brace opened before `start`, and where it ends; None if it is never closed."""
    depth, items = 0, []
    for place in range(start, len(text)):
        match text[place]:
            case "{":
                depth += 1
            case "}" if depth:
                depth -= 1
            case "," if not depth:
                items.append(text[start:place])
                start = place + 1
            case "}":
                return [*items, text[start:place]], place + 1
    return None


def _choice(items: list[str]) -> _Choice | None:
    if len(items) > 1:
        parsed = [_parse(item) for item in items]
        return _Choice(sum(item.count for item in parsed), lambda: (text for item in parsed for text in item.texts()))
    if match := _NUMBERS.fullmatch(items[0]):
        padded = any(end.lstrip("-").startswith("0") and len(end.lstrip("-")) > 1 for end in match.group(1, 2))
        width = max(map(len, match.group(1, 2))) if padded else 0
        return _range(int(match[1]), int(match[2]), match[3], lambda number: f"{number:0{width}}")
    if match := _LETTERS.fullmatch(items[0]):
        return _range(ord(match[1]), ord(match[2]), match[3], chr)
    return None


def _range(first: int, last: int, step: str | None, text: Callable[[int], str]) -> _Choice:
    size = abs(int(step)) if step and int(step) else 1

    def texts() -> Iterator[str]:
        return map(text, range(first, last + 1, size) if first <= last else range(first, last - 1, -size))

    return _Choice(abs(last - first) // size + 1, texts)
