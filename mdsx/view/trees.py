"""JSON and MessagePack values as a tree that the page can fold. Nodes, depth and text are bounded for any value.

A node is a dict with the kind `k`: "object" and "array" have `items` (lists of [key, node], and of nodes) and their
number `n`, which may exceed the listed items; "string" has the text `v` and its length `n`; "number" has its text `v`;
"bytes" has their number `n`; "true", "false" and "null" have nothing more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import islice
from typing import Any

Node = dict[str, Any]

MAX_NODES = 4000
MAX_DEPTH = 64
_TEXT = 2000  # characters of a string
_KEY = 200
_DIGITS = 1000  # of an integer, about


def tree(value: Any) -> Node:
    """Return `value` as a tree of at most `MAX_NODES` nodes and `MAX_DEPTH` levels."""
    return _Trees().node(value, 0)


class _Trees:
    """Makes nodes while there is room for more."""

    def __init__(self) -> None:
        self._left = MAX_NODES

    def node(self, value: Any, depth: int) -> Node:
        self._left -= 1
        if isinstance(value, Mapping):
            return {"k": "object", "n": len(value), "items": self._pairs(value, depth)}
        if isinstance(value, list | tuple):
            return {"k": "array", "n": len(value), "items": self._items(value, depth)}
        return leaf(value)

    def _pairs(self, value: Mapping[Any, Any], depth: int) -> list[list[Any]]:
        if depth >= MAX_DEPTH:
            return []
        items: list[list[Any]] = []
        for key, item in value.items():
            if self._left <= 0:
                break
            items.append([shortened(key if isinstance(key, str) else str(key), _KEY), self.node(item, depth + 1)])
        return items

    def _items(self, value: list[Any] | tuple[Any, ...], depth: int) -> list[Node]:
        if depth >= MAX_DEPTH:
            return []
        items: list[Node] = []
        for item in islice(value, max(self._left, 0)):
            if self._left <= 0:
                break
            items.append(self.node(item, depth + 1))
        return items


def leaf(value: Any) -> Node:
    """Return the node of a value without items."""
    if value is None:
        return {"k": "null"}
    if isinstance(value, bool):
        return {"k": "true" if value else "false"}
    if isinstance(value, str):
        return {"k": "string", "v": value[:_TEXT], "n": len(value)}
    if isinstance(value, bytes | bytearray | memoryview):
        return {"k": "bytes", "n": len(value)}
    return {"k": "number", "v": number_text(value)}


def number_text(value: Any) -> str:
    """Return a number as text, so that the page can show every digit: JSON numbers lose some beyond 2^53."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, int) and value.bit_length() > 3 * _DIGITS:
        return f"an integer of {value.bit_length()} bits"
    return shortened(str(value), _DIGITS)


def shortened(text: str, limit: int) -> str:
    """Return at most `limit` characters of `text`, with an ellipsis if some are missing."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
