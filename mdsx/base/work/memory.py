"""Numbers in memory that a loader's processes share."""

from __future__ import annotations

import os
import weakref
from multiprocessing.reduction import DupFd
from typing import Any

from mdsx.base.process import naming_limits
from mdsx.base.system import map_file, nameless_file

MEMORY = "the workers' shared memory"


class SharedNumbers:
    """`count` 64-bit integers, zero at first, in nameless shared memory. Other processes inherit it, or unpickle it
    when they start."""

    def __init__(self, count: int) -> None:
        self._size = 8 * max(count, 1)
        with naming_limits(MEMORY):
            self._own(nameless_file())
        os.ftruncate(self._descriptor, self._size)
        self._map()

    def _own(self, descriptor: int) -> None:
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor).atexit = False

    def _map(self) -> None:
        self.values = memoryview(map_file(self._descriptor, self._size, writable=True)).cast("q")

    def __getstate__(self) -> dict[str, Any]:
        return {"size": self._size, "descriptor": DupFd(self._descriptor)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._size = state["size"]
        with naming_limits(MEMORY):
            self._own(state["descriptor"].detach())
        self._map()
