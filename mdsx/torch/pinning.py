"""Batches in pinned memory."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

import torch


def pinned(batch: Any) -> Any:
    """Return a batch whose tensors are in pinned memory: those in mappings, lists, tuples and named tuples, and what
    has a method `pin_memory`."""
    if isinstance(batch, torch.Tensor):
        return batch.pin_memory()
    if isinstance(batch, Mapping):
        return _like(batch, {key: pinned(value) for key, value in batch.items()})
    if isinstance(batch, tuple):
        values = map(pinned, batch)
        return batch._make(values) if hasattr(batch, "_make") else type(batch)(values)
    if isinstance(batch, list):
        return _like(batch, [pinned(value) for value in batch])
    return batch.pin_memory() if hasattr(batch, "pin_memory") else batch


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
