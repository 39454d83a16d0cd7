"""How many file descriptors mdsx may use: at most half of those that the process may have. The rest is the user's.

The limit (`ulimit -n`) is read each time, because a process may change it.
"""

from __future__ import annotations

import errno
import resource
from collections.abc import Iterator
from contextlib import contextmanager

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
        hint="raise the limit (ulimit -n), or close some of the files and sockets that the process opened",
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
