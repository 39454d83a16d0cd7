"""Remove shards from a cache at a person's request, while jobs use it.

Rules:
- A shard that a process holds stays. Shards are removed as in an eviction: with the ledger's lock held, and each with
  its own exclusive lock. A job that needs a removed shard fetches it again.
- The ledger's lock is held for a small slice of the work at a time, so that running jobs are not delayed.
- Files that the cache did not make stay.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from mdsx.storage.below import opened
from mdsx.storage.cache import filenames
from mdsx.storage.cache.announced import Announced, Announcements
from mdsx.storage.cache.contents import check_is_cache, last_used
from mdsx.storage.cache.directory import entries, failure
from mdsx.storage.cache.eviction import candidates
from mdsx.storage.cache.files import Cached, evict, look_at
from mdsx.storage.cache.ledger import Ledger

_SOON = 600.0  # seconds: shards that a job announced to need within this time are not pruned
_SLICE = 0.05  # seconds to hold the ledger's lock
_PAUSE = 0.02  # seconds between slices, longer than others wait before they try again


@dataclass(slots=True)
class Amount:
    """A number of files, and their bytes."""

    files: int = 0
    size: int = 0

    def add(self, size: int) -> None:
        self.files += 1
        self.size += size


@dataclass(slots=True)
class Removal:
    """The result of a removal; in a dry run, what it would be.

    Attributes:
        removed: The removed files.
        held: Files that stay because a process holds them, or because they belong to another user.
        needed: Files that a prune keeps because a running job has used them meanwhile, or needs them soon.
        left: All remaining files of the selected datasets.
    """

    removed: Amount = field(default_factory=Amount)
    held: Amount = field(default_factory=Amount)
    needed: Amount = field(default_factory=Amount)
    left: Amount = field(default_factory=Amount)


def prune(
    directory: Path,
    *,
    idle: float | None = None,
    size: int | None = None,
    fingerprints: Collection[str] | None = None,
    dry_run: bool = False,
) -> Removal:
    """Remove idle shards, and then more shards, those needed last first, until at most `size` bytes are left. Shards
    that a process holds, or needs within ten minutes, stay.

    Args:
        directory: The cache's directory.
        idle: A shard is idle if it was not used for this many seconds, and no job has announced to need it within as
            many.
        size: The most bytes to leave.
        fingerprints: Only these datasets.
        dry_run: Only find out what would be removed.

    Raises:
        MissingError: There is no cache.
        TransportError: The directory is read-only, or failed.
    """

    work, now = _Work(directory, fingerprints, dry_run=dry_run), time.time()
    files, announced = work.files(), work.announced()
    ahead = [file if file.needed > now else file._replace(needed=-math.inf) for file in files]  # no past uses
    needed_in = {file.path: seconds for seconds, file in candidates(ahead, now, {}, announced=announced)}
    idle_files, rest = [], []
    for _, file in reversed(candidates(files, now, {}, announced=announced)):
        if (seconds := needed_in[file.path]) <= _SOON:
            work.found.needed.add(file.size)
        elif filenames.is_unfinished(file.path) or (idle is not None and seconds > idle and _is_idle(file, idle, now)):
            idle_files.append(file)
        else:
            rest.append(file)
    work.remove(idle_files, unless_used=True)
    if size is not None:
        work.remove(rest, unless_used=True, until=size)
    return work.done()


def clear(directory: Path, *, fingerprints: Collection[str] | None = None, dry_run: bool = False) -> Removal:
    """Remove all shards, or those of some datasets, except those that a process holds. See `prune` for the arguments
    and errors."""
    work = _Work(directory, fingerprints, dry_run=dry_run)
    work.remove(work.files())
    return work.done()


def _is_idle(file: Cached, idle: float, now: float) -> bool:
    try:
        status = os.lstat(file.path)
    except FileNotFoundError:
        return True
    return now - last_used(status, now) >= idle


class _Work:
    """One removal, step by step."""

    def __init__(self, directory: Path, fingerprints: Collection[str] | None, *, dry_run: bool) -> None:
        check_is_cache(directory)
        self.found = Removal()
        self._directory, self._fingerprints, self._dry_run = directory, fingerprints, dry_run
        self._ledger = Ledger(directory)
        self._folders: set[Path] = set()  # of removed files

    def files(self) -> list[Cached]:
        """Return all files of the selected datasets."""
        found, only = self._ledger.scan(), self._fingerprints
        return [file for file in found if only is None or os.path.basename(os.path.dirname(file.path)) in only]

    def announced(self) -> Mapping[str, Sequence[Announced]]:
        """Return what live processes announce to need, by fingerprint."""
        try:
            with self._ledger.locked():
                return Announcements(self._directory / filenames.NEEDS).scan()
        except OSError as error:
            raise failure(self._directory, error) from error

    def remove(self, files: Iterable[Cached], *, unless_used: bool = False, until: int = -1) -> None:
        """Remove `files`, in order, until the rest has at most `until` bytes. `unless_used`: skip files used since the
        scan."""
        waiting, total = deque(files), sum(file.size for file in self.files())
        if self._dry_run:
            total -= self.found.removed.size
        try:
            while waiting and total > until:
                with self._ledger.locked():
                    total = self._remove_some(waiting, total, until, unless_used)
                if waiting and total > until:
                    time.sleep(_PAUSE)
        except OSError as error:
            raise failure(self._directory, error) from error

    def _remove_some(self, waiting: deque[Cached], total: int, until: int, unless_used: bool) -> int:
        """Remove files for a slice of time. Return the bytes of the rest."""
        tally, before = None if self._dry_run else self._ledger.take_tally(), total
        end, found = time.monotonic() + _SLICE, self.found
        while True:
            file = waiting.popleft()
            now = look_at(file.path)
            if now is None:  # evicted, or finished
                pass
            elif unless_used and now.needed != file.needed:
                found.needed.add(now.size)
            elif not evict(file.path, dry_run=self._dry_run):
                found.held.add(now.size)
            else:
                found.removed.add(now.size)
                self._folders.add(Path(file.path).parent)
                total -= now.size
            if not waiting or total <= until or time.monotonic() > end:
                break
        if tally is not None:
            self._ledger.write_tally(tally - (before - total))
        return total

    def done(self) -> Removal:
        """Remove the folders that are now empty, and return the result."""
        if not self._dry_run:
            try:
                with self._ledger.locked():
                    for folder in self._folders:
                        _remove_if_empty(folder)
            except OSError as error:
                raise failure(self._directory, error) from error
        left = self.files()
        self.found.left = Amount(len(left), sum(file.size for file in left))
        return self.found


def _remove_if_empty(folder: Path) -> None:
    """Remove a dataset's folder if it has only records of URLs. Call it with the ledger's lock held."""
    files = entries(folder)
    with suppress(OSError):
        if all(filenames.url_of(file.name) is not None and not os.lstat(file.path).st_size for file in files):
            with opened(folder.parent, [folder.name]) as emptied:
                for file in files:
                    emptied.remove(file.name)
                emptied.remove_empty()
