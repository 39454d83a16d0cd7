"""Reusable shared memory in which worker processes hand over bytes.

A slot is a nameless file. A worker makes it and sends its descriptor once, and both processes map it. The consumer's
process returns the slot when the last array that views it has died. Only then does the worker write to it again, so a
result that the user keeps never changes. A worker without a free slot makes another one. Reuse saves a page fault for
each 4 KiB.

As the memory has no name, a killed process leaks nothing, and the limit of `/dev/shm` does not apply. A forked
child may read the slots in use for an unknown time, so they are never reused.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.base.process import at_fork, naming_limits
from mdsx.base.system import map_file, nameless_file
from mdsx.base.work.memory import MEMORY
from mdsx.base.work.parcels import Buffer, Parcel, unpack

_ALIGN = 64
_INLINE = 2**12  # bytes of a pickle that is sent in the message


class Sent(NamedTuple):
    """The location of a parcel's pickle and buffers in a slot."""

    slot: int  # -1: no slot, as the parcel has no buffers
    pickled: bytes | None  # None: it is in the slot, at the first of the edges
    edges: list[tuple[int, int]]


class SlotWriter:
    """The slots of a worker process."""

    def __init__(self) -> None:
        self.new: list[tuple[int, int, int]] = []  # (slot, size, descriptor) of slots that were not sent yet
        self._memory: dict[int, memoryview] = {}
        self._free: list[int] = []  # the most recently used slot, maybe still in the processor's cache, is last
        self._slot, self._reached = -1, 0
        self._made = 0
        self._most = 0  # bytes of the largest chunk

    def begin(self) -> None:
        """Begin a message."""
        self._slot = -1

    def put(self, parcel: Parcel, longest: int) -> Sent:
        """Copy a parcel to this message's slot, or to another one. `longest`: a new slot has room for this many parcels
        of this size, the most in a message, so that later messages can reuse it."""
        buffers: list[Buffer] = list(parcel.buffers)
        pickled: bytes | None = parcel.pickled
        if len(parcel.pickled) > _INLINE:
            buffers.insert(0, memoryview(parcel.pickled))
            pickled = None
        if not buffers:
            return Sent(-1, pickled, [])
        sizes = [sum(map(len, each)) if isinstance(each, list) else len(each) for each in buffers]
        room = sum(-(-size // _ALIGN) * _ALIGN for size in sizes)
        if self._slot < 0 or self._reached + room > len(self._memory[self._slot]):
            self._slot, self._reached = self._take(room, room * longest), 0
        memory, edges = self._memory[self._slot], list[tuple[int, int]]()
        for buffer, size in zip(buffers, sizes, strict=True):
            start = self._reached
            edges.append((start, start + size))
            if isinstance(buffer, list):
                for piece in buffer:
                    memory[start : start + len(piece)] = piece
                    start += len(piece)
            else:
                memory[start : start + size] = buffer
            self._reached = -(-(edges[-1][1]) // _ALIGN) * _ALIGN
        self._most = max(self._most, self._reached)
        return Sent(self._slot, pickled, edges)

    def returned(self, free: Sequence[int], dropped: Sequence[int]) -> None:
        """Note which slots may be reused, and which never."""
        self._free += free
        for slot in dropped:
            del self._memory[slot]

    def _take(self, needed: int, wanted: int) -> int:
        """Return a slot of at least `needed` bytes. A new one has room for `wanted`: untouched pages take no memory."""
        for place in reversed(range(len(self._free))):
            if len(self._memory[self._free[place]]) >= needed:
                return self._free.pop(place)
        size = max(wanted, self._most, 1)
        size = -(-(size + size // 8) // mmap.PAGESIZE) * mmap.PAGESIZE
        with naming_limits(MEMORY):
            descriptor = nameless_file()
        try:
            os.ftruncate(descriptor, size)
            memory = memoryview(map_file(descriptor, size, writable=True))
        except BaseException:
            os.close(descriptor)
            raise
        slot, self._made = self._made, self._made + 1
        self._memory[slot] = memory
        self.new.append((slot, size, descriptor))
        return slot


class SlotReader:
    """The slots of one worker, in the consumer's process. `spare`: how many unused slots stay mapped."""

    def __init__(self, spare: int) -> None:
        self._spare = spare
        self._memory: dict[int, NDArray[np.uint8]] = {}
        self._taken = set[int]()
        self._free, self._lost = list[int](), list[int]()
        _readers.add(self)

    def add(self, slot: int, size: int, descriptor: int) -> None:
        """Map a new slot, and close its descriptor."""
        try:
            self._memory[slot] = np.frombuffer(map_file(descriptor, size, writable=True), np.uint8)
        finally:
            os.close(descriptor)

    def take(self, slots: set[int]) -> dict[int, memoryview]:
        """Return the memory of slots. A slot becomes free when its last view dies."""
        found = {}
        for slot in slots:
            self._taken.add(slot)
            memory = self._memory[slot][:]
            weakref.finalize(memory, _give_back, slot, self._taken, self._free).atexit = False
            found[slot] = memory.data
        return found

    def returns(self) -> tuple[list[int], list[int]]:
        """Return the slots that the worker may write to again, and those that it must drop."""
        free, dropped = list[int](), list[int]()
        while self._lost:
            dropped.append(self._lost.pop())
        while self._free:
            slot = self._free.pop()
            spares = len(self._memory) - len(self._taken) - len(dropped)
            (free if spares <= self._spare else dropped).append(slot)
        for slot in dropped:
            del self._memory[slot]  # its arrays may live on
        return free[::-1], dropped

    def keep_for_children(self) -> None:
        """Never reuse the slots in use."""
        while self._taken:
            self._lost.append(self._taken.pop())


def _give_back(slot: int, taken: set[int], free: list[int]) -> None:
    if slot in taken:
        taken.remove(slot)
        free.append(slot)


def found_in(sent: Sent, memory: dict[int, memoryview]) -> Any:
    """Return the result of a parcel in these slots."""
    pickled, edges = sent.pickled, sent.edges
    if not edges:
        return unpack(pickled, ())
    slot = memory[sent.slot]
    if pickled is not None:
        return unpack(pickled, [slot[start:stop] for start, stop in edges])
    (start, stop), *edges = edges
    return unpack(slot[start:stop], [slot[start:stop] for start, stop in edges])


_readers: weakref.WeakSet[SlotReader] = weakref.WeakSet()


def _before_fork() -> None:
    for reader in list(_readers):
        reader.keep_for_children()


at_fork(before=_before_fork)
