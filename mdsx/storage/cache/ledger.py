"""The cache's accounting: its bytes in use and its limit. One lock file guards it, held for only a few system calls.

The state is in the names of empty files, so it takes no space:
- `mdsx-cache`: the directory is a cache.
- `lock`: the process that holds its lock may change anything here, and add or remove shards.
- `tally.BOOT.BYTES`: the bytes of all files except announcements. It is removed while an admission changes the files.
  If it is missing, or from another boot, a scan counts the bytes. So a process that dies at any point leaves nothing to
  repair.
- `limits/BYTES`, `limits/BYTES.default`: a limit, given or default, of the processes that hold a shared lock on the
  file. The smallest locked limit applies.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mdsx.base.system import boot, fcntl
from mdsx.errors import UsageError
from mdsx.storage.cache import filenames
from mdsx.storage.cache.directory import claim, entries, make_folder
from mdsx.storage.cache.files import Cached, Hold, remove

_DEFAULT_SHARE = 0.8
_PATIENCE = 60.0  # seconds; only a stopped process holds the lock for more than milliseconds
_LONGEST_PAUSE = 0.005
_TRIES = 50  # to make files in a directory that others remove, or that was removed below a mount


class Ledger:
    """The accounting of the cache in `directory`, which is made if missing, accessible only to its owner."""

    def __init__(self, directory: Path, *, known: bool = False) -> None:
        """`known`: whether this job has used the cache before, maybe in another process."""
        self._directory = directory
        self._known = known
        self._gone = False  # whether the directory could not be made again
        self._limits = directory / filenames.LIMITS
        self._registered: Hold | None = None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Exclude all other processes and threads.

        Raise OSError if the directory is not writable, or stays removed, and UsageError if it is neither empty nor a
        cache. As others may be removing it, both are raised only after some tries.
        """
        path, tries = self._directory / filenames.LOCK, 0
        while True:
            if not self._directory.is_dir():
                self._directory.parent.mkdir(parents=True, exist_ok=True)
                make_folder(self._directory)
            try:
                claim(self._directory)
                make_folder(self._limits)
                hold = Hold(path, os.O_RDWR | os.O_CREAT, top=True)
            except (FileNotFoundError, UsageError) as error:  # the directory was just removed, or is being removed
                if (tries := tries + 1) < _TRIES and not self._gone:
                    time.sleep(_LONGEST_PAUSE)
                    continue
                if isinstance(error, UsageError) and not (self._known or self._registered):
                    raise
                self._gone = True
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(self._directory)) from error
            try:
                _wait_for(hold, path)
                if hold.leads_to(path):
                    self._gone = False
                    yield
                    return
            finally:
                hold.release()

    # --- the bytes in use; called with the lock held

    def take_tally(self) -> int | None:
        """Return and remove the tally. Return None if a scan is needed instead."""
        found = [(path, tally) for path in self._directory.iterdir() if (tally := filenames.parse_tally(path.name))]
        for path, _ in found:
            remove(path, top=True)
        if len(found) != 1:
            return None
        ((_, (booted, total)),) = found
        return total if booted == boot() else None

    def write_tally(self, total: int) -> None:
        """Write the tally, after all changes. If the disk is full, it is left out, and a scan replaces it."""
        with suppress(OSError):
            Hold(self._directory / filenames.tally(boot(), total), os.O_RDWR | os.O_CREAT, top=True).release()

    def scan(self) -> list[Cached]:
        """Return all shards and lengths, including unfinished ones. Only they and announcements take space."""
        found: list[Cached] = []
        for folder in entries(self._directory):
            if not filenames.is_folder(folder.name) or not folder.is_dir(follow_symlinks=False):
                continue
            for entry in entries(folder.path):
                if filenames.is_content(entry.name) and not entry.is_dir(follow_symlinks=False):
                    with suppress(FileNotFoundError):
                        status = entry.stat(follow_symlinks=False)
                        found.append(Cached(entry.path, status.st_size, status.st_atime))
        return found

    # --- limits; called with the lock held

    def register(self, limit: int | None) -> None:
        """Let `limit` (None: the default) apply while this process lives."""
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
        self._registered.lock(fcntl.LOCK_SH)  # no wait: others only try to lock it, with our lock held

    def limit(self) -> int:
        """Return the smallest limit of live processes. It includes ours, unless the directory was removed."""
        return min((limit for path in self._live() if (limit := filenames.limit_of(path.name)) is not None), default=0)

    def is_registered(self) -> bool:
        """Whether this process's limit applies; it does not after the directory was removed."""
        registered = self._registered
        return registered is not None and any(registered.leads_to(path) for path in self._limits.iterdir())

    def _live(self) -> list[Path]:
        live = []
        for path in self._limits.iterdir():
            if filenames.limit_of(path.name) is None:  # not ours
                continue
            hold = Hold(path, os.O_RDWR)
            if hold.try_lock(fcntl.LOCK_EX):
                remove(path)  # unused
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
