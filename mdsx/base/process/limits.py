"""Limits on mdsx's use of file descriptors and memory.

mdsx uses at most half of the descriptors that the process may open; the rest is the user's. The limit (`ulimit -n`) is
read each time, because a process may change it. The glibc manual, mallopt(3), explains the terms for memory.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from mdsx.base.system import resource, use_two_arenas
from mdsx.errors import TransportError

_MOST = 2**20  # if the system sets no limit
_OTHERS = 120  # of our half, reserved for a connection and a file of each thread (see threads.py)
_EXHAUSTED = {errno.EMFILE, errno.ENFILE}


def most_descriptors() -> int:
    """Return how many descriptors this process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else min(soft, _MOST)


def most_leases() -> int:
    """Return how many files of caches this process may hold open at once."""
    return max(most_descriptors() // 2 - _OTHERS, most_descriptors() // 8, 1)


def exhausted(error: BaseException, file: str) -> TransportError | None:
    """Return the error to raise if `error` or one of its causes says that too many files are open; else None."""
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
    """Replace an OSError for too many open files by a TransportError that names the limit."""
    try:
        yield
    except OSError as error:
        if (too_many := exhausted(error, file)) is not None:
            raise too_many from error
        raise


# --- memory


def keep_freed_memory() -> None:
    """Have glibc keep up to 64 MiB of freed memory, so that the next batch reuses it without page faults.

    glibc raises its thresholds by itself once a large block has been freed (M_MMAP_THRESHOLD). This function frees such
    a block without touching its pages. Images of 100 kB become 2.5 times as fast. With other C libraries, nothing
    changes.
    """
    np.empty(2**25 - 2**16, np.uint8)


def share_arenas() -> None:
    """Have all threads allocate from two arenas, unless MALLOC_ARENA_MAX is set. Call it before threads start.

    glibc uses up to 8 arenas a core, and each keeps the memory of its peak: within hours, a reader would grow by 100 MB
    a core. Two suffice, since Python's threads take turns.
    """
    if "MALLOC_ARENA_MAX" in os.environ:  # the user chose a number
        return
    use_two_arenas()
