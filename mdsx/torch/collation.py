"""Collation: PyTorch's default, and lists where that gives up."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence
from copy import copy
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate

from mdsx.errors import UsageError, shown


def collate(samples: Sequence[Any]) -> Any:
    """Join samples into a batch, whatever their columns hold.

        DataLoader(mdsx.Dataset(url), batch_size=32, collate_fn=mdsx.torch.collate)

    It joins values as PyTorch's `default_collate` does: arrays and tensors of one shape to a tensor [n, ...], numbers
    to a tensor [n], str and bytes to a list; dicts, tuples and lists value by value. Everything else becomes a list of
    n values: columns with None, arrays of several shapes (as tensors), JSON of several forms.

    Raises:
        UsageError: The samples have different keys.
    """
    mappings = [sample for sample in samples if isinstance(sample, Mapping)]
    other = next((sample for sample in mappings if set(sample) != set(mappings[0])), None)
    if other is not None:
        raise UsageError(
            "the samples of a batch have different keys",
            found=shown(sorted(other, key=str)),
            expected=shown(sorted(mappings[0], key=str)),
            hint="give each sample the same keys, with None where it has no value",
        )
    return _joined(list(samples))


def _joined(values: list[Any]) -> Any:
    first = values[0]
    if isinstance(first, str | bytes | memoryview) or any(value is None for value in values):
        return _listed(values)
    if isinstance(first, Mapping):
        if not all(isinstance(value, Mapping) and set(value) == set(first) for value in values):
            return values
        joined = {key: _joined([value[key] for value in values]) for key in first}
        return alike(first, joined)
    if isinstance(first, Sequence):
        if not all(isinstance(value, Sequence) and len(value) == len(first) for value in values):
            return values
        places = [_joined(list(column)) for column in zip(*values, strict=True)]
        if isinstance(first, tuple):
            return type(first)(*places) if hasattr(first, "_fields") else places
        return alike(first, places)
    try:
        return default_collate(values)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return _listed(values)


def alike(first: Any, joined: Any) -> Any:
    """Return `joined` as the type of `first` if possible, as PyTorch does."""
    try:
        if isinstance(first, MutableMapping):
            same: Any = copy(first)
            same.update(joined)
            return same
        if isinstance(first, MutableSequence):
            same = copy(first)
            for place, value in enumerate(joined):
                same[place] = value
            return same
        return type(first)(joined)
    except TypeError:
        return joined


def _listed(values: list[Any]) -> list[Any]:
    """Make arrays tensors, and NumPy's numbers Python's; keep the rest."""
    return [_plain(value) for value in values]


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        return torch.as_tensor(value)
    return value.item() if isinstance(value, np.number | np.bool_) else value
