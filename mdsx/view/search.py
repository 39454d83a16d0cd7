"""Search for a text in a column: read samples in runs, and report how far the search came."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mdsx.datasets import Dataset
from mdsx.errors import MdsxError
from mdsx.view.trees import shortened

MOST = 50
"""Matches after which a scan stops."""

_RUN = 128  # samples read together
_AROUND = 60  # characters before and after a match
_MATCH = 200


class Match(NamedTuple):
    """A sample that contains the text, with the context of the first match. `error`: why it could not be read."""

    number: int
    before: str
    match: str
    after: str
    error: str | None = None


@dataclass
class Search:
    """How far a scan came: all samples before `next` were searched."""

    matches: list[Match] = field(default_factory=list)
    next: int = 0


def scan(dataset: Dataset, column: str, text: str, numbers: range, seconds: float, most: int = _RUN) -> Search:
    """Search for `text`, ignoring case, until all of `numbers` were searched, `seconds` are over, or there are `MOST`
    matches. Read at least one run of samples. `most`: the samples to read together."""
    found = Search(next=numbers.start)
    wanted, deadline = text.casefold(), time.monotonic() + seconds
    run = max(1, min(most, _RUN))
    while found.next < numbers.stop and len(found.matches) < MOST:
        stop = min(found.next + run, numbers.stop)
        for number, value in zip(range(found.next, stop), _values(dataset, column, found.next, stop), strict=True):
            if len(found.matches) >= MOST:
                break
            if isinstance(value, MdsxError):
                found.matches.append(Match(number, "", "", "", shortened(str(value), 300)))
            elif (match := matched(number, value, wanted)) is not None:
                found.matches.append(match)
            found.next = number + 1
        if time.monotonic() > deadline:
            break
    return found


def _values(dataset: Dataset, column: str, start: int, stop: int) -> Iterator[Any]:
    """Yield the column of each sample, or the error of a damaged one."""
    try:
        yield from [sample[column] for sample in dataset[start:stop]]
    except MdsxError:
        for number in range(start, stop):
            try:
                yield dataset[number][column]
            except MdsxError as error:
                yield error


def matched(number: int, value: Any, wanted: str) -> Match | None:
    """Return the first match of `wanted`, case-folded, in a value, or None."""
    text = value if isinstance(value, str) else _as_text(value)
    at = text.casefold().find(wanted)
    if at < 0:
        return None
    if len(text) != len(text.casefold()):  # a letter that folds to two: places differ
        return Match(number, "", shortened(text, _MATCH), "")
    stop = at + len(wanted)
    before = text[max(at - _AROUND, 0) : at]
    return Match(number, before, shortened(text[at:stop], _MATCH), text[stop : stop + _AROUND])


def _as_text(value: Any) -> str:
    """Return the JSON of a value that is not text."""
    if value is None:
        return ""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (RecursionError, TypeError, ValueError):  # too deep, or keys that JSON lacks
        return ""
