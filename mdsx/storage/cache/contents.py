"""List a cache's content: its datasets, their sizes and last uses, and the processes that hold files.

This takes no lock and changes nothing, so it also works for a read-only cache.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from mdsx.base.system import lock_holders, process_name
from mdsx.errors import MissingError, UsageError
from mdsx.storage.cache import filenames
from mdsx.storage.cache.directory import entries, failure, no_cache, not_of_a_cache

_ID = re.compile("[0-9a-f]{8,32}")

_BOOKS = (filenames.MARK, filenames.LOCK, filenames.LIMITS, filenames.NEEDS)


@dataclass(frozen=True, slots=True)
class CachedDataset:
    """A dataset with shards or lengths in the cache.

    Attributes:
        fingerprint: The dataset's fingerprint, or the one from before parts were appended. It names the folder.
        urls: Where its shards were fetched from, without credentials. Equal datasets share a fingerprint.
        shards: The number of complete shards.
        size: The bytes of all files, including files being fetched and lengths.
        fetching: The number of files being fetched, or left unfinished by a dead process.
        held: The number of files that a process holds; None if the system does not report it.
        used: When any of its shards was last used, in seconds since 1970.
    """

    fingerprint: str
    urls: tuple[str, ...]
    shards: int
    size: int
    fetching: int
    held: int | None
    used: float


@dataclass(frozen=True, slots=True)
class CacheUser:
    """A process that uses a cache: its limit, given or default, if any, and the number of files that it holds."""

    pid: int
    name: str
    limit: int | None
    held: int


@dataclass(frozen=True, slots=True)
class Contents:
    """The content of a cache.

    Attributes:
        directory: The cache's directory.
        datasets: The datasets, the last used first.
        users: The processes that use the cache; None if the system does not report them.
        limit: The smallest limit of these processes; None if there is none.
        foreign: Files and folders in the directory that are not the cache's.
    """

    directory: Path
    datasets: tuple[CachedDataset, ...]
    users: tuple[CacheUser, ...] | None
    limit: int | None
    foreign: tuple[str, ...]

    @property
    def size(self) -> int:
        """Return the bytes of all files."""
        return sum(dataset.size for dataset in self.datasets)


def last_used(status: os.stat_result, now: float) -> float:
    """Return when a shard was last used, in seconds since 1970.

    The access time is the time of the last use, or, in the future, of the next need. In the latter case, the ctime is
    when a process noted the need.
    """
    return status.st_ctime if status.st_atime > now else max(status.st_atime, status.st_ctime)


def check_is_cache(directory: Path) -> None:
    """Raise an error unless `directory` is a cache."""
    try:
        os.lstat(directory / filenames.LOCK)
        foreign = not_of_a_cache(directory)
    except (FileNotFoundError, NotADirectoryError):
        hint = "give its directory (--cache), or set $MDSX_CACHE"
        raise MissingError("there is no cache here", file=str(directory), hint=hint) from None
    except OSError as error:
        raise failure(directory, error) from error
    if foreign is not None:
        raise no_cache(directory, foreign)


def contents_of(directory: Path, now: float) -> Contents:
    """Return the content of the cache at `directory`. `now`: seconds since 1970."""
    check_is_cache(directory)
    try:
        holders = lock_holders(directory)
    except OSError as error:
        raise failure(directory, error) from error
    held = Counter[int]()
    datasets, foreign = [], []
    for entry in entries(directory):
        if filenames.is_folder(entry.name) and entry.is_dir(follow_symlinks=False):
            dataset, others = _dataset(Path(entry.path), now, holders, held)
            foreign += others
            if dataset.size or dataset.fetching:
                datasets.append(dataset)
        elif entry.name not in _BOOKS and filenames.parse_tally(entry.name) is None:
            foreign.append(entry.name)
    datasets.sort(key=lambda dataset: (-dataset.used, dataset.fingerprint))
    limits = _limits(directory, holders or {})
    users = tuple(CacheUser(pid, process_name(pid), limits.get(pid), held[pid]) for pid in sorted({*limits, *held}))
    limit = min(limits.values(), default=None)
    return Contents(directory, tuple(datasets), None if holders is None else users, limit, tuple(sorted(foreign)))


def _dataset(
    folder: Path, now: float, holders: dict[int, set[int]] | None, held: Counter[int]
) -> tuple[CachedDataset, list[str]]:
    """Return a dataset and the files in its folder that are not the cache's. Add to `held` the files that each process
    holds."""
    shards = size = fetching = holding = 0
    used, urls, foreign = 0.0, [], []
    for entry in entries(folder):
        if (url := filenames.url_of(entry.name)) is not None:
            urls.append(url)
            continue
        if not filenames.is_content(entry.name) or entry.is_dir(follow_symlinks=False):
            foreign.append(f"{folder.name}/{entry.name}")
            continue
        try:
            status = os.lstat(entry.path)
        except FileNotFoundError:  # just evicted
            continue
        unfinished = filenames.is_unfinished(entry.name)
        shards += filenames.is_whole_shard(entry.name)
        fetching, size = fetching + unfinished, size + status.st_size
        used = max(used, last_used(status, now))
        pids = (holders or {}).get(status.st_ino, ())
        holding += bool(pids)
        held.update(pids)
    taken = None if holders is None else holding
    return CachedDataset(folder.name, tuple(sorted(urls)), shards, size, fetching, taken, used), foreign


def _limits(directory: Path, holders: dict[int, set[int]]) -> dict[int, int]:
    """Return the smallest limit of each process that has one."""
    found: dict[int, int] = {}
    for entry in entries(directory / filenames.LIMITS):
        if (limit := filenames.limit_of(entry.name)) is not None:
            for pid in holders.get(entry.inode(), ()):
                found[pid] = min(limit, found.get(pid, limit))
    return found


def fingerprints_of(directory: Path, dataset: str, url: str) -> set[str]:
    """Return the fingerprints of the cached datasets for `dataset`: a URL, or the first 8 or more digits of a
    fingerprint. `url`: the URL in the form of its storage.

    Raise MissingError if none is cached, UsageError if several fingerprints begin with these digits.
    """
    check_is_cache(directory)
    folders = [entry for entry in entries(directory) if filenames.is_folder(entry.name)]
    name = filenames.source(url)
    found = {entry.name for entry in folders if os.path.lexists(os.path.join(entry.path, name))}
    if not found and _ID.fullmatch(dataset):
        found = {entry.name for entry in folders if entry.name.startswith(dataset)}
        if len(found) > 1:
            raise UsageError("several cached datasets have fingerprints that begin with this", found=dataset)
    if not found:
        hint = "`mdsx cache` lists what is cached, by URL and fingerprint"
        raise MissingError(f"no shard of {url} is in this cache", file=str(directory), hint=hint)
    return found
