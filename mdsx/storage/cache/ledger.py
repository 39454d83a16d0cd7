"""How full the cache is and may be. All of it is done under one lock file, for no longer than a few system calls.

Its state is in the names of empty files, so that keeping it takes no room:
- `lock`: who holds its lock may change anything here, and add or remove shards.
- `tally.BOOT.BYTES`: the bytes of all files. It is removed while an admission changes them; where there is none, or one
  of another boot, a scan finds out. So a process that dies at any point leaves nothing to mend.
- `limits/BYTES`, `limits/BYTES.default`: a limit that the processes which hold a shared lock on it gave, or got by
  default. The smallest that is held by anybody is the directory's.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mdsx.storage.cache import filenames
from mdsx.storage.cache.directory import make_folder
from mdsx.storage.cache.locks import Hold
from mdsx.storage.cache.policy import Cached
from mdsx.system import boot

_DEFAULT_SHARE = 0.8
_PATIENCE = 60.0  # seconds; the lock is held for milliseconds, but by a process that was stopped
_LONGEST_PAUSE = 0.005


class Ledger:
    """The books of the cache in `directory`, which is made, for its owner only, where it is not there."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._limits = directory / filenames.LIMITS
        self._registered: Hold | None = None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Alone among all processes and threads. Raises OSError where the directory cannot be written."""
        path = self._directory / filenames.LOCK
        while True:
            if not self._directory.is_dir():
                self._directory.parent.mkdir(parents=True, exist_ok=True)
                make_folder(self._directory)
            try:
                make_folder(self._limits)
                hold = Hold(path, os.O_RDWR | os.O_CREAT)
            except FileNotFoundError:  # the directory was removed this instant
                continue
            try:
                _wait_for(hold, path)
                if hold.leads_to(path):
                    yield
                    return
            finally:
                hold.release()

    # --- the bytes in use; called with the lock held

    def take_tally(self) -> int | None:
        """The tally, which is gone until `write_tally`; None where only a scan can tell."""
        found = [(path, tally) for path in self._directory.iterdir() if (tally := filenames.parse_tally(path.name))]
        for path, _ in found:
            path.unlink()
        if len(found) != 1:
            return None
        ((_, (booted, total)),) = found
        return total if booted == boot() else None

    def write_tally(self, total: int) -> None:
        """To be done last: all changes are made. Where the disk is full, there is none: a scan finds out."""
        with suppress(OSError):
            (self._directory / filenames.tally(boot(), total)).touch(mode=0o600)

    def scan(self) -> list[Cached]:
        """All files that take room, whatever they are, and what was begun."""
        found: list[Cached] = []
        directories = [str(self._directory)]
        while directories:
            try:
                entries = os.scandir(directories.pop())
            except (FileNotFoundError, PermissionError):  # it is being removed, or not ours
                continue
            with entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        directories.append(entry.path)
                        continue
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    if status.st_size or filenames.is_unfinished(entry.name):
                        found.append(Cached(entry.path, status.st_size, status.st_atime))
        return found

    # --- limits; called with the lock held

    def register(self, limit: int | None) -> None:
        """Make `limit` (None: the default) count as long as this process lives."""
        if self._registered is not None:
            self._registered.release()
        if limit is None:
            name = next((path.name for path in self._live() if filenames.is_default(path.name)), None)
            if name is None:
                held = sum(file.size for file in self.scan())
                free = shutil.disk_usage(self._directory).free
                name = filenames.limit(int(_DEFAULT_SHARE * free) + held, default=True)
        else:
            name = filenames.limit(limit, default=False)
        self._registered = Hold(self._limits / name, os.O_RDWR | os.O_CREAT)
        weakref.finalize(self, self._registered.release)
        self._registered.lock(fcntl.LOCK_SH)  # only tried for under the lock that we hold: no wait

    def limit(self) -> int:
        """The smallest limit of the processes that live. One of them is ours, unless the directory was removed."""
        return min((limit for path in self._live() if (limit := filenames.limit_of(path.name)) is not None), default=0)

    def is_registered(self) -> bool:
        """Whether this process's limit counts: it does not any more where the directory was removed."""
        registered = self._registered
        return registered is not None and any(registered.leads_to(path) for path in self._limits.iterdir())

    def _live(self) -> list[Path]:
        live = []
        for path in self._limits.iterdir():
            if filenames.limit_of(path.name) is None:  # not ours
                continue
            hold = Hold(path, os.O_RDWR)
            if hold.try_lock(fcntl.LOCK_EX):
                path.unlink()  # nobody's
            else:
                live.append(path)
            hold.release()
        return live


def _wait_for(hold: Hold, path: Path) -> None:
    deadline, pause = time.monotonic() + _PATIENCE, 0.0001
    while not hold.try_lock(fcntl.LOCK_EX):
        if time.monotonic() > deadline:
            raise TimeoutError(errno.ETIMEDOUT, f"the cache's lock was not free for {_PATIENCE:.0f} seconds", str(path))
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
