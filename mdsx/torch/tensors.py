"""Tensors in the results of worker processes: their bytes cross in shared memory, like those of arrays."""

from __future__ import annotations

from pickle import PickleBuffer
from typing import Any

import torch

from mdsx.base.work import register_reducer


def _reduce(tensor: torch.Tensor) -> Any:
    """Reduce plain tensors to their bytes; leave the others to PyTorch."""
    plain = tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
    if not plain or tensor.requires_grad or tensor.is_conj() or tensor.is_neg() or tensor.is_nested:
        return NotImplemented
    name, shape = str(tensor.dtype)[6:], tuple(tensor.shape)
    if not tensor.numel():
        return _empty, (name, shape)
    flat = tensor.contiguous().as_strided((tensor.numel(),), (1,))  # a dimension of size 1 may have another stride
    values = flat.view(torch.uint8).numpy()
    return _rebuilt, (PickleBuffer(values.data), name, shape)


def _empty(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.empty(shape, dtype=getattr(torch, name))


def _rebuilt(buffer: memoryview, name: str, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.frombuffer(buffer, dtype=getattr(torch, name)).view(shape)


register_reducer(torch.Tensor, _reduce)
