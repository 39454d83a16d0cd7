"""Samples whose whole content follows from their number, so that any process can detect a wrong one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_WIDTH = 96
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_TEXT = "".join(chr(97 + number * number % 26) + " é"[number % 3 : number % 3 + 1] for number in range(2000))

COLUMNS = {"id": "int64", "tokens": f"uint16[{_WIDTH}]", "text": "str", "more": "json?", "data": "bytes"}
"""All columns; a dataset has some of them, always `id`."""


def columns_of(names: Iterable[str], ids: Sequence[int]) -> dict[str, Any]:
    return {name: _MAKE[name](ids) for name in names}


def wrong(batch: Mapping[str, Any]) -> int:
    """Return how many samples of a batch differ from what their number says."""
    ids = batch["id"].tolist()
    bad = np.zeros(len(ids), np.bool_)
    for name, values in batch.items():
        expected = _MAKE[name](ids)
        if isinstance(expected, np.ndarray):
            differs = np.asarray(values) != expected
            bad |= differs.any(axis=tuple(range(1, differs.ndim)))
        else:
            bad |= np.array([one != other for one, other in zip(values, expected, strict=True)], np.bool_)
    return int(bad.sum())


def _tokens(ids: Sequence[int]) -> NDArray[np.uint16]:
    numbers = np.asarray(ids, np.int64).view(np.uint64)  # a wrong one may be below 0
    mixed: NDArray[np.uint64] = np.add.outer(numbers * _FACTOR, np.arange(_WIDTH, dtype=np.uint64))
    return (mixed * _FACTOR >> np.uint64(48)).astype(np.uint16)


def _text(number: int) -> str:
    start = number * 7919 % 1500
    return f"{number} {_TEXT[start : start + number * 31 % 400]}"


def _more(number: int) -> Any:
    return None if number % 3 else {"number": number, "list": [number] * (number % 5)}


_MAKE: dict[str, Any] = {
    "id": lambda ids: np.asarray(ids, np.int64),
    "tokens": _tokens,
    "text": lambda ids: [_text(number) for number in ids],
    "more": lambda ids: [_more(number) for number in ids],
    "data": lambda ids: [_text(number + 1).encode() for number in ids],
}
