"""Brace expansion as the shell does it: `{0000..0099}`, `{a,b}`, nested, several in one text.

A brace that holds neither a range nor a comma stands for itself. An end of a range written with leading zeros gives all
its numbers that many digits. `{0..100..10}` steps, `{9..0}` counts down, `{a..e}` are letters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from mdsx.errors import UsageError

_LIMIT = 1_000_000
_NUMBERS = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?", re.ASCII)
_LETTERS = re.compile(r"([A-Za-z])\.\.([A-Za-z])(?:\.\.(-?\d+))?", re.ASCII)


def expand_braces(text: str) -> list[str]:
    """Every text that `text` stands for, in order; itself where it has no braces to expand."""
    texts = list(islice(_expand(text), _LIMIT + 1))
    if len(texts) > _LIMIT:
        raise UsageError(f"braces stand for more than {_LIMIT:,} names", found=repr(text))
    return texts


def _expand(text: str) -> Iterator[str]:
    start = 0
    while (opening := text.find("{", start)) >= 0:
        start = opening + 1
        parts = _split(text, start)
        choices = _choices(parts[0]) if parts else None
        if parts and choices is not None:
            for choice in choices:
                for rest in _expand(parts[1]):
                    yield text[:opening] + choice + rest
            return
    yield text


def _split(text: str, start: int) -> tuple[list[str], str] | None:
    """What stands between the commas of the brace opened before `start`, and what follows it; None if never closed."""
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
                return [*items, text[start:place]], text[place + 1 :]
    return None


def _choices(items: list[str]) -> Iterator[str] | None:
    if len(items) > 1:
        return (choice for item in items for choice in _expand(item))
    if match := _NUMBERS.fullmatch(items[0]):
        padded = any(end.lstrip("-").startswith("0") and len(end.lstrip("-")) > 1 for end in match.group(1, 2))
        width = max(map(len, match.group(1, 2))) if padded else 0
        return (f"{number:0{width}}" for number in _range(int(match[1]), int(match[2]), match[3]))
    if match := _LETTERS.fullmatch(items[0]):
        return map(chr, _range(ord(match[1]), ord(match[2]), match[3]))
    return None


def _range(first: int, last: int, step: str | None) -> range:
    size = abs(int(step)) if step and int(step) else 1
    return range(first, last + 1, size) if first <= last else range(first, last - 1, -size)
