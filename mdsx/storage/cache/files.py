"""Single files of the cache: kernel locks on them, and how to make, fill, map, remove and date them.

Rules of the locks:
- A flock(2) lock belongs to the open file description. Two descriptors of one process exclude each other as two
  processes do. The kernel frees the lock when the last copy of the descriptor is closed, however its process dies.
- A forked child inherits copies. It closes them at once (and does not unlock, which would free the parent's lock). No
  fork may happen between opening a file and registering it as held. No other code may duplicate or map the descriptor,
  which would share and keep the lock.
- A lock protects a path only while the path leads to the locked file: call `leads_to` after locking.
"""

from __future__ import annotations

import errno
import itertools
import mmap
import os
import stat
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mdsx.base.process import at_fork
from mdsx.base.system import PATH_ONLY, fcntl, map_file
from mdsx.base.system import allocate as allocate_blocks
from mdsx.storage.below import remove_at
from mdsx.storage.cache.directory import make_folder

if TYPE_CHECKING:
    from typing_extensions import Buffer

_ALWAYS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # non-blocking, in case it is a pipe

_FOLDER = PATH_ONLY | os.O_DIRECTORY | os.O_CLOEXEC

_guard = threading.RLock()  # reentrant: a garbage collection inside may end a lease
_held: dict[int, int] = {}  # number of the hold -> descriptor; numbers are never reused, not even in a child
_numbers = itertools.count()


def held() -> int:
    """Return how many files this process holds, each with a descriptor."""
    return len(_held)


@contextmanager
def folder_of(path: str | Path, *, top: bool = False) -> Iterator[tuple[int, str]]:
    """Open the folder of a file without following a link, unless it is the cache's directory, at the `top`. Yield its
    descriptor and the file's name. Raise OSError."""
    folder, name = os.path.split(path)
    with _guard:
        try:
            handle = os.open(folder, _FOLDER | (0 if top else os.O_NOFOLLOW))
            try:
                yield handle, name
            finally:
                os.close(handle)
        except OSError as error:
            if error.filename == name:
                error.filename = os.fspath(path)
            raise


def remove(path: str | Path, *, top: bool = False) -> None:
    """Remove a file of the cache, or a link itself. Do nothing if it is missing. `top`: see `folder_of`. Raise
    OSError."""
    with suppress(FileNotFoundError), folder_of(path, top=top) as (folder, name):
        remove_at(folder, name)


def rename(path: Path, new: str) -> None:
    """Rename a file within its folder."""
    with folder_of(path) as (folder, name):
        os.replace(name, new, src_dir_fd=folder, dst_dir_fd=folder)


class Hold:
    """A file held open in this process, and in none of its children, until `release`."""

    __slots__ = ("_number", "descriptor")

    def __init__(self, path: str | Path, flags: int, *, top: bool = False) -> None:
        """Raise OSError as os.open does, also if the file or its folder is a symbolic link. At the `top`, the folder is
        the cache's directory, which may be a link. A new file is accessible only to its owner."""
        self._number = -1
        with folder_of(path, top=top) as (folder, name):
            self.descriptor = os.open(name, flags | _ALWAYS, 0o600, dir_fd=folder)
            self._number = next(_numbers)
            _held[self._number] = self.descriptor
        if flags & os.O_CREAT and os.fstat(self.descriptor).st_mode & 0o600 != 0o600:  # the umask removed bits
            os.fchmod(self.descriptor, 0o600)

    def __del__(self) -> None:
        if _guard is not None:  # when the interpreter exits, modules are empty
            self.release()  # an interrupt came before the holder could release it

    def lock(self, kind: int) -> None:
        """Lock with flock, waiting without limit."""
        fcntl.flock(self.descriptor, kind)

    def try_lock(self, kind: int) -> bool:
        """Lock with flock without waiting. Return whether that was possible."""
        try:
            fcntl.flock(self.descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def leads_to(self, path: Path) -> bool:
        """Whether `path` is (still) the held file."""
        try:
            return os.path.samestat(os.stat(path), os.fstat(self.descriptor))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        with _guard:
            if _held.pop(self._number, None) is not None:  # else this is a child, which has closed it already
                os.close(self.descriptor)


def _close_all_in_child() -> None:
    for descriptor in _held.values():
        os.close(descriptor)
    _held.clear()
    _guard.release()


at_fork(before=_guard.acquire, after_in_parent=_guard.release, after_in_child=_close_all_in_child)


# --- shards

Write = Callable[[bytes], object]


class Cached(NamedTuple):
    """A file of the cache as a scan found it. `needed`: its access time, in seconds."""

    path: str
    size: int
    needed: float


def allocate(part: Path, size: int) -> Hold:
    """Return a new, exclusively held file with disk blocks for `size` bytes. Raise OSError if the disk is full."""
    make_folder(part.parent)
    hold = Hold(part, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        hold.lock(fcntl.LOCK_EX)
        allocate_blocks(hold.descriptor, size)
    except BaseException:
        remove(part)
        hold.release()
        raise
    return hold


def resize(descriptor: int, size: int, new: int) -> None:
    """Resize a file of `size` bytes to `new` bytes, with disk blocks for all of them. Raise OSError."""
    if new > size:
        allocate_blocks(descriptor, new)
    else:
        os.ftruncate(descriptor, new)


def _write_at(descriptor: int, view: memoryview, start: int) -> None:
    while len(view):
        done = os.pwrite(descriptor, view, start)
        view, start = view[done:], start + done


class _Unwritten(Exception):
    """Writing to the cache failed. Not an OSError, which `fill` could mistake for an error of its own."""

    def __init__(self, error: OSError) -> None:
        self.error = error


def filled(descriptor: int, fill: Callable[[Write], None]) -> int:
    """Let `fill` write to the file, which never grows. Return the number of bytes written. Raise OSError."""
    size, reached = os.fstat(descriptor).st_size, 0

    def write(data: bytes) -> None:
        nonlocal reached
        view = memoryview(data)
        start = reached
        reached += len(view)
        try:
            _write_at(descriptor, view[: max(size - start, 0)], start)
        except OSError as error:
            raise _Unwritten(error) from error

    try:
        fill(write)
    except _Unwritten as error:
        raise error.error from None
    return reached


def write_into(descriptor: int, pieces: Iterable[tuple[int, Buffer]], size: int) -> bool:
    """Write `pieces`, each at its offset, into a regular file of `size` bytes. Return whether that was possible."""
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size != size:
            return False
        for start, piece in pieces:
            _write_at(descriptor, memoryview(piece).cast("B"), start)
    except OSError:
        return False
    return True


def map_held(hold: Hold, path: Path) -> mmap.mmap | None:
    """Map the held file at `path`. The hold ends with the last view of the mapping. Return None if the file was
    removed.

    The file is opened again for this, as a mapping keeps the lock of its descriptor, also in a forked child.
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


def evict(path: str | Path, *, dry_run: bool = False) -> bool:
    """Remove a file unless it is held or another user's. Return whether it was removed (with `dry_run`: would be). Call
    it with the ledger's lock held."""
    try:
        hold = Hold(path, os.O_RDWR)  # NFS locks exclusively only files that are open for writing
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EISDIR):
            return False
        hold = None  # a link or a folder: it is not a shard
    try:
        if hold is not None and not hold.try_lock(fcntl.LOCK_EX):
            return False
        if not dry_run:
            remove(path)
        return True
    except PermissionError:
        return False
    finally:
        if hold is not None:
            hold.release()


def is_held(path: Path) -> bool:
    """Return whether a process holds a file exclusively."""
    try:
        hold = Hold(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not hold.try_lock(fcntl.LOCK_SH)
    finally:
        hold.release()


def look_at(path: str | Path) -> Cached | None:
    """Return the file's present state; None if it is missing."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return Cached(os.fspath(path), status.st_size, status.st_atime)


def size_of(path: Path) -> int:
    """Return the size of a file; 0 if it is missing."""
    file = look_at(path)
    return file.size if file is not None else 0


def set_next_use(path: str | Path, then: float) -> None:
    """Set the file's access time to `then`. The mtime stays, as it shows whether another process wrote to the file."""
    os.utime(path, ns=(int(then * 1e9), os.lstat(path).st_mtime_ns), follow_symlinks=False)
