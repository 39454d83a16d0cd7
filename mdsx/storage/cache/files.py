"""What is done with single files of the cache: made at their full size, filled, mapped, removed, dated."""

from __future__ import annotations

import fcntl
import mmap
import os
import time
import weakref
from collections.abc import Callable
from pathlib import Path

from mdsx.storage.cache.locks import Hold
from mdsx.storage.cache.policy import Cached

Write = Callable[[bytes], object]


def allocate(part: Path, size: int) -> Hold | None:
    """A new file with real blocks for `size` bytes, exclusively held; None where the disk is full."""
    part.parent.mkdir(mode=0o700, exist_ok=True)
    hold = Hold(part, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    hold.lock(fcntl.LOCK_EX)
    try:
        os.posix_fallocate(hold.descriptor, 0, size)
    except OSError:
        part.unlink()
        hold.release()
        return None
    return hold


def filled(descriptor: int, fill: Callable[[Write], None]) -> int:
    """Bytes that `fill` wrote; never more than the file has, so that it does not grow."""
    size, reached = os.fstat(descriptor).st_size, 0

    def write(data: bytes) -> None:
        nonlocal reached
        view = memoryview(data)[: max(size - reached, 0)]
        start = reached
        reached += len(data)
        while len(view):
            done = os.pwrite(descriptor, view, start)
            view, start = view[done:], start + done

    fill(write)
    return reached


def map_held(hold: Hold) -> mmap.mmap:
    """The held file, mapped; the hold ends with the last view of the mapping. CPython's mmap has its own descriptor."""
    mapped = mmap.mmap(hold.descriptor, 0, access=mmap.ACCESS_READ)
    weakref.finalize(mapped, hold.release)
    return mapped


def evict(path: str | Path) -> bool:
    """Remove a file unless somebody holds it. With the ledger's lock held."""
    try:
        hold = Hold(path, os.O_RDONLY)
    except FileNotFoundError:
        return True
    try:
        if not hold.try_lock(fcntl.LOCK_EX):
            return False
        Path(path).unlink(missing_ok=True)
        return True
    finally:
        hold.release()


def look_at(path: str | Path) -> Cached | None:
    """The file as it is now; None where there is none."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return Cached(os.fspath(path), status.st_size, status.st_mtime)


def size_of(path: Path) -> int:
    """0 where there is no file."""
    file = look_at(path)
    return file.size if file is not None else 0


def date(path: Path, *, needed_in: float, only_later: bool = False) -> None:
    """Note in the file's modification time when it is needed; `only_later`: unless a later time stands there."""
    now = time.time()
    try:
        if not only_later or path.stat().st_mtime < now:
            os.utime(path, (now, now + max(needed_in, 0.0)))
    except OSError:  # a hint only: it may have gone, or be another user's
        return
