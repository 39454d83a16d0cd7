"""Copy batches to a device: pin them, and copy them one ahead of the training loop.

A carrier runs in a thread between the threads that make batches and the loop (`mdsx/base/work/relay.py`). On CUDA it
copies on its own stream, so that copies overlap with the loop's kernels. Pictures for the GPU to decode
(`gpu_pictures.py`) are decoded on this stream too:

- When `next()` returns a batch, the loop's stream waits for its copy; the processor does not.
- The loop's stream is recorded in each tensor: the tensor's memory is reused only after the work that the loop has
  queued by then.
- Pinned memory stays until it is copied. PyTorch's allocator then reuses it for another batch.
- The device holds three batches: the one that it works on, the one returned after it, and the next one. So `next()`
  waits until the device has finished the batch before the last one. Otherwise a loop that never waits for its device
  would have batch after batch copied. Statistics do not count this as waiting for data.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import cuda

from mdsx.errors import UsageError, shown
from mdsx.torch.gpu_pictures import Pictures
from mdsx.torch.nested import changed

_RECORD = "record_stream"
_PINNED = (torch.strided, torch.jagged)

Made = Iterator[tuple[Any, Any]]
Carried = Generator[tuple[Any, Any], None, None]


def checked_device(device: str | int | torch.device) -> torch.device:
    """Return a device that this process can use. Raise UsageError for others. Do not initialise CUDA."""
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise UsageError("device is not a PyTorch device", found=shown(device), expected="cuda, cuda:1, cpu") from error
    if found.type == "cuda":
        count = cuda.device_count() if cuda.is_available() else 0
        if (found.index or 0) >= count:
            hint = "nvidia-smi lists the machine's GPUs, and python -m torch.utils.collect_env what PyTorch can use"
            raise UsageError(f"there is no device {found}", found=f"{count} CUDA devices", hint=hint)
        return found
    try:
        torch.empty(0, device=found)
    except Exception as error:  # each backend raises its own errors
        raise UsageError(f"there is no device {found}: {error}") from error
    return found


def carrier(device: torch.device | None, pin_memory: bool) -> Pinning | Moving | Copying | None:
    """Return a carrier that moves batches to a device, or only to pinned memory; None if there is nothing to do."""
    if pin_memory and cuda.is_available() and (device is None or device.type == "cpu"):
        return Pinning()
    if device is None:
        return None
    return Copying(device) if device.type == "cuda" else Moving(device)


class Pinning:
    """Copies tensors to pinned memory."""

    def carry(self, made: Made) -> Carried:
        yield from map(_second(pinned), made)

    def arrived(self, batch: Any) -> Any:
        return batch


class Moving:
    """Moves batches to a device without streams."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def carry(self, made: Made) -> Carried:
        yield from map(_second(self._moved), made)

    def arrived(self, batch: Any) -> Any:
        return batch

    def _moved(self, batch: Any) -> Any:
        return changed(batch, "to", lambda value: value.to(self._device))


class Copying:
    """Copies batches to a CUDA device, on a stream that the loader keeps."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._streams: dict[torch.device, Any] = {}
        self._reached: Any = None  # the event after the work that was queued when a batch was last returned
        self._late: Sequence[Any] = ()  # pinned values that may be in use until then

    def __getstate__(self) -> dict[str, Any]:
        return {"_device": self._device, "_streams": {}, "_reached": None, "_late": ()}

    def carry(self, made: Made) -> Carried:
        index = self._device.index
        device = torch.device("cuda", cuda.current_device() if index is None else index)  # of the consumer's thread
        if device not in self._streams:
            self._streams[device] = cuda.Stream(device)  # type: ignore[no-untyped-call]
        return self._carried(made, device, self._streams[device])

    def arrived(self, batch: _Copied) -> Any:
        """Return a batch to the loop. The current stream waits for its copy."""
        stream = cuda.current_stream(batch.device)
        if self._reached is not None:
            self._reached.synchronize()
        found, self._late = batch.taken(stream), batch.late
        self._reached = _event(stream)
        return found

    def _carried(self, made: Made, device: torch.device, stream: Any) -> Carried:
        under_way: tuple[Any, Any] | None = None  # the end of a copy, and the pinned memory that it reads
        reached = None
        try:
            for task, batch in made:
                source = pinned(batch)
                del batch
                if under_way is not None:
                    under_way[0].synchronize()
                if reached is not None:
                    reached.synchronize()
                copied = _Copied(source, device, stream)
                under_way = copied.done, source
                del source
                yield task, copied
                reached = self._reached
        finally:
            if under_way is not None:
                under_way[0].synchronize()


class _Copied:
    """A batch whose tensors are being copied."""

    def __init__(self, batch: Any, device: torch.device, stream: Any) -> None:
        self.device = device
        self._copies: list[Any] = []
        self.late: list[Any] = []
        """Values that the consumer's stream copies."""
        with cuda.stream(stream):
            self._batch = changed(batch, "to", self._copy)
        self.done = _event(stream)

    def taken(self, stream: Any) -> Any:
        """Return the batch to a consumer with this current stream, and drop all references to it."""
        stream.wait_event(self.done)
        for value in self._copies:
            value.record_stream(stream)
        batch, self._batch = self._batch, None
        if self.late:
            batch = changed(batch, "to", partial(_copied_late, set(map(id, self._copies)), self.device))
        self._copies.clear()
        return batch

    def _copy(self, value: Any) -> Any:
        """Copy a tensor, or another object with `record_stream`, and decode pictures. Leave others to the consumer's
        stream."""
        if isinstance(value, Pictures):
            return changed(value.to(self.device), _RECORD, self._keep)
        recordable = value.layout is torch.strided if isinstance(value, torch.Tensor) else hasattr(value, _RECORD)
        if not recordable:
            self.late.append(value)
            return value
        return self._keep(_to(value, self.device))

    def _keep(self, copy: Any) -> Any:
        self._copies.append(copy)
        return copy


def _event(stream: Any) -> Any:
    """Return an event that completes once `stream` has finished its queued work. Waiting for it uses no processor."""
    event = cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
    event.record(stream)
    return event


def _second(change: Callable[[Any], Any]) -> Callable[[tuple[Any, Any]], tuple[Any, Any]]:
    """Return a function that changes the batch of a pair. A loop instead would keep the last batch in a variable."""
    return lambda pair: (pair[0], change(pair[1]))


def pinned(batch: Any) -> Any:
    """Return a batch whose tensors are in pinned memory, except sparse ones and those on a device."""
    return changed(batch, "pin_memory", _pinned)


def _pinned(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and (value.device.type != "cpu" or value.layout not in _PINNED):
        return value
    return value.pin_memory()


def _copied_late(copies: set[int], device: torch.device, value: Any) -> Any:
    return value if id(value) in copies else _to(value, device)


def _to(value: Any, device: torch.device) -> Any:
    try:
        return value.to(device, non_blocking=True)
    except TypeError:  # its class lacks this argument
        return value.to(device)
