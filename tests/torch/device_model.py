"""A CUDA device in a model: what mdsx uses of `torch.cuda`, with a device that is as late as CUDA allows.

A stream does its queued work only when somebody waits for it, and then no more than is waited for. Memory of an array
that dies is given to the next array of the same stream at once, even if work of another stream is still to read it,
unless that stream was recorded in the array: as PyTorch's allocator does. Pinned memory that dies is overwritten.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

_lock = threading.RLock()
LOST = [-1.0]


class ModelStream:
    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.queued = self.done = 0
        self.free: list[Block] = []
        self._work: deque[Callable[[], object]] = deque()

    def queue(self, work: Callable[[], object]) -> None:
        with _lock:
            self._work.append(work)
            self.queued += 1

    def reach(self, number: int) -> None:
        """Do the work that was queued first, up to this number of pieces."""
        with _lock:
            while self.done < number:
                self._work.popleft()()
                self.done += 1

    def wait_event(self, event: ModelEvent) -> None:
        self.queue(event.synchronize)

    def synchronize(self) -> None:
        self.reach(self.queued)


class ModelEvent:
    def __init__(self, blocking: bool = False) -> None:
        self.synchronize: Callable[[], object] = int

    def record(self, stream: ModelStream) -> None:
        number = stream.queued
        self.synchronize = lambda: stream.reach(number)


class Block:
    """Memory of an array on the device. `users`: streams that use it, and the work that each had when it was freed."""

    def __init__(self) -> None:
        self.values = LOST
        self.users: dict[ModelStream, int] = {}

    @property
    def idle(self) -> bool:
        return all(stream.done >= number for stream, number in self.users.items())


class Cuda:
    """The names of `torch.cuda`. `blocks`: how many arrays the memory that was ever taken has room for."""

    Stream, Event = ModelStream, ModelEvent

    def __init__(self, devices: int = 1, current: int = 0) -> None:
        self.blocks, self.pinned_in = 0, set[str]()
        self._devices, self._device = devices, current
        self._default = {index: ModelStream(torch.device("cuda", index)) for index in range(devices)}
        self._here = threading.local()

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return self._devices

    def current_device(self) -> int:
        return self._device if threading.current_thread() is threading.main_thread() else 0  # as CUDA: of each thread

    def current_stream(self, device: torch.device) -> ModelStream:
        stream: ModelStream | None = getattr(self._here, "stream", None)
        return stream if stream is not None else self._default[device.index]

    @contextmanager
    def stream(self, stream: ModelStream) -> Iterator[None]:
        before, self._here.stream = getattr(self._here, "stream", None), stream
        try:
            yield
        finally:
            self._here.stream = before

    def taken(self, stream: ModelStream) -> Block:
        with _lock:
            for place, block in enumerate(stream.free):
                if block.idle:
                    del stream.free[place]
                    block.users.clear()
                    return block
            self.blocks += 1
            return Block()


class OnDevice:
    """An array on the device."""

    def __init__(self, cuda: Cuda, device: torch.device) -> None:
        self.cuda, self.device = cuda, device
        owner = cuda.current_stream(device)
        self.block, self._users = cuda.taken(owner), set[ModelStream]()
        weakref.finalize(self, _freed, owner, self.block, self._users)

    def record_stream(self, stream: ModelStream) -> None:
        self._users.add(stream)

    def to(self, device: torch.device, non_blocking: bool = False) -> OnDevice:
        return self

    def read(self, out: list[Any]) -> None:
        """Queue a kernel that reads the array. It keeps no reference to it, as kernels do."""
        block = self.block
        self.cuda.current_stream(self.device).queue(lambda: out.append(block.values))


def _freed(owner: ModelStream, block: Block, users: set[ModelStream]) -> None:
    with _lock:
        block.users.update((stream, stream.queued) for stream in users)
        owner.free.append(block)


class OnHost:
    """An array in memory. `cuda`: the model in force."""

    cuda: Cuda
    before_pinning: Callable[[], object] = int

    def __init__(self, values: list[float], *, pinned: bool = False) -> None:
        self.values, self.pinned = [values], pinned  # a cell, which outlives the array
        if pinned:
            weakref.finalize(self, self.values.__setitem__, 0, LOST)

    def pin_memory(self) -> OnHost:
        type(self).before_pinning()
        self.cuda.pinned_in.add(threading.current_thread().name)
        return type(self)(self.values[0], pinned=True)

    def to(self, device: torch.device, non_blocking: bool = False) -> OnDevice:
        assert non_blocking
        assert self.pinned
        found, cell = OnDevice(self.cuda, device), self.values
        block = found.block

        def copy() -> None:
            block.values = cell[0]

        self.cuda.current_stream(device).queue(copy)
        return found

    def record_stream(self, stream: ModelStream) -> None:
        raise AssertionError("a stream was recorded in an array that is not on the device")


class Unrecordable:
    """An object that knows no streams: whatever it copies belongs to the stream that is current then."""

    def __init__(self, values: list[float], pinned: OnHost | None = None) -> None:
        self.values, self.pinned = values, pinned

    def pin_memory(self) -> Unrecordable:
        return Unrecordable(self.values, OnHost(self.values).pin_memory())

    def to(self, device: torch.device) -> tuple[OnDevice]:
        assert self.pinned is not None
        return (self.pinned.to(device, non_blocking=True),)
