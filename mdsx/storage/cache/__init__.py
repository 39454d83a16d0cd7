"""The bounded cache on local disk, and `Cache`, the user's settings for it.

`cache.py` has the rules, `ledger.py` the accounting, `eviction.py` the order of eviction, and `announced.py` the needs
that processes announce. `contents.py` and `removal.py` are for people: they list and remove the cache's content.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal, TypeAlias

from mdsx.base.sizes import is_size, parse_size
from mdsx.errors import UsageError, shown
from mdsx.storage.cache import filenames
from mdsx.storage.cache.announced import Announced, Announcement
from mdsx.storage.cache.cache import CacheDirectory, CacheKey, Verdict
from mdsx.storage.cache.contents import CachedDataset, Contents, contents_of, fingerprints_of
from mdsx.storage.cache.directory import directory_of, failure, nearest
from mdsx.storage.cache.eviction import Evictor, Needs, ShardNames, ShardNeeds
from mdsx.storage.cache.filenames import SHARDS
from mdsx.storage.cache.files import Cached, Write, held
from mdsx.storage.cache.removal import Amount, Removal, clear, prune

__all__ = [
    "SHARDS",
    "Amount",
    "Announced",
    "Announcement",
    "Cache",
    "CacheDirectory",
    "CacheKey",
    "CacheLike",
    "Cached",
    "CachedDataset",
    "Contents",
    "Evictor",
    "Needs",
    "Removal",
    "ShardNames",
    "ShardNeeds",
    "Verdict",
    "Write",
    "clear",
    "contents_of",
    "failure",
    "filenames",
    "fingerprints_of",
    "held",
    "nearest",
    "prune",
]


@dataclass(frozen=True, slots=True)
class Cache:
    """The local directory that keeps the shards of remote and of compressed datasets, and its limit.

        data = mdsx.Dataset("s3://bucket/corpus", cache=mdsx.Cache("/nvme/cache", limit="200GB"))

    As an argument `cache`, a path means `Cache(path)`, and None means `Cache()`.

    Args:
        directory: The path of a cache, of an empty directory, or of a directory to create. The default is
            `$MDSX_CACHE`, or else `~/.cache/mdsx`. Processes and jobs may share it.
        limit: The most bytes that the cache may hold, including downloads in flight: an integer, or text such as
            "200GB". The default is 80 % of the free space. The smallest limit of all processes that share the cache
            applies. Other files in the directory do not count, and are never removed.
        verify: How to check a shard that an earlier run left in the cache. "full" checks every byte before it is used.
            "size" checks only size and header, which starts faster, for a disk that you trust. A shard that fails the
            check is downloaded again.

    Raises:
        UsageError: `limit` is not a size, or `verify` is neither "full" nor "size".
    """

    directory: str | os.PathLike[str] | None = None
    limit: int | str | None = None
    verify: Literal["full", "size"] = "full"

    def __post_init__(self) -> None:
        if self.limit is not None:
            parse_size(self.limit, name="the cache's limit")
        if isinstance(self.directory, int) or (isinstance(self.directory, str) and is_size(self.directory)):
            hint = f"give mdsx.Cache(limit={self.directory!r}), or './{self.directory}' for a directory of that name"
            raise UsageError("the cache's directory looks like a size", found=shown(self.directory), hint=hint)
        if self.verify not in ("full", "size"):
            raise UsageError('verify must be "full" or "size"', found=shown(self.verify))

    def same_as(self, other: Cache) -> bool:
        """Return whether both have the same settings, however they are written."""
        return self._meaning() == other._meaning()

    def _meaning(self) -> tuple[str, int | None, str]:
        directory = os.path.realpath(directory_of(self.directory))
        return directory, None if self.limit is None else parse_size(self.limit), self.verify

    @classmethod
    def of(cls, given: CacheLike) -> Cache:
        """Return the Cache for the value of an argument `cache`."""
        return given if isinstance(given, Cache) else cls(given)

    def open(self) -> CacheDirectory:
        """Return the directory, ready for use."""
        return CacheDirectory(self.directory, self.limit)


CacheLike: TypeAlias = "Cache | str | os.PathLike[str] | None"
