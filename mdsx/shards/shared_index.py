"""An index that many processes open at once: a large one is downloaded once for each node, into the cache.

Rules:
- A small index is read with one request, and never cached.
- A large one is a file of the cache like a shard: counted, leased while it is read, evicted when it was not used for
  long. Its name stands for its place, its ETag and its size, so that a replaced index is another file.
- Each process gets the first piece from storage. So it knows the ETag, and may read what the cache has. It compares the
  piece with the file, and checks the checksum of the whole, also of a file of its own. A wrong file is dropped.
- What cannot be shared safely is downloaded by each process: an index without an ETag or a checksum of its own, one
  that takes much of the cache's limit, and one that another process does not finish in time.
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

_FIRST = 2**20  # bytes of the first request: a larger index is shared
_SHARE = 8  # the index takes at most this part of the cache's limit: an eighth
_PATIENCE = 60.0  # seconds to wait for a process that downloads the index
_PAUSE = 0.02


def get_index(storage: Storage, key: str, cache: CacheDirectory | None) -> bytes:
    """Return the bytes of the object `key`, an index: of a large one in remote storage, from `cache` if it has room.

    Raise MissingError if there is none. The bytes may be damaged, as those of any object.
    """
    if cache is not None and storage.path(key) is None:
        # An empty object has no first piece. One that was replaced meanwhile, or is damaged, is read without the cache.
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
    """Return the right bytes from the cache; None if it has no room, or another process takes too long."""

    def fill(write: Write) -> None:
        data = storage.get(key, etag=first.etag).data
        if not _is_right(data, first):
            raise CorruptError("the index is damaged", file=file_of(storage, key))
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
    """Return the file, which this process makes if no other one does; or why it is not there."""
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
