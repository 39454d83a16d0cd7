"""Shared memory in which worker processes hand over arrays, used again and again.

PyTorch's own way makes a file, passes its descriptor and maps it for every tensor, which costs a millisecond, and a
page fault for each 4 KiB. Here the main process says with each task which slot is free, and learns from the last tensor
that dies when it is free again. The memory has no name: nothing is left over if a process is killed, and the limit of
`/dev/shm` does not apply. After a fork, the child may read the slots in use for an unknown time: they are never reused,
and a batch that finds no free slot is copied.
"""

from __future__ import annotations

import math
import mmap
import os
import weakref
from collections.abc import Mapping
from functools import cache
from itertools import accumulate, pairwise, starmap
from multiprocessing.reduction import DupFd
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from mdsx.process import at_fork, naming_limits
from mdsx.system import nameless_file

K = TypeVar("K")

_ALIGN = 64
_MEMORY = "the workers' shared memory"


class _Array(NamedTuple):
    """An array in a slot, `start` bytes from its beginning."""

    start: int
    dtype: str
    shape: tuple[int, ...]

    def find(self, slot: np.ndarray[Any, np.dtype[np.uint8]]) -> torch.Tensor:
        """Return the array in a slot, which lives as long as the tensor."""
        kind, count = _torch_dtype(self.dtype), math.prod(self.shape)
        if not count:
            return torch.from_numpy(slot)[:0].view(kind).view(self.shape)  # frombuffer takes no empty ones
        return torch.frombuffer(slot, dtype=kind, count=count, offset=self.start).view(self.shape)


@cache
def _torch_dtype(dtype: str) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype


class _Strings(NamedTuple):
    """Byte strings in a slot, one after the other, between these edges; or those that found no room there."""

    edges: list[int]
    values: list[bytes] | None
    nulls: list[int]  # places of the result that have none

    def cut(self, slot: memoryview, *, views: bool) -> list[Any]:
        found: list[Any]
        if self.values is not None:
            found = [memoryview(value) for value in self.values] if views else list(self.values)
        else:
            pieces = map(slot.toreadonly().__getitem__, starmap(slice, pairwise(self.edges)))
            found = list(pieces) if views else list(map(bytes, pieces))
        for place in self.nulls:
            found.insert(place, None)
        return found


class SharedMemory:
    """Memory, zeroed, that workers inherit or unpickle: `bytes`, uint8 [size]. It has no name."""

    def __init__(self, size: int) -> None:
        with naming_limits(_MEMORY):
            self._descriptor = nameless_file()
        os.ftruncate(self._descriptor, max(size, 1))
        self._map()
        weakref.finalize(self, os.close, self._descriptor)

    def _map(self) -> None:
        self.bytes = np.frombuffer(mmap.mmap(self._descriptor, 0), np.uint8)

    def __getstate__(self) -> dict[str, Any]:
        return {"descriptor": DupFd(self._descriptor)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        with naming_limits(_MEMORY):
            self._descriptor = state["descriptor"].detach()
        self._map()


class Slots:
    """`count` slots of `size` bytes. The process that made them owns them; workers inherit or unpickle them."""

    def __init__(self, count: int, size: int) -> None:
        self._size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        self._shared = SharedMemory(count * self._size)
        self._free, self._reserved, self._taken = list(range(count)), set[int](), set[int]()
        _owned.add(self)

    def __getstate__(self) -> dict[str, Any]:
        return {"_size": self._size, "_shared": self._shared}

    @property
    def _memory(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        return self._shared.bytes

    def reserve(self) -> int | None:
        """Return a free slot, or None. It is in use until the result of `take` dies."""
        if not self._free:
            return None
        slot = self._free.pop()
        self._reserved.add(slot)
        return slot

    def keep_for_children(self) -> None:
        """Never use the taken slots again."""
        self._taken.clear()

    def release_all(self) -> None:
        """Release all reserved slots: no worker writes to them now."""
        self._free += sorted(self._reserved)
        self._reserved.clear()

    def put(self, slot: int | None, columns: Mapping[K, Any]) -> dict[K, Any]:
        """In a worker: move the arrays and memory views of the columns to the slot, as far as it has room."""
        size = 0 if slot is None else self._size
        memory = self._memory.data[(slot or 0) * self._size :][:size]
        placed, reached = dict(columns), 0
        for name, values in columns.items():
            start = -(-reached // _ALIGN) * _ALIGN
            if isinstance(values, np.ndarray):
                if start + values.nbytes <= size:
                    reached = start + values.nbytes
                    np.frombuffer(memory[start:reached], values.dtype).reshape(values.shape)[...] = values
                    placed[name] = _Array(start, values.dtype.str, values.shape)
            elif isinstance(values, list) and (pieces := [value for value in values if isinstance(value, memoryview)]):
                ends = list(accumulate(map(len, pieces), initial=start))
                if ends[-1] <= size:
                    reached = ends[-1]
                    for piece, cut in zip(pieces, starmap(slice, pairwise(ends)), strict=True):
                        memory[cut] = piece
                nulls = [place for place, value in enumerate(values) if value is None]
                placed[name] = _Strings(ends, None if ends[-1] <= size else list(map(bytes, pieces)), nulls)
        return placed

    def take(self, slot: int | None, placed: Mapping[K, Any], *, views: bool) -> dict[K, Any]:
        """In the owner: return what was `put`. Arrays become tensors in the slot; memory views stay views with
        `views`, else they become bytes. The slot is free again when the last of them dies."""
        memory = self._memory[:0]
        if slot is not None:
            self._reserved.remove(slot)
            memory = self._memory[slot * self._size : (slot + 1) * self._size]
            self._taken.add(slot)
            weakref.finalize(memory, _give_back, slot, self._taken, self._free).atexit = False
        return {
            name: values.find(memory)
            if isinstance(values, _Array)
            else values.cut(memory.data, views=views)
            if isinstance(values, _Strings)
            else values
            for name, values in placed.items()
        }


def _give_back(slot: int, taken: set[int], free: list[int]) -> None:
    if slot in taken:
        taken.remove(slot)
        free.append(slot)


_owned: weakref.WeakSet[Slots] = weakref.WeakSet()


def _before_fork() -> None:
    for slots in list(_owned):
        slots.keep_for_children()


at_fork(before=_before_fork)
