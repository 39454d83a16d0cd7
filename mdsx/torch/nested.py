"""Change values inside a nested batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

_PLAIN = frozenset((str, bytes, memoryview, int, float, bool, type(None)))


def changed(batch: Any, method: str, change: Callable[[Any], Any]) -> Any:
    """Return a batch with `change(value)` in place of each value that has `method`, as tensors do: the batch itself, or
    values in its mappings, lists, tuples and named tuples. Other values stay."""
    if type(batch) in _PLAIN:
        return batch
    if callable(getattr(batch, method, None)):
        return change(batch)
    if isinstance(batch, Mapping):
        return _like(batch, {key: changed(value, method, change) for key, value in batch.items()})
    if isinstance(batch, tuple):
        values = [changed(value, method, change) for value in batch]
        return batch._make(values) if hasattr(batch, "_make") else type(batch)(values)
    if isinstance(batch, list):
        return _like(batch, [changed(value, method, change) for value in batch])
    return batch


def _like(batch: Any, values: Any) -> Any:
    """Return `values` as the type of `batch`, if possible."""
    if type(batch) is type(values):
        return values
    try:
        same = copy(batch)
        if isinstance(values, dict):
            same.update(values)
        else:
            same[:] = values
    except (AttributeError, TypeError):
        return values
    return same
