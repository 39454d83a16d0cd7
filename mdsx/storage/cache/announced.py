"""Announcements of when the processes of a node need a dataset's shards. Each process that reads in order keeps a file
of its needs (`Announcement`), and evicts by the files of all processes (`Announced`).

The file has, in eight bytes each: the first bytes of the raw hashes of the process's n shards, sorted; the seconds of
the process's epoch; and the seconds until it needs each shard. The process holds a shared lock on the file. If a file
is not locked, its process has ended.

No process waits for these files, and their content is only a hint. They count towards the cache's limit.

Seconds count from the position that the process has reached, and do not pass while it is idle. So a stopped job keeps
only the shards that it needs first.
"""

from __future__ import annotations

import math
import os
import secrets
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.base.process import Owner
from mdsx.base.system import fcntl, map_file
from mdsx.storage.cache import filenames
from mdsx.storage.cache.directory import entries, is_folder, make_folder
from mdsx.storage.cache.files import Hold, remove, size_of

_ITEM = 8  # bytes


def heads_of(raw_hashes: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return uint64 [n]: the first eight bytes of each of `raw_hashes`, uint8 [n, 16]."""
    return np.ascontiguousarray(raw_hashes[:, :_ITEM]).view(np.uint64).ravel()


class Announced(NamedTuple):
    """When a process needs shards. `epoch` (float64 [1]): the seconds of its epoch; `heads`: uint64 [n], sorted;
    `seconds`: float64 [n]."""

    epoch: NDArray[np.float64]
    heads: NDArray[np.uint64]
    seconds: NDArray[np.float64]

    def of(self, heads: NDArray[np.uint64], epoch: float) -> NDArray[np.float64]:
        """Return float64 [n]: in how many seconds the process needs these shards; infinity if never. With `epoch`, as
        if its epoch lasted that many seconds."""
        if not len(self.heads):
            return np.full(len(heads), math.inf)
        places = np.minimum(np.searchsorted(self.heads, heads), len(self.heads) - 1)
        found, theirs = self.seconds[places], float(self.epoch[0])
        if epoch > 0 and 0 < theirs < math.inf:
            found = found * (epoch / theirs)
        return np.where((self.heads[places] == heads) & (found >= 0), found, math.inf)


def soonest(announced: Sequence[Announced], heads: NDArray[np.uint64], epoch: float) -> NDArray[np.float64]:
    """Return the soonest need of these shards by any of `announced` (see Announced.of)."""
    found = np.full(len(heads), math.inf)
    for each in announced:
        np.minimum(found, each.of(heads, epoch), out=found)
    return found


class Announcement:
    """The file in which a process announces its needs of one dataset's shards."""

    def __init__(self, folder: Path, fingerprint: str, heads: NDArray[np.uint64]) -> None:
        """`folder`: the cache's folder for these files; `heads`: uint64 [n], sorted. Call it with the ledger's lock
        held. Raise OSError."""
        make_folder(folder)
        path = folder / filenames.needs(fingerprint, secrets.token_hex(8))
        self._hold = Hold(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        self._owner = Owner()
        self._end = weakref.finalize(self, _withdraw, self._hold, path, self._owner)
        self._hold.lock(fcntl.LOCK_SH)  # no wait: the file is new
        self._shards = len(heads)
        os.pwrite(self._hold.descriptor, heads.tobytes(), 0)
        self._write(np.full(self._shards, math.inf), 0.0)

    @staticmethod
    def size(shards: int) -> int:
        """Return the bytes of the file for this many shards."""
        return _ITEM * (2 * shards + 1)

    def update(self, seconds: NDArray[np.float64], epoch: float) -> None:
        """Announce the `seconds` (float64 [n]) until this process needs each shard; `epoch`: seconds of an epoch."""
        if self._end.alive and self._owner.here:  # a forked child has the object, but not the file
            with suppress(OSError):  # the disk is full
                self._write(seconds, epoch)

    def withdraw(self) -> None:
        """Withdraw the announcement."""
        self.update(np.full(self._shards, math.inf), 0.0)  # other processes may have the file mapped
        self._end()

    def _write(self, seconds: NDArray[np.float64], epoch: float) -> None:
        os.pwrite(self._hold.descriptor, np.append(epoch, seconds).tobytes(), _ITEM * self._shards)


def _withdraw(hold: Hold, path: Path, owner: Owner) -> None:
    if not owner.here:
        return
    with suppress(OSError):
        remove(path)
    hold.release()


class Announcements:
    """The announcements of all processes in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mapped: dict[str, Announced] = {}  # by name

    def scan(self) -> dict[str, list[Announced]]:
        """Return the announcements of live processes, by fingerprint, and remove the files of dead ones. The returned
        values change with the files. Call it with the ledger's lock held."""
        found: dict[str, list[Announced]] = {}
        mapped: dict[str, Announced] = {}
        for fingerprint, path in self._files():
            with suppress(OSError):
                announced = self._live(path)
                if announced is not None:
                    mapped[path.name] = announced
                    found.setdefault(fingerprint, []).append(announced)
        self._mapped = mapped
        return found

    def size(self) -> int:
        """Return the bytes of all files."""
        return sum(size_of(path) for _, path in self._files())

    def _files(self) -> Iterator[tuple[str, Path]]:
        """Yield the fingerprint and the path of each file."""
        for entry in entries(self._folder) if is_folder(self._folder) else ():
            fingerprint = filenames.fingerprint_of_needs(entry.name)
            if fingerprint is not None:
                yield fingerprint, Path(entry.path)

    def _live(self, path: Path) -> Announced | None:
        hold = Hold(path, os.O_RDWR)  # as for `evict`
        try:
            if hold.try_lock(fcntl.LOCK_EX):
                remove(path)
                return None
            if (known := self._mapped.get(path.name)) is not None:
                return known
            size = os.fstat(hold.descriptor).st_size
            items, odd = divmod(size, _ITEM)
            if odd or items % 2 == 0:  # the disk was full
                return None
            mapped = map_file(hold.descriptor, size)
            whole = np.frombuffer(mapped, np.float64)
            shards = items // 2
            return Announced(whole[shards : shards + 1], whole[:shards].view(np.uint64), whole[shards + 1 :])
        finally:
            hold.release()
