"""What Linux has and other systems lack, each with another way to the same end. Nothing else asks which system it is.

(`storage/filesystem.py` also reads `/proc`; where there is none, it knows of no network file systems.)
"""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

_CHUNK = 2**20
_CANNOT = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}


def nameless_file() -> int:
    """The descriptor of a new, empty file without a name: in memory, or else on the disk of temporary files."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("mdsx")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def allocate(descriptor: int, size: int) -> None:
    """Give an empty file `size` bytes, all 0, with real blocks on the disk. Raise OSError, also where it is full."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, 0, size)
        except OSError as error:
            if error.errno not in _CANNOT:  # not this file system
                raise
        else:
            return
    zeros = memoryview(bytes(min(size, _CHUNK)))
    reached = 0
    while reached < size:
        reached += os.pwrite(descriptor, zeros[: size - reached], reached)


def boot() -> str:
    """Eight characters that differ from one boot of the machine to the next; "unknown" where nothing says which."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
    except OSError:
        return "unknown"
