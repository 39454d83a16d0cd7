"""Shards whose bytes lie in existing objects (`ReadsExtents`): read by range, or copied whole.

The first read of an object checks that it is the one that was indexed: by its ETag, or else by some of its bytes. From
then on it must stay the same object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from itertools import accumulate
from typing import TypeVar

from mdsx.base.process import REQUESTS, Share
from mdsx.format import Extent, Range, Reading, ReadsExtents, Receiver, StoredIndex
from mdsx.shards.objects import StoredObject, download_object, run
from mdsx.storage import Room, Storage, file_of

_AT_ONCE = 2**23  # bytes of a shard to copy at once

T = TypeVar("T")


class IndexedObject:
    """An object, and the check that it is the one that was indexed. Threads may share it."""

    def __init__(self, stored: StoredObject, etag: str, identify: Callable[[], Reading[None]]) -> None:
        self._stored, self._identify = stored, identify
        self._etag = etag if etag.strip('"') else None  # some servers give all objects the same, empty one
        self._known = False

    def read(self, ranges: Sequence[Range]) -> list[memoryview]:
        """Return bytes of the object. Raise ChangedError if it is not the one that was indexed."""
        if self._known:
            return self._stored.read(ranges)
        if self._etag is not None and ranges:
            found = self._stored.read(ranges)
            if self._stored.etag == self._etag:
                self._known = True
            else:  # another ETag: it may be a copy
                self._checked([])
            return found
        return self._checked(ranges)

    def _checked(self, ranges: Sequence[Range]) -> list[memoryview]:
        """Return bytes of the object, and check it in the same requests. Raise ChangedError."""
        check = self._identify()
        wanted = next(check)
        found = self._stored.read([*ranges, *wanted])
        asked = found[len(ranges) :]
        try:
            while True:
                asked = self._stored.read(check.send(asked))
        except StopIteration:
            self._known = True
        return found[: len(ranges)]


class StoredExtents:
    """The stored bytes of one shard. Ranges are offsets in the shard, each within one extent."""

    def __init__(self, extents: Sequence[Extent], objects: Sequence[IndexedObject]) -> None:
        self._extents, self._objects = extents, objects
        self.etag: str | None = None  # each IndexedObject has its own, for all its shards

    def read(self, ranges: Sequence[Range]) -> list[memoryview]:
        if len(self._extents) == 1:
            first = self._extents[0].start
            return self._objects[0].read([(first + start, first + stop) for start, stop in ranges])
        found = [memoryview(b"")] * len(ranges)
        ends = list(accumulate(extent.stop - extent.start for extent in self._extents))
        for extent, thing, end in zip(self._extents, self._objects, ends, strict=True):
            first = end - (extent.stop - extent.start)
            here = [number for number, (start, stop) in enumerate(ranges) if first <= start < stop <= end]
            shift = extent.start - first
            parts = thing.read([(ranges[number][0] + shift, ranges[number][1] + shift) for number in here])
            for number, part in zip(here, parts, strict=True):
                found[number] = part
        return found

    def run(self, reading: Reading[T]) -> T:
        """Read the ranges that `reading` yields, and return its result."""
        return run(self.read, reading)

    def pass_on(self, receiver: Receiver, write: Callable[[bytes], object]) -> None:
        """Write the raw bytes of the shard with `write`, through its checks. Raise CorruptError or ChangedError."""
        for piece in self._pieces():
            for raw in receiver.feed(piece):
                write(raw)  # type: ignore[arg-type]
        receiver.finish()

    def confirm(self) -> None:
        """Raise ChangedError unless the objects are still those that were indexed."""
        for thing in self._objects:
            thing.read([(0, 1)])

    def _pieces(self) -> Iterator[memoryview]:
        for extent, thing in zip(self._extents, self._objects, strict=True):
            for start in range(extent.start, extent.stop, _AT_ONCE):
                yield from thing.read([(start, min(start + _AT_ONCE, extent.stop))])
            if extent.start == extent.stop:
                thing.read([])
                yield memoryview(b"")  # a receiver may add bytes to a shard without any


def indexed_object(
    storage: Storage, index: ReadsExtents, shard: int, number: int, *, pool: Executor | None = None
) -> IndexedObject:
    """Return the object of a shard's extent with this number."""
    extent = index.extents(shard)[number]
    stored = StoredObject(storage, extent.name, size=extent.size, pool=pool or Share(REQUESTS))
    return IndexedObject(stored, extent.etag, lambda: index.identify(shard, number, file=stored.file))


def download_shard(
    storage: Storage,
    index: StoredIndex,
    shard: int,
    write: Callable[[bytes], object],
    *,
    name: str | None = None,
    room: Room | None = None,
) -> None:
    """Write the raw bytes of a shard of any format with `write`. `name`, `room`: see `download_object`. Raise
    CorruptError at the end if the bytes fail their checks."""
    if not isinstance(index, ReadsExtents):
        download_object(storage, index, shard, write, name=name, room=room)
        return
    extents = index.extents(shard)
    objects = [indexed_object(storage, index, shard, number) for number in range(len(extents))]
    receiver = index.receive_extents(shard, file=file_of(storage, index.name(shard)))
    StoredExtents(extents, objects).pass_on(receiver, write)
