"""What a user says about the cache, as one value."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal, get_args

from mdsx.errors import UsageError
from mdsx.storage.cache.cache import Cache

VerifyCached = Literal["size", "full"]
"""What is checked of a cached file before it is used: its size and header, or all of it."""


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """The arguments `cache`, `cache_limit` and `verify_cached`. Equal to `CacheOptions()` if none was given."""

    cache: str | os.PathLike[str] | None = None
    cache_limit: int | str | None = None
    verify_cached: VerifyCached = "full"

    def __post_init__(self) -> None:
        if self.verify_cached not in get_args(VerifyCached):
            raise UsageError('verify_cached is "size" or "full"', found=repr(self.verify_cached))

    @property
    def trusted(self) -> bool:
        """Whether only the size and header of a cached file are checked."""
        return self.verify_cached == "size"

    def open(self) -> Cache:
        """Return the cache that they describe."""
        return Cache(self.cache, self.cache_limit)
