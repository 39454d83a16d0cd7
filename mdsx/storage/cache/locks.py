"""Kernel locks on files, each on an open file description of its own.

Rules:
- flock(2) belongs to the open file description: two descriptors of one process exclude each other as two processes do,
  and the kernel frees the lock when the last copy of the descriptor is closed, however its process dies.
- A forked child inherits copies. It closes them at once (close only: unlocking would free the parent's lock), and no
  fork may fall between opening a file and noting that it is held. No other code may duplicate or map the descriptor:
  that shares the lock, and keeps it.
- A lock is about a path only while the path leads to the locked file: call `leads_to` after locking.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import threading
from pathlib import Path

from mdsx.process import at_fork

_ALWAYS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # do not wait if it is a pipe

_guard = threading.RLock()  # re-entered if a garbage collection inside ends a lease
_held: dict[int, int] = {}  # number of the hold -> descriptor; numbers are never reused, not even in a child
_numbers = itertools.count()


def held() -> int:
    """Return how many files this process holds, each with a descriptor."""
    return len(_held)


class Hold:
    """A file held open in this process, and in none of its children, until `release`."""

    __slots__ = ("_number", "descriptor")

    def __init__(self, path: str | Path, flags: int) -> None:
        """Raise OSError as os.open does, also if `path` is a symbolic link. Only its owner may use a new file."""
        self._number = -1
        with _guard:
            self.descriptor = os.open(path, flags | _ALWAYS, 0o600)
            self._number = next(_numbers)
            _held[self._number] = self.descriptor
        if flags & os.O_CREAT and os.fstat(self.descriptor).st_mode & 0o600 != 0o600:  # the umask removed bits
            os.fchmod(self.descriptor, 0o600)

    def __del__(self) -> None:
        if _guard is not None:  # at the interpreter's end modules are empty
            self.release()  # an interrupt came before its holder could

    def lock(self, kind: int) -> None:
        """Lock with flock; wait without limit."""
        fcntl.flock(self.descriptor, kind)

    def try_lock(self, kind: int) -> bool:
        """Lock with flock if possible at once."""
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
            if _held.pop(self._number, None) is not None:  # a child has closed it already
                os.close(self.descriptor)


def _close_all_in_child() -> None:
    for descriptor in _held.values():
        os.close(descriptor)
    _held.clear()
    _guard.release()


at_fork(before=_guard.acquire, after_in_parent=_guard.release, after_in_child=_close_all_in_child)
