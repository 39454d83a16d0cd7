"""The shards that a process has mapped, with limits for all its datasets together.

Rules:
- A mapping holds no descriptor, but a lease on a file of the cache does. All datasets together hold at most
  `most_leases()` leases, and `MAPPINGS` mappings, as the kernel allows about 65,000. Beyond that, the dataset with the
  most closes its least recently used shard.
- A closed shard stays mapped, and leased, until the last view of its memory is released.
- A forked child inherits the memory without the leases. So it closes all shards, and opens its own.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from threading import Lock

from mdsx.base.process import at_fork, most_leases
from mdsx.base.system import mapped_files
from mdsx.errors import CorruptError, MissingError
from mdsx.format import OpenedShard
from mdsx.storage import map_whole
from mdsx.storage.cache import held

MAPPINGS = 2**14  # at most


class Identity:
    """Identifies a file and its content without reading it.

    Every change of a file updates its ctime. In the cache, ctime is ignored, because the cache stores in a file's atime
    when it is needed; but nobody writes to a file that was removed from the cache.
    """

    __slots__ = ("_in_cache", "_inode", "_path", "_time")

    def __init__(self, path: str, *, in_cache: bool) -> None:
        self._path, self._in_cache = path, in_cache
        self._inode = self._time = -1
        with suppress(OSError):  # it is missing, or in a folder that this user may not enter
            found = os.stat(path)
            self._inode = found.st_ino
            self._time = found.st_mtime_ns if in_cache else found.st_ctime_ns

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Identity):
            return NotImplemented
        return (self._inode, self._time, self._path) == (other._inode, other._time, other._path)

    @property
    def stamp(self) -> int:
        """Return 64 bits that identify the content of the file at this path."""
        return hash((self._inode, self._time))

    def holds(self) -> bool:
        """Whether the file is the same and unchanged. Each read of a large sample calls this. It takes 2 us."""
        try:
            found = os.stat(self._path)
        except OSError:
            return self._in_cache
        time = found.st_mtime_ns if self._in_cache else found.st_ctime_ns
        return time == self._time and found.st_ino == self._inode


def map_in_place(path: Path) -> mmap.mmap:
    """Map a shard of a local dataset. Raise MissingError, ForbiddenError, or CorruptError if it is empty."""
    try:
        return map_whole(path)
    except MissingError:
        if os.path.lexists(path):  # a link to a file that is missing, or a FIFO
            raise
        hint = "copy it from a complete copy of the dataset; `mdsx verify` lists all missing and damaged shards"
        raise MissingError("a shard that the index names is missing", file=str(path), hint=hint) from None
    except ValueError as error:  # an empty file cannot be mapped
        raise CorruptError("the shard is empty", file=str(path)) from error


class Opened:
    """A mapped shard, and the results of its checks, which hold while its file is unchanged."""

    __slots__ = ("cheap", "checked", "damaged", "identity", "unchanged", "used", "verified", "view")

    def __init__(self, view: OpenedShard, verified: bool, identity: Identity) -> None:
        self.view = view
        self.cheap = view.checks_samples and view.checks_cheaply
        self.verified = verified
        self.identity = identity
        self.unchanged = identity.holds
        """Return whether the mapped file is still in place and unchanged."""
        self.checked = 0  # samples checked one by one
        self.damaged = False  # whether the check of the whole shard failed
        self.used = False  # since it was last considered for closing


class OpenShards:
    """The mapped shards of one dataset, by number. `leased`: whether they are in the cache."""

    def __init__(self, leased: bool) -> None:
        self.leased = leased
        self.size = 0  # bytes
        self._lock = Lock()
        self._shards: OrderedDict[int, Opened] = OrderedDict()
        self.get = self._shards.get
        with _lock:
            _all.add(self)

    def __len__(self) -> int:
        return len(self._shards)

    def __contains__(self, shard: int) -> bool:
        return shard in self._shards

    def add(self, shard: int, opened: Opened) -> None:
        self.pop(shard)
        with self._lock:
            self._shards[shard] = opened
            self.size += len(opened.view.buffer)

    def pop(self, shard: int) -> None:
        with self._lock:
            opened = self._shards.pop(shard, None)
            if opened is not None:
                self.size -= len(opened.view.buffer)

    def pop_oldest(self) -> bool:
        """Close the least recently used shard, approximately (CLOCK). Return whether there was one."""
        with self._lock:
            while self._shards:
                shard, opened = self._shards.popitem(last=False)
                if not opened.used:
                    self.size -= len(opened.view.buffer)
                    return True
                opened.used = False
                self._shards[shard] = opened
        return False

    def clear(self) -> None:
        with self._lock:
            self._shards.clear()
            self.size = 0

    def forget(self) -> None:
        """Reset a forked child's state: another thread of the parent may have held the lock."""
        self._lock = Lock()
        self.clear()


_all: weakref.WeakSet[OpenShards] = weakref.WeakSet()
_lock = Lock()


def make_room(*, leased: bool) -> bool:
    """Close shards until another one may be mapped, and leased if `leased`. Return whether that is possible."""
    while (crowded := mapped_files() >= MAPPINGS) or (leased and held() >= most_leases()):
        with _lock:
            most = max((each for each in _all if crowded or each.leased), key=len, default=None)
        if most is None or not most.pop_oldest():
            return False
    return True


def _forget_all() -> None:
    global _lock
    _lock = Lock()
    for each in list(_all):
        each.forget()


at_fork(after_in_child=_forget_all)
