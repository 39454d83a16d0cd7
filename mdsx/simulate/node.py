"""The cache of a simulated node: its files are numbers in memory, and the real `Evictor` decides which ones to remove.

The rules of admission are those of `CacheDirectory.fetch`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mdsx.simulate.clock import World
from mdsx.storage.cache import Announced, Cached, Evictor, Needs, Verdict, filenames

_SCANNED = 4e-6  # seconds per file of a scan, on a common disk: candidates are kept in proportion


@dataclass(slots=True)
class _File:
    size: int
    needed: float
    leases: int = 0


class Node:
    """The cache that the processes of a node share. `limit`: bytes; `files`: by path. A file being made is leased, and
    has the name of an unfinished file."""

    def __init__(self, world: World, limit: int) -> None:
        self.world, self.limit = world, limit
        self.files: dict[str, _File] = {}
        self.announced: dict[str, dict[int, Announced]] = {}  # by folder, then by reader
        self.total = self.peak = 0

    def add(self, path: str, size: int) -> None:
        """Count the size of a file that is being made."""
        self.files[filenames.unfinished(path)] = _File(size, self.world.now, leases=1)
        self.total += size
        self.peak = max(self.peak, self.total)

    def finish(self, path: str) -> None:
        """Give a finished file its name."""
        file = self.files[path] = self.files.pop(filenames.unfinished(path))
        file.leases = 0

    def take_over(self, other: Node) -> None:
        """Hold the files that another cache held when its processes ended."""
        whole = {path: file for path, file in other.files.items() if not filenames.is_unfinished(path)}
        self.files = {path: _File(file.size, 0.0) for path, file in whole.items()}
        self.total = sum(file.size for file in self.files.values())
        self.peak = self.total

    def remove(self, path: str) -> None:
        self.total -= self.files.pop(path).size


class NodeFiles:
    """The node's files as one process sees them (see eviction.Files)."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._spent = 0.0  # seconds on scans, which do not count as simulated time

    def scan(self) -> list[Cached]:
        files = self._node.files
        self._spent += _SCANNED * len(files)
        return [Cached(path, file.size, file.needed) for path, file in files.items()]

    def announced(self) -> Mapping[str, Sequence[Announced]]:
        return {folder: [*readers.values()] for folder, readers in self._node.announced.items()}

    def look_at(self, path: str) -> Cached | None:
        file = self._node.files.get(path)
        return None if file is None else Cached(path, file.size, file.needed)

    def evict(self, path: str) -> bool:
        file = self._node.files.get(path)
        if file is None:
            return True
        if file.leases:
            return False
        self._node.remove(path)
        return True

    def set_next_use(self, path: str, then: float) -> None:
        self._node.files[path].needed = then

    def time(self) -> float:
        return self._node.world.now

    def monotonic(self) -> float:
        return self._node.world.now + self._spent


class NodeAnnouncer:
    """The announcer of a reader, on a simulated node (see shards/needs.py)."""

    def __init__(self, node: Node, folder: str, shards: NDArray[np.int64], heads: NDArray[np.uint64]) -> None:
        """`shards`: those that it reads; `heads`: their hashes' first 64 bits, ascending."""
        self._readers = node.announced.setdefault(folder, {})
        self._folder, self._shards = folder, shards
        self._announced = Announced(np.zeros(1), heads, np.full(len(shards), math.inf))

    def announce(self, needs: Callable[[], Needs]) -> None:
        found = needs()[self._folder]
        self._announced.seconds[:] = found.seconds[self._shards]
        self._announced.epoch[0] = found.epoch
        self._readers[id(self)] = self._announced

    def withdraw(self) -> None:
        self._readers.pop(id(self), None)


class ProcessCache:
    """The cache of a node, as one process uses it. Files have the paths that the real cache gives them."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._evictor = Evictor(NodeFiles(node))

    @property
    def limit(self) -> int:
        return self.node.limit

    def holds(self, path: str) -> bool:
        """Return whether the cache has the whole file."""
        return path in self.node.files

    def is_being_made(self, path: str) -> bool:
        return filenames.unfinished(path) in self.node.files

    def open(self, path: str) -> bool:
        """Lease the file. Return whether it exists."""
        file = self.node.files.get(path)
        if file is None:
            return False
        file.leases += 1
        self.set_next_use(path, 0.0)
        return True

    def release(self, path: str) -> None:
        self.node.files[path].leases -= 1

    def admit(self, path: str, size: int, needed_in: float, needs: Needs) -> Verdict | None:
        """Begin to make a missing file. Return None if that is possible, otherwise why not."""
        node = self.node
        if self.is_being_made(path):
            return Verdict.BUSY
        total = self._evictor.make_room(node.total, size, node.limit, needed_in, needs)
        if total + size > node.limit:
            return Verdict.NO_ROOM
        node.add(path, size)
        return None

    def publish(self, path: str, needed_in: float) -> None:
        """Finish a file that `admit` began."""
        self.node.finish(path)
        self.set_next_use(path, needed_in)

    def touch(self, path: str, needed_in: float) -> None:
        """Note when the file, which is not in use, is needed next."""
        self._evictor.release(Path(path), needed_in)

    def set_next_use(self, path: str, needed_in: float) -> None:
        """Note when the file is needed; 0: it is used now."""
        self._evictor.set_next_use(Path(path), needed_in)
