"""Batches of tensors: how columns and samples become them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate

from mdsx.format import UINT8, ColumnType, Number
from mdsx.loader import ArrayBackend, join_samples
from mdsx.torch.gpu_pictures import pictures


def collate(samples: Sequence[Any]) -> Any:
    """Join samples into a batch, whatever their columns hold.

        DataLoader(mdsx.Dataset(url), batch_size=32, collate_fn=mdsx.torch.collate)

    It joins values as PyTorch's `default_collate` does: arrays and tensors of one shape to a tensor [n, ...], numbers
    to a tensor [n], str and bytes to a list; dicts, tuples and lists value by value. Everything else becomes a list of
    n values: columns with None, arrays of several shapes (as tensors), JSON of several forms.

    Raises:
        UsageError: The samples have different keys.
    """
    return join_samples(samples, default_collate, listed, torch.from_numpy)


def listed(values: list[Any]) -> list[Any]:
    """Make arrays tensors, and NumPy's numbers Python's; keep the rest."""
    return [_plain(value) for value in values]


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        return torch.as_tensor(value)
    return value.item() if isinstance(value, np.number | np.bool_) else value


def _column(kind: ColumnType, values: Any) -> Any:
    if isinstance(values, list):
        if kind.base == UINT8.name and (later := pictures(kind, values)) is not None:
            return later
        if kind.foreign is not None:
            return listed(values)
        if not kind.scalar:
            return values
        dtype, number = _dtype(kind), kind.number
        return [
            _viewed(torch.from_numpy(value), dtype) if isinstance(value, np.ndarray) else _scalar(number, value)
            for value in values
        ]
    return _tensor(kind, values)


def _tensor(kind: ColumnType, values: np.ndarray[Any, Any] | torch.Tensor) -> torch.Tensor:
    return _viewed(torch.from_numpy(values) if isinstance(values, np.ndarray) else values, _dtype(kind))


def _dtype(kind: ColumnType) -> torch.dtype | None:
    """Return the type of tensors whose stored items NumPy has as another type; PyTorch has it under the same name."""
    return None if not kind.scalar or kind.number.native else getattr(torch, kind.base)


def _viewed(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    return tensor if dtype is None else tensor.view(dtype)


def _scalar(number: Number, value: Any) -> Any:
    """A nullable scalar: a Python number or None. A type that NumPy lacks arrives as its bits."""
    if isinstance(value, np.generic):
        value = number.numpy(value)
    return value.item() if isinstance(value, np.generic) else value


TENSORS = ArrayBackend(array=_tensor, column=_column, listed=listed, collate=collate)
