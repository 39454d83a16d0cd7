"""What mdsx takes of the process's file descriptors and memory.

It uses at most half of the descriptors that the process may have; the rest is the user's. The limit (`ulimit -n`) is
read each time, because a process may change it. glibc's mallopt(3) explains the terms for memory.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from mdsx.base.system import resource, use_two_arenas
from mdsx.errors import TransportError

_MOST = 2**20  # if there is no limit
_OTHERS = 120  # of our half, kept for a connection and a file of each thread (see threads.py)
_EXHAUSTED = {errno.EMFILE, errno.ENFILE}


def most_descriptors() -> int:
    """Return how many descriptors this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else min(soft, _MOST)


def most_leases() -> int:
    """Return how many files of caches this process may hold open at once."""
    return max(most_descriptors() // 2 - _OTHERS, most_descriptors() // 8, 1)


def exhausted(error: BaseException, file: str) -> TransportError | None:
    """Return the error to raise if `error`, or what caused it, is that no more files can be opened; else None."""
    cause: BaseException | None = error
    for _ in range(10):
        if cause is None or (isinstance(cause, OSError) and cause.errno in _EXHAUSTED):
            break
        cause = cause.__cause__ or cause.__context__
    if not isinstance(cause, OSError) or cause.errno not in _EXHAUSTED:
        return None
    if cause.errno == errno.ENFILE:
        return TransportError("the machine has too many open files", file=file, hint="raise fs.file-max, or close some")
    return TransportError(
        "the process has too many open files",
        file=file,
        expected=f"at most {most_descriptors()}, its limit (RLIMIT_NOFILE); mdsx uses less than half",
        hint="raise the limit before the program starts (`ulimit -n 65536`), or close files that the process opened",
    )


@contextmanager
def naming_limits(file: str) -> Iterator[None]:
    """Raise TransportError, with the limit, in place of an OSError that says that no more files can be opened."""
    try:
        yield
    except OSError as error:
        if (too_many := exhausted(error, file)) is not None:
            raise too_many from error
        raise


# --- memory


def keep_freed_memory() -> None:
    """Have glibc keep up to 64 MiB of freed memory, so that the next batch takes it without a page fault for each page.

    glibc raises these thresholds by itself when a large block is freed first (M_MMAP_THRESHOLD). This frees such a
    block, without touching a byte of it. It makes images of 100 kB 2.5 times as fast; elsewhere it changes nothing.
    """
    np.empty(2**25 - 2**16, np.uint8)


def share_arenas() -> None:
    """Have all threads allocate from two arenas, unless MALLOC_ARENA_MAX is set. Call it before threads start.

    glibc gives threads up to 8 arenas a core, and each keeps the memory that it needed at its busiest moment: in hours,
    a reader would grow by 100 MB a core. Two are enough, since Python's threads take turns.
    """
    if "MALLOC_ARENA_MAX" in os.environ:  # the user chose a number
        return
    use_two_arenas()
