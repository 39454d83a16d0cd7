"""Shared memory in which worker processes hand over arrays, used again and again.

PyTorch's own way makes a file, passes its descriptor and maps it for every tensor, which costs a millisecond, and a
page fault for each 4 KiB. Here the main process says with each task which slot is free, and learns from the last tensor
that dies when it is free again. The memory has no name: nothing stays behind, whoever is killed, and no limit of
`/dev/shm` counts.
"""

from __future__ import annotations

import math
import mmap
import os
import weakref
from multiprocessing.reduction import DupFd
from typing import Any, NamedTuple

import numpy as np
import torch

from mdsx.shards import Columns

_ALIGN = 64


class _Placed(NamedTuple):
    """An array that lies in a slot, `start` bytes from its beginning."""

    start: int
    dtype: str
    shape: tuple[int, ...]


class Slots:
    """`count` slots of `size` bytes. The process that made them owns them; workers inherit or unpickle them."""

    def __init__(self, count: int, size: int) -> None:
        self._size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        self._descriptor = os.memfd_create("mdsx-slots")
        os.ftruncate(self._descriptor, max(count * self._size, 1))
        self._map()
        self._free, self._reserved = list(range(count)), set[int]()
        weakref.finalize(self, os.close, self._descriptor)

    def _map(self) -> None:
        self._memory = np.frombuffer(mmap.mmap(self._descriptor, 0), np.uint8)

    def __getstate__(self) -> dict[str, Any]:
        return {"size": self._size, "descriptor": DupFd(self._descriptor)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._size, self._descriptor = state["size"], state["descriptor"].detach()
        self._map()

    def reserve(self) -> int | None:
        """A slot that nobody uses, or None. It is used until `release`, or until what `take` gave is gone."""
        if not self._free:
            return None
        slot = self._free.pop()
        self._reserved.add(slot)
        return slot

    def release(self, slot: int | None) -> None:
        """A reserved slot from which nothing is taken."""
        if slot is not None:
            self._reserved.remove(slot)
            self._free.append(slot)

    def release_all(self) -> None:
        """All that are reserved: no worker writes to them any more."""
        for slot in sorted(self._reserved):
            self.release(slot)

    def put(self, slot: int | None, columns: Columns) -> Columns:
        """In a worker: the columns, their arrays in the slot as far as it has room."""
        if slot is None:
            return columns
        placed, reached = dict(columns), 0
        for name, values in columns.items():
            start = -(-reached // _ALIGN) * _ALIGN
            if isinstance(values, np.ndarray) and start + values.nbytes <= self._size:
                reached = start + values.nbytes
                memory = self._memory[slot * self._size :][start:reached]
                memory.view(values.dtype).reshape(values.shape)[...] = values
                placed[name] = _Placed(start, values.dtype.str, values.shape)
        return placed

    def take(self, slot: int | None, placed: Columns) -> Columns:
        """In the owner: what was `put`. What was an array is a tensor in the slot, which is free again with the last of
        them: PyTorch keeps the array that it was made of for as long as any tensor looks at it."""
        if slot is None:
            return placed
        self._reserved.remove(slot)
        memory = self._memory[slot * self._size : (slot + 1) * self._size]
        weakref.finalize(memory, self._free.append, slot).atexit = False
        whole = torch.from_numpy(memory)
        return {
            name: _find(whole, values) if isinstance(values, _Placed) else values for name, values in placed.items()
        }


def _find(whole: torch.Tensor, placed: _Placed) -> torch.Tensor:
    kind = torch.from_numpy(np.empty(0, placed.dtype)).dtype
    size = math.prod(placed.shape) * np.dtype(placed.dtype).itemsize
    return whole[placed.start : placed.start + size].view(kind).view(placed.shape)
