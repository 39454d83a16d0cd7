"""Loaders for the conformance matrix that are wrong on purpose, each in one way, and one that is right."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.conformance.matrix import Cell, Data
from tools.conformance.task import Task
from tools.peers import Loader, Peer


class _Loader(Loader):
    """Yields samples in the order of their ids; may be wrong after a resume."""

    def __init__(self, task: Task, states: list[Any], kind: str) -> None:
        self._task, self._kind = task, kind
        self._ids = list(task.data[0].ids)
        self.epoch: int = states[-1][0] if states else 0
        self._position: int = states[-1][1] if states else 0
        if states and kind == "repeats":
            self._position -= task.shape.global_batch
        if states and kind == "loses":
            self._position += 3
        if states and kind == "reorders":
            self._ids[self._position :] = reversed(self._ids[self._position :])
        if states and kind == "fails":
            raise ValueError("no such state\nand more lines")
        if states and kind == "hangs":
            time.sleep(1000)

    def batches(self, epoch: int) -> Iterator[list[int]]:
        self.epoch = epoch
        size = self._task.shape.global_batch
        while self._position < len(self._ids):
            here = self._ids[self._position : self._position + size]
            self._position += size
            yield here[self._task.rank :: self._task.shape.world]
        self.epoch, self._position = epoch + 1, 0

    def state(self) -> Any:
        return self.epoch, self._position


class Wrong(Peer):
    """`kind` is its fault."""

    packages = ("pip",)

    def __init__(self, kind: str) -> None:
        self.name = self.title = self.kind = kind
        self.total_order = kind == "exact"

    def unsupported(self, cell: Cell) -> str | None:
        return "It says so itself." if self.kind == "unsupported" else None

    def prepare(self, directory: Path, data: Data) -> None:
        if self.kind == "unwritable":
            raise OSError("disk full")

    def open(self, task: Task, states: list[Any]) -> Loader:
        return _Loader(task, states, self.kind)


exact, repeats, loses, reorders, fails, hangs, unsupported, unwritable = map(
    Wrong, ("exact", "repeats", "loses", "reorders", "fails", "hangs", "unsupported", "unwritable")
)
