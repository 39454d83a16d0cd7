"""Differences between operating systems, and mappings that Python's `mmap` does not offer.

Where a system lacks a Linux call, these functions do the same in another way. No other module checks which system it
runs on. `fcntl` and `resource`, which only POSIX has, are imported from here.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import re
import tempfile
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

try:
    import fcntl as fcntl
    import resource as resource
except ImportError as error:  # Windows
    message = "mdsx needs a POSIX system, such as Linux or macOS. On Windows, use it in WSL: `wsl --install`"
    raise ImportError(message) from error

PATH_ONLY = getattr(os, "O_PATH", os.O_RDONLY)
"""Flag to open a folder only as the base of relative paths."""

_CHUNK = 2**20
_CANNOT = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
_M_ARENA_MAX = -8  # glibc's malloc.h
_MAP_FIXED = 0x10  # on Linux, macOS and the BSDs; Python's mmap does not name it
_MAP_FAILED = ctypes.c_void_p(-1).value
_NETWORK = re.compile(r"nfs\d?|cifs|smb\d?|smbfs|afs|9p|ceph|lustre|gpfs|beegfs|wekafs|glusterfs|pvfs2|fuse\..+")
_ESCAPED = re.compile(r"\\(\d{3})")
_FLOCK = re.compile(r"^\d+: FLOCK +ADVISORY +(?:READ|WRITE) +(\d+) ([0-9a-f]+:[0-9a-f]+):(\d+) ", re.MULTILINE)

_mappings: set[int] = set()  # the id of each live mapping; adding and removing need no lock


def cores() -> int:
    """Return how many cores this process may use."""
    affinity: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def nameless_file() -> int:
    """Return the descriptor of a new, empty file without a name: in memory if possible, else on disk."""
    create: Callable[[str], int] | None = getattr(os, "memfd_create", None)
    if create is not None:
        return create("mdsx")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def allocate(descriptor: int, size: int) -> None:
    """Extend an empty file to `size` zero bytes on real disk blocks. Raise OSError, also if the disk is full."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, 0, size)
        except OSError as error:
            if error.errno not in _CANNOT:  # this file system does not support it
                raise
        else:
            return
    zeros = memoryview(bytes(min(size, _CHUNK)))
    reached = 0
    while reached < size:
        reached += os.pwrite(descriptor, zeros[: size - reached], reached)


def stored_bytes(descriptor: int, start: int, stop: int) -> int:
    """Return how many of the bytes [start, stop) of a file are not in holes; all if the system cannot say.

    The offset of the descriptor changes.
    """
    if not hasattr(os, "SEEK_DATA"):
        return stop - start
    stored = 0
    while start < stop:
        try:
            start = os.lseek(descriptor, start, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole follows
                break
            return stop - start + stored  # a file system without holes
        end = os.lseek(descriptor, start, os.SEEK_HOLE)
        stored += max(min(end, stop) - start, 0)
        start = end
    return stored


def use_two_arenas() -> None:
    """Have all threads allocate from two glibc arenas. Does nothing with another C library."""
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)


def boot() -> str:
    """Return eight characters that identify this boot of the machine, or "unknown"."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
    except OSError:
        return "unknown"


def network_file_system(path: str | os.PathLike[str]) -> bool:
    """Whether `path`, which need not exist yet, is (or, for FUSE, may be) on a network file system. Linux only."""
    try:
        real = os.path.realpath(path)
    except OSError:  # a link that may not be read, as in /proc
        real = os.path.abspath(path)
    return _NETWORK.fullmatch(_file_system(Path(real))) is not None


def _file_system(path: Path) -> str:
    """Return the type of the file system at `path`, or "" if it is unknown."""
    best, kind = -1, ""
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        fields, _, rest = line.partition(" - ")
        mount = _ESCAPED.sub(lambda octal: chr(int(octal[1], 8)), fields.split(" ")[4])
        if (path == Path(mount) or Path(mount) in path.parents) and len(mount) >= best:
            best, kind = len(mount), rest.split(" ")[0]
    return kind


def lock_holders(directory: Path) -> dict[int, set[int]] | None:
    """Return the pids that hold flock(2) locks, by the inode of the locked file, for all files on the directory's file
    system. Return None if the system is not Linux, which alone reports them.

    Processes in other containers are not included.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # our own lock shows how the kernel names the device
        ours = os.readlink("/proc/self"), str(os.fstat(descriptor).st_ino)
        locks = _FLOCK.findall(Path("/proc/locks").read_text())
    except OSError:
        return None
    finally:
        os.close(descriptor)
    device = next((device for pid, device, inode in locks if (pid, inode) == ours), None)
    if device is None:
        return None
    found: dict[int, set[int]] = {}
    for pid, where, inode in locks:
        if where == device and (pid, inode) != ours:
            found.setdefault(int(inode), set()).add(int(pid))
    return found


def process_name(pid: int) -> str:
    """Return the name of a process's program without arguments, or "" if unknown."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return ""


def map_file(descriptor: int, size: int, *, offset: int = 0, writable: bool = False) -> mmap.mmap:
    """Map `size` bytes of an open file from `offset`, a multiple of the page size. The mapping is read-only, or
    `writable` and shared. The descriptor may be closed afterwards.

    CPython's `mmap` keeps a duplicate of the descriptor, so thousands of shards would exceed `ulimit -n`. This function
    keeps none: it maps anonymous memory, and then the file over it. The pages keep the open file alive, together with
    any flock on it. Raise OSError, or ValueError if `size` is 0.
    """
    if size < 1:
        raise ValueError("an empty file cannot be mapped")
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE, prot=protection)
    address = np.frombuffer(memory, np.uint8).__array_interface__["data"][0]
    if _mmap()(address, size, protection, mmap.MAP_SHARED | _MAP_FIXED, descriptor, offset) == _MAP_FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    _mappings.add(id(memory))
    weakref.finalize(memory, _mappings.discard, id(memory)).atexit = False
    return memory


def shared_numbers(count: int) -> memoryview[int]:
    """Return `count` 64-bit integers, zero at first, that this process shares with its forked children. Pages that are
    never written take no memory."""
    return memoryview(mmap.mmap(-1, 8 * max(count, 1))).cast("q")


def mapped_files() -> int:
    """Return how many mappings made by `map_file` are alive in this process."""
    return len(_mappings)


@cache
def _mmap() -> Callable[..., Any]:
    function = ctypes.CDLL(None, use_errno=True).mmap
    function.restype = ctypes.c_void_p
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    function.argtypes = [pointer, size, number, number, number, ctypes.c_int64]
    return function
