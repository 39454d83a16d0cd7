"""Fetch the small files of a dataset that each process reads: indexes and selections.

Many processes open an index at once, so a large one is downloaded once per node, into the cache.

Rules:
- A small file is read with one request, and never cached.
- A large one is a file of the cache like a shard: counted, leased while it is read, and evicted. Its name is made from
  the URL, the ETag and the size, so a replaced file is another one.
- Each process gets the first piece from storage. So it knows the ETag, and may use the file in the cache. It compares
  the piece with the file, and verifies the checksum of the whole, even if it made the file itself. A wrong file is
  dropped.
- Each process downloads a file itself if sharing is not safe: without an ETag or a checksum in the file, if the file
  takes much of the cache's limit, or if another process does not finish it in time.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from contextlib import suppress

import xxhash

from mdsx.errors import ChangedError, CorruptError, TruncatedError
from mdsx.format import begins_sealed, is_sealed
from mdsx.shards.opened import make_room
from mdsx.storage import Piece, Storage, file_of
from mdsx.storage.cache import CacheDirectory, CacheKey, Verdict, Write

_FIRST = 2**20  # bytes of the first request: a larger file is shared
_SHARE = 8  # a file may take at most an eighth of the cache's limit
_PATIENCE = 60.0  # seconds to wait for a process that downloads the file
_PAUSE = 0.02


def get_shared(storage: Storage, key: str, cache: CacheDirectory | None) -> bytes:
    """Return the bytes of an index or a selection. A large one in remote storage goes through `cache` if it has room.

    Raise MissingError if it does not exist. The bytes are not verified.
    """
    if cache is not None and storage.path(key) is None:
        # An object that is cut short, was replaced meanwhile, or is damaged, is read directly.
        with suppress(TruncatedError, ChangedError, CorruptError):
            first = storage.get(key, stop=_FIRST)
            if len(first.data) == first.total:
                return first.data
            if _can_be_shared(first, cache) and (found := _shared(storage, key, cache, first)) is not None:
                return found
    return storage.get(key).data


def _can_be_shared(first: Piece, cache: CacheDirectory) -> bool:
    named = first.etag.strip('"') != ""  # some servers give all objects the same, empty one
    return named and begins_sealed(first.data) and _SHARE * first.total <= cache.recent_limit


def _shared(storage: Storage, key: str, cache: CacheDirectory, first: Piece) -> bytes | None:
    """Return the verified bytes from the cache; None if it has no room, or another process takes too long."""

    def fill(write: Write) -> None:
        data = storage.get(key, etag=first.etag).data
        if not _is_right(data, first):
            raise CorruptError("the file is damaged", file=file_of(storage, key))
        write(data)

    place, version = f"{storage.url}\n{key}", f"{first.etag}\n{first.total}"
    name = CacheKey(_hash(place), _hash(version), first.total, kind="index")
    for _ in range(2):
        found = _fetched(cache, name, fill, storage.url)
        if isinstance(found, Verdict):
            return None
        data = bytes(found)
        if _is_right(data, first):
            return data
        cache.discard(name)
    return None


def _fetched(cache: CacheDirectory, name: CacheKey, fill: Callable[[Write], None], url: str) -> mmap.mmap | Verdict:
    """Return the file, which this process makes unless another one does; or the reason why it is not in the cache."""
    make_room(leased=True)
    deadline = time.monotonic() + _PATIENCE
    while (found := cache.fetch(name, fill, source=url)) is Verdict.BUSY and time.monotonic() < deadline:
        time.sleep(_PAUSE)
        while cache.is_being_made(name) and time.monotonic() < deadline:
            time.sleep(_PAUSE)
    return found


def _is_right(data: bytes, first: Piece) -> bool:
    return len(data) == first.total and data.startswith(first.data) and is_sealed(data)


def _hash(text: str) -> str:
    return xxhash.xxh3_128_hexdigest(text.encode(errors="surrogateescape"))
