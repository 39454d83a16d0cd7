"""Operations on single files of the cache: make at full size, fill, map, remove, date."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import stat
import time
import weakref
from collections.abc import Callable
from pathlib import Path

from mdsx.storage.cache.directory import make_folder
from mdsx.storage.cache.locks import Hold
from mdsx.storage.cache.policy import Cached
from mdsx.system import allocate as allocate_blocks
from mdsx.system import map_file

_FURTHEST = 1e8  # seconds, as far as file systems can store

Write = Callable[[bytes], object]


def allocate(part: Path, size: int) -> Hold:
    """Return a new, exclusively held file with real blocks for `size` bytes. Raise OSError if the disk is full."""
    make_folder(part.parent)
    hold = Hold(part, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        hold.lock(fcntl.LOCK_EX)
        allocate_blocks(hold.descriptor, size)
    except BaseException:
        part.unlink(missing_ok=True)
        hold.release()
        raise
    return hold


class _Unwritten(Exception):
    """Writing to the cache failed. It is no OSError, because `fill` would take that for its own."""

    def __init__(self, error: OSError) -> None:
        self.error = error


def filled(descriptor: int, fill: Callable[[Write], None]) -> int:
    """Return how many bytes `fill` passed on; the file never grows. Raise OSError."""
    size, reached = os.fstat(descriptor).st_size, 0

    def write(data: bytes) -> None:
        nonlocal reached
        view = memoryview(data)[: max(size - reached, 0)]
        start = reached
        reached += len(data)
        try:
            while len(view):
                done = os.pwrite(descriptor, view, start)
                view, start = view[done:], start + done
        except OSError as error:
            raise _Unwritten(error) from error

    try:
        fill(write)
    except _Unwritten as error:
        raise error.error from None
    return reached


def map_held(hold: Hold, path: Path) -> mmap.mmap | None:
    """Map the held file, which is at `path`; the hold ends with the last view of the mapping. Return None if the file
    was removed.

    It opens the file again: a mapping keeps the lock of its descriptor, also in a forked child.
    """
    try:
        unlocked = Hold(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        status = os.fstat(unlocked.descriptor)
        if not stat.S_ISREG(status.st_mode) or not os.path.samestat(status, os.fstat(hold.descriptor)):
            return None
        mapped = map_file(unlocked.descriptor, status.st_size)
    finally:
        unlocked.release()
    weakref.finalize(mapped, hold.release)
    return mapped


def evict(path: str | Path) -> bool:
    """Remove a file unless it is held, or another user's. Call it with the ledger's lock held."""
    try:
        hold = Hold(path, os.O_RDONLY)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno != errno.ELOOP:  # a symbolic link is no shard
            return False
        hold = None
    try:
        if hold is not None and not hold.try_lock(fcntl.LOCK_EX):
            return False
        Path(path).unlink(missing_ok=True)
        return True
    except PermissionError:
        return False
    finally:
        if hold is not None:
            hold.release()


def look_at(path: str | Path) -> Cached | None:
    """Return the file as it is now; None if it is missing."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return Cached(os.fspath(path), status.st_size, status.st_atime)


def size_of(path: Path) -> int:
    """0 if there is no file."""
    file = look_at(path)
    return file.size if file is not None else 0


def date(path: Path, *, needed_in: float, only_later: bool = False) -> None:
    """Note in the file's access time when it is needed; `only_later`: unless a later time is there.

    The modification time stays: it shows whether another process wrote to the file.
    """
    now = time.time_ns()
    try:
        status = path.stat()
        if not only_later or status.st_atime_ns < now:
            os.utime(path, ns=(now + int(min(max(needed_in, 0.0), _FURTHEST) * 1e9), status.st_mtime_ns))
    except OSError:  # only a hint: it may be removed, or another user's
        return
