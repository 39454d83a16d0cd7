"""Samples of shards that are not mapped, read from storage: by range, or out of the whole shard in memory.

One request fetches neighbouring ranges, and several requests are in flight at once. Damaged bytes are fetched once more
before they are an error.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import ChangedError, CorruptError
from mdsx.format import OpenedShard, Range, RangeReader, Reading, Selection, StoredIndex
from mdsx.process import REQUESTS, Share
from mdsx.shards.download import download_shard, retried
from mdsx.storage import Storage, file_of

_GAP = 64 * 1024  # reading over a gap of this many bytes costs less than one more request
_READERS = 1024  # shards whose ETags, and whatever their readers keep, are remembered
_WHOLE = 2  # shards held in memory

T = TypeVar("T")


class _Remote(NamedTuple):
    object: StoredObject
    reader: RangeReader | None
    """None if the shard is read whole only."""


class StoredShards:
    """The shards of one dataset in storage. Threads may share it; processes may not."""

    def __init__(self, storage: Storage, index: StoredIndex) -> None:
        self._storage, self._index = storage, index
        self._lock = Lock()
        self._readers: OrderedDict[int, _Remote] = OrderedDict()
        self._whole: OrderedDict[int, OpenedShard] = OrderedDict()
        self._requests = Share(REQUESTS)

    def file(self, shard: int) -> str:
        """Return the shard's full name, for messages."""
        return file_of(self._storage, self._index.name(shard))

    def is_whole_only(self, shard: int) -> bool:
        """Return whether the shard's format has no way to read single samples from storage."""
        return self._remote(shard).reader is None

    def select(self, shard: int, samples: NDArray[np.int64]) -> Selection:
        """Select `samples` (int64 [n]) of a shard. Raise CorruptError."""
        if self.is_whole_only(shard):
            return self._in_memory(shard).select(samples, verify=False)
        return self._run(shard, lambda reader: reader.select(samples))

    def select_each(self, shard: int, samples: NDArray[np.int64]) -> list[Selection | CorruptError]:
        """Select each of `samples` by itself, or return its error. Raise the error of the shard as such, if any."""
        try:
            return [*self.select(shard, samples).each()]
        except CorruptError:
            if self.is_whole_only(shard):
                raise
            self._run(shard, lambda reader: reader.check())
        found: list[Selection | CorruptError] = []
        for place in range(len(samples)):
            try:
                found.append(self.select(shard, samples[place : place + 1]))
            except CorruptError as error:
                found.append(error)
        return found

    def forget(self, shard: int) -> None:
        """Forget a shard's ETag, and what its reader keeps."""
        with self._lock:
            self._readers.pop(shard, None)
            self._whole.pop(shard, None)

    def _remote(self, shard: int) -> _Remote:
        with self._lock:
            remote = self._readers.get(shard)
            if remote is None:
                name, size = self._index.name(shard), int(self._index.sizes[shard])
                found = StoredObject(self._storage, name, size=size, pool=self._requests)
                remote = self._readers[shard] = _Remote(found, self._index.by_range(shard, file=self.file(shard)))
                if len(self._readers) > _READERS:
                    self._readers.popitem(last=False)
            return remote

    def _run(self, shard: int, read: Callable[[RangeReader], Reading[T]]) -> T:
        def attempt() -> T:
            remote = self._remote(shard)
            assert remote.reader is not None
            try:
                return remote.object.run(read(remote.reader))
            except CorruptError:
                self.forget(shard)
                raise

        return retried(attempt)

    def _in_memory(self, shard: int) -> OpenedShard:
        opened = self._whole.get(shard)
        if opened is None:
            opened = retried(lambda: self._download(shard))
            with self._lock:
                self._whole[shard] = opened
                if len(self._whole) > _WHOLE:
                    self._whole.popitem(last=False)
        return opened

    def _download(self, shard: int) -> OpenedShard:
        raw = bytearray()
        download_shard(self._storage, self._index, shard, raw.extend, file=self.file(shard))
        return self._index.open(shard, raw, file=self.file(shard))


# --- byte ranges


@dataclass(frozen=True, slots=True)
class Request:
    """Bytes [start, stop), which hold the ranges numbered in `serves`."""

    start: int
    stop: int
    serves: tuple[int, ...]


def coalesce(ranges: Sequence[Range], gap: int = _GAP) -> list[Request]:
    """Return the fewest requests for all `ranges`, joining those that are at most `gap` bytes apart."""
    spans: list[Request] = []
    serves: list[int] = []
    start = stop = -1
    for number in sorted(range(len(ranges)), key=ranges.__getitem__):
        low, high = ranges[number]
        if serves and low <= stop + gap:
            stop = max(stop, high)
        else:
            if serves:
                spans.append(Request(start, stop, tuple(serves)))
            start, stop, serves = low, high, []
        serves.append(number)
    if serves:
        spans.append(Request(start, stop, tuple(serves)))
    return spans


class StoredObject:
    """Byte ranges of one stored object, which must stay the same object from the first request on. It verifies none of
    the bytes."""

    def __init__(self, storage: Storage, key: str, *, size: int, pool: Executor) -> None:
        self.key = key
        self.file = file_of(storage, key)
        self._storage = storage
        self._size = size
        self._pool = pool
        self._etag: str | None = None

    def read(self, ranges: Sequence[Range]) -> list[memoryview]:
        spans = coalesce(ranges)
        fetch = map if len(spans) == 1 else self._pool.map  # one request need not change threads
        parts = list(fetch(self._get, spans))
        found: list[memoryview] = [memoryview(b"")] * len(ranges)
        for span, part in zip(spans, parts, strict=True):
            for number in span.serves:
                low, high = ranges[number]
                found[number] = part[low - span.start : high - span.start]
        return found

    def run(self, reading: Reading[T]) -> T:
        """Read the ranges that `reading` yields, until its result."""
        try:
            wanted = next(reading)
            while True:
                wanted = reading.send(self.read(wanted))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def _get(self, span: Request) -> memoryview:
        if span.start == span.stop:
            return memoryview(b"")
        piece = self._storage.get(self.key, start=span.start, stop=span.stop, etag=self._etag)
        if piece.total != self._size:
            raise ChangedError(
                "the object is not the one that the index names",
                file=self.file,
                place="size",
                found=piece.total,
                expected=self._size,
                hint="open the dataset again if it was replaced, else write it again",
            )
        self._etag = piece.etag or None
        return memoryview(piece.data)
