"""The side objects of shards (`NeedsSideObjects`): in place next to the index, in the cache, or in memory.

A side object's hash is verified whenever it is read. For single requests, a few side objects are kept in memory. Those
of open shards stay mapped as long as their shards. In the cache, they are files like shards: counted, leased while they
are mapped, and evicted.
"""

from __future__ import annotations

import mmap
from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING

import xxhash

from mdsx.base.process import Counter, count, in_flight
from mdsx.errors import CorruptError, FormatError, MissingError, TruncatedError
from mdsx.format import NeedsSideObjects, SideObject, StoredIndex, filenames
from mdsx.shards.objects import retried
from mdsx.shards.opened import make_room
from mdsx.storage import Storage, file_of, map_range, map_whole
from mdsx.storage.cache import CacheDirectory, CacheKey, Needs, Verdict, Write

if TYPE_CHECKING:
    from typing_extensions import Buffer

_KEPT = 2**26  # bytes


class SideObjects:
    """The side objects of one dataset's shards, in `storage` next to the index. Threads may share it; processes may
    not. `cache`: None if they are not cached. `mapped`: whether local ones are mapped in place."""

    def __init__(self, storage: Storage, index: StoredIndex, cache: CacheDirectory | None, *, mapped: bool) -> None:
        self._storage, self._index = storage, index
        self._sides = index if isinstance(index, NeedsSideObjects) else None
        local = storage.path(filenames.INDEX) is not None
        self._cache = None if local else cache
        self._mapped = mapped and local
        self._lock = Lock()
        self._kept: OrderedDict[int, StoredIndex] = OrderedDict()
        self._size = 0

    def index(self, shard: int) -> StoredIndex:
        """Return an index that can read the shard for one request: the index itself if there is no side object.

        Raise MissingError, or CorruptError if the side object does not match the index.
        """
        if self._sides is None:
            return self._index
        side = self._sides.side_object(shard)
        with self._lock:
            if (found := self._kept.get(shard)) is not None:
                self._kept.move_to_end(shard)
                return found
        found = self._parsed(self._sides, shard, bytes(self._read(side)))
        with self._lock:
            if shard not in self._kept:
                self._kept[shard] = found
                self._size += side.size
            while self._size > _KEPT and len(self._kept) > 1:
                oldest, _ = self._kept.popitem(last=False)
                self._size -= self._sides.side_object(oldest).size
        return found

    def opened_index(self, shard: int) -> StoredIndex:
        """Return an index that can read the shard as long as it is open."""
        if self._sides is None:
            return self._index
        return self._parsed(self._sides, shard, self._read(self._sides.side_object(shard)))

    def bring(self, shard: int, *, needed_in: float, needs: Needs) -> None:
        """Fetch the shard's side object into the cache, if that has room."""
        if self._sides is not None and self._cache is not None:
            self._fetch(self._cache, self._sides.side_object(shard), needed_in, needs)

    def touch(self, shard: int, needed_in: float) -> None:
        """Report to the cache in how many seconds the shard is needed again."""
        if self._sides is not None and self._cache is not None:
            self._cache.touch(self._key(self._sides.side_object(shard)), needed_in)

    # --- inside

    def _read(self, side: SideObject) -> Buffer:
        """Return the verified bytes of a side object."""
        if self._mapped:
            return self._map(side)
        if self._cache is None:
            return self._downloaded(side)
        make_room(leased=True)
        found = self._fetch(self._cache, side, 0.0, {})
        if isinstance(found, Verdict):
            return self._downloaded(side)
        if not _is_right(side, found):
            self._cache.discard(self._key(side))
            found = self._fetch(self._cache, side, 0.0, {})
        return found if not isinstance(found, Verdict) and _is_right(side, found) else self._downloaded(side)

    def _map(self, side: SideObject) -> Buffer:
        path = self._storage.path(side.name)
        assert path is not None
        try:
            found: Buffer = map_whole(path) if side.total is None else map_range(path, side.start, side.stop)
        except MissingError:
            raise self._missing(side) from None
        except (ValueError, TruncatedError):  # an empty file cannot be mapped
            found = b""
        if not _is_right(side, found):
            raise self._wrong(side)
        return found

    def _fetch(self, cache: CacheDirectory, side: SideObject, needed_in: float, needs: Needs) -> mmap.mmap | Verdict:
        def fill(write: Write) -> None:
            write(self._downloaded(side))

        url = self._storage.url
        return cache.fetch(self._key(side), fill, needed_in=needed_in, needs=needs, source=url)

    def _downloaded(self, side: SideObject) -> bytes:
        return retried(lambda: self._download(side), FormatError)

    def _download(self, side: SideObject) -> bytes:
        try:
            with in_flight():
                piece = self._storage.get(side.name, start=side.start, stop=side.stop)
        except MissingError:
            raise self._missing(side) from None
        count(Counter.DOWNLOADED, len(piece.data))
        if piece.total != side.object_size or not _is_right(side, piece.data):
            raise self._wrong(side)
        return piece.data

    def _parsed(self, sides: NeedsSideObjects, shard: int, data: Buffer) -> StoredIndex:
        return sides.with_side_object(shard, data, file=file_of(self._storage, sides.side_object(shard).name))

    def _key(self, side: SideObject) -> CacheKey:
        return CacheKey(self._index.fingerprint, side.hash, side.size, kind="side object")

    def _missing(self, side: SideObject) -> MissingError:
        message = "a file that the index names is missing"
        return MissingError(message, file=file_of(self._storage, side.name), hint=_HINT)

    def _wrong(self, side: SideObject) -> CorruptError:
        message, file = "the file is not the one that the index names", file_of(self._storage, side.name)
        return CorruptError(message, file=file, place="size or XXH3-128", expected=side.hash, hint=_HINT)


_HINT = "it belongs to the index: run `mdsx index` again, or copy the whole folder again"


def with_side_object(storage: Storage, index: StoredIndex, shard: int) -> StoredIndex:
    """Return an index that can read the shard, whose side object, if any, is in `storage`.

    Raise MissingError, or CorruptError if the side object does not match the index.
    """
    return SideObjects(storage, index, None, mapped=False).index(shard)


def _is_right(side: SideObject, data: Buffer) -> bool:
    return len(memoryview(data)) == side.size and xxhash.xxh3_128_hexdigest(data) == side.hash
