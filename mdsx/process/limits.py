"""How many file descriptors mdsx may use: at most half of what the process may have. The other half is the user's.

The limit (`ulimit -n`) is read each time, because a process may change it.
"""

from __future__ import annotations

import errno
import resource

from mdsx.errors import TransportError

_MOST = 2**20  # where there is no limit
_OTHERS = 120  # kept for a connection and a file of each thread (see threads.py), of the half that is ours
_EXHAUSTED = {errno.EMFILE, errno.ENFILE}


def most_descriptors() -> int:
    """How many descriptors this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else min(soft, _MOST)


def most_leases() -> int:
    """How many files of caches the process may hold open at once."""
    return max(most_descriptors() // 2 - _OTHERS, most_descriptors() // 8, 1)


def exhausted(error: OSError, file: str) -> TransportError | None:
    """The error to raise where `error` says that no more files can be opened; None where it says something else."""
    if error.errno not in _EXHAUSTED:
        return None
    if error.errno == errno.ENFILE:
        return TransportError("the machine has too many open files", file=file, hint="raise fs.file-max, or close some")
    return TransportError(
        "the process has too many open files",
        file=file,
        expected=f"at most {most_descriptors()}, its limit (RLIMIT_NOFILE), of which mdsx uses less than half",
        hint="raise the limit (ulimit -n), or close some of the files and sockets that the process opened",
    )
