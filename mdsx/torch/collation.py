"""Collation: make batches of tensors from columns and samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate

from mdsx.format import ColumnType, Number
from mdsx.loader import ArrayBackend, join_samples
from mdsx.torch.gpu_pictures import pictures


def collate(samples: Sequence[Any]) -> Any:
    """Collate samples into a batch, whatever their columns hold.

        DataLoader(mdsx.Dataset(url), batch_size=32, collate_fn=mdsx.torch.collate)

    It works as PyTorch's `default_collate` where that works: arrays and tensors of one shape become a tensor [n, ...],
    numbers a tensor [n], str and bytes a list; dicts, tuples and lists are collated value by value. Everything else
    becomes a list of n values: columns with None, arrays of different shapes (as tensors), JSON of different forms.

    Raises:
        UsageError: The samples have different keys.
    """
    return join_samples(samples, default_collate, listed, torch.from_numpy)


def listed(values: list[Any]) -> list[Any]:
    """Convert arrays to tensors, and NumPy numbers to Python's; keep other values."""
    return [_plain(value) for value in values]


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        return torch.as_tensor(value)
    return value.item() if isinstance(value, np.number | np.bool_) else value


def _column(kind: ColumnType, values: Any) -> Any:
    if isinstance(values, list):
        if (later := pictures(kind, values)) is not None:
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
    """Return the PyTorch type of a column whose type NumPy lacks; PyTorch has it under the same name."""
    return None if not kind.scalar or kind.number.native else getattr(torch, kind.base)


def _viewed(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    return tensor if dtype is None else tensor.view(dtype)


def _scalar(number: Number, value: Any) -> Any:
    """Return a nullable scalar as a Python number or None. Values of a type that NumPy lacks arrive as bits."""
    if isinstance(value, np.generic):
        value = number.numpy(value)
    return value.item() if isinstance(value, np.generic) else value


TENSORS = ArrayBackend(array=_tensor, column=_column, listed=listed, collate=collate)
