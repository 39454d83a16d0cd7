"""The cache of a simulated node: its files are numbers in memory, and the real `Evictor` decides which of them go.

The rules of admission are those of `CacheDirectory.fetch`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mdsx.simulating.clock import World
from mdsx.storage.cache import Cached, Evictor, Needs, Verdict, filenames

_SCANNED = 4e-6  # seconds that a scan takes for each file, on a common disk: candidates are kept in proportion
_FURTHEST = 1e8  # seconds, as in the cache


@dataclass(slots=True)
class _File:
    size: int
    needed: float
    leases: int = 0
    unfinished: bool = False


class Node:
    """The cache that the processes of a node share. `limit`: bytes."""

    def __init__(self, world: World, limit: int) -> None:
        self.world, self.limit = world, limit
        self.files: dict[str, _File] = {}
        self.total = self.peak = 0

    def add(self, path: str, size: int) -> None:
        """Make room count for a file that is being made, and hold it."""
        self.files[path] = _File(size, self.world.now, leases=1, unfinished=True)
        self.total += size
        self.peak = max(self.peak, self.total)

    def take_over(self, other: Node) -> None:
        """Hold what another cache held when its processes ended."""
        self.files = {path: _File(file.size, 0.0) for path, file in other.files.items() if not file.unfinished}
        self.total = sum(file.size for file in self.files.values())
        self.peak = self.total

    def remove(self, path: str) -> None:
        self.total -= self.files.pop(path).size


class NodeFiles:
    """The node's files as one process sees them (see eviction.Files)."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._spent = 0.0  # seconds on scans: they take none of the simulated time

    def scan(self) -> list[Cached]:
        files = self._node.files
        self._spent += _SCANNED * len(files)
        return [
            Cached(filenames.unfinished(path) if file.unfinished else path, file.size, file.needed)
            for path, file in files.items()
        ]

    def look_at(self, path: str) -> Cached | None:
        file = self._file(path)
        return None if file is None else Cached(path, file.size, file.needed)

    def evict(self, path: str) -> bool:
        file = self._file(path)
        if file is None:
            return True
        if file.leases:
            return False
        self._node.remove(path)
        return True

    def _file(self, path: str) -> _File | None:
        """Return the file with this path: a finished one, or one that is being made."""
        if filenames.is_unfinished(path):  # it is leased
            return next((file for name, file in self._node.files.items() if filenames.unfinished(name) == path), None)
        file = self._node.files.get(path)
        return None if file is None or file.unfinished else file

    def time(self) -> float:
        return self._node.world.now

    def monotonic(self) -> float:
        return self._node.world.now + self._spent


class ProcessCache:
    """The cache of a node, as one process uses it. Files have the paths that the real cache gives them."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._evictor = Evictor(NodeFiles(node))

    @property
    def limit(self) -> int:
        return self._node.limit

    def holds(self, path: str) -> bool:
        """Return whether the whole file is there."""
        file = self._node.files.get(path)
        return file is not None and not file.unfinished

    def is_being_made(self, path: str) -> bool:
        file = self._node.files.get(path)
        return file is not None and file.unfinished

    def open(self, path: str) -> bool:
        """Lease the file. Return whether it is there."""
        file = self._node.files.get(path)
        if file is None or file.unfinished:
            return False
        file.leases += 1
        self.date(path, 0.0)
        return True

    def release(self, path: str) -> None:
        self._node.files[path].leases -= 1

    def admit(self, path: str, size: int, needed_in: float, needs: Needs) -> Verdict | None:
        """Begin to make a file that is not there. Return None if that is possible, else why not."""
        node = self._node
        if path in node.files:
            return Verdict.BUSY
        total = self._evictor.make_room(node.total, size, node.limit, needed_in, needs)
        if total + size > node.limit:
            return Verdict.NO_ROOM
        node.add(path, size)
        return None

    def publish(self, path: str, needed_in: float) -> None:
        """Finish a file that `admit` began."""
        file = self._node.files[path]
        file.unfinished, file.leases = False, 0
        self.date(path, needed_in)

    def touch(self, path: str, needed_in: float) -> None:
        """Note when the file, which is not needed for now, is needed next."""
        self.date(path, needed_in)
        self._evictor.let_go(Path(path))

    def date(self, path: str, needed_in: float) -> None:
        """As `files.date`: of several needs that are still to come, the soonest stays."""
        file, now = self._node.files.get(path), self._node.world.now
        if file is not None:
            then = now + min(max(needed_in, 0.0), _FURTHEST)
            if not now < file.needed < then and (then > now or file.needed < now):
                file.needed = then
