"""Read samples from storage: by byte range, or from a shard in memory if its format has no ranges.

Damaged bytes are fetched a second time before an error is raised. `objects.py` joins ranges to requests.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from copy import copy
from threading import Lock
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from mdsx.base.process import REQUESTS, Share
from mdsx.errors import CorruptError
from mdsx.format import (
    NeedsSideObjects,
    OpenedShard,
    RangeReader,
    Reading,
    ReadsExtents,
    ReadsLengths,
    ReadsParts,
    ReadsRows,
    ReadsSamples,
    Selection,
    StoredIndex,
)
from mdsx.shards.extents import IndexedObject, StoredExtents, indexed_object
from mdsx.shards.objects import StoredObject, download_object, retried, write_part
from mdsx.storage import Storage, file_of

_READERS = 1024  # shards whose ETags and readers are remembered
_WHOLE = 2  # shards held in memory

T = TypeVar("T")


class _Remote(NamedTuple):
    object: StoredObject | StoredExtents
    reader: RangeReader | None


class StoredShards:
    """The shards of one dataset in storage. Threads may share it; processes may not."""

    def __init__(self, storage: Storage, index: StoredIndex, index_of: Callable[[int], StoredIndex]) -> None:
        """`index_of(shard)` returns an index that can read a shard: `index` itself, unless it needs a side object."""
        self._storage = storage
        self._index = copy(index)  # it remembers facts about objects, for as long as their ETags are kept here
        self._index_of = index_of
        self._parts = self._index if isinstance(self._index, ReadsParts) else None
        self._extents = self._index if isinstance(self._index, ReadsExtents) else None
        self._samples = self._index if isinstance(self._index, ReadsSamples) else None
        self._keeps_readers = not isinstance(index, NeedsSideObjects)
        self._lock = Lock()
        self._readers: OrderedDict[int, _Remote] = OrderedDict()
        self._whole: OrderedDict[int, OpenedShard] = OrderedDict()
        self._objects: dict[str, StoredObject] = {}  # objects of parts, by key
        self._indexed: dict[str, IndexedObject] = {}  # objects of extents, by key
        self._damaged: dict[int, CorruptError] = {}  # damaged parts
        self._requests = Share(REQUESTS)

    def file(self, shard: int) -> str:
        """Return the shard's full name, for messages."""
        return file_of(self._storage, self._index.name(shard))

    def requires_full_download(self, shard: int) -> bool:
        """Return whether single samples of the shard cannot be read from storage."""
        return self._samples is None or not self._samples.has_ranges(shard)

    def download(self, shard: int, write: Callable[[bytes], object]) -> None:
        """Download a shard as `download_shard` does. The object must be the same as in earlier reads of its parts, or
        of its samples while their reader is remembered."""
        if self._parts is not None:
            write_part(self._object(shard), self._parts, shard, write)
            return
        if self._extents is not None:
            self._of_extents(self._extents, shard).pass_on(
                self._extents.receive_extents(shard, file=self.file(shard)), write
            )
            return
        remote = self._readers.get(shard)
        etag = None if remote is None else remote.object.etag
        download_object(self._storage, self._index, shard, write, etag=etag)

    def confirm(self, shard: int) -> None:
        """Raise ChangedError unless the objects of a shard's extents are those that were indexed."""
        assert self._extents is not None
        self._of_extents(self._extents, shard).confirm()

    def select(self, shard: int, samples: NDArray[np.int64]) -> Selection:
        """Select `samples` (int64 [n]) of a shard. Raise CorruptError."""
        if self.requires_full_download(shard):
            return self.whole(shard).select(samples, verify=False)
        return self._run(shard, lambda reader: reader.select(samples))

    def select_each(self, shard: int, samples: NDArray[np.int64]) -> list[Selection | CorruptError]:
        """Select each of `samples` separately, or return its error. Raise an error of the whole shard.

        If a part of an unchanged object is damaged, each of its samples gets an error.
        """
        if shard in self._damaged:
            return [self._damaged[shard]] * len(samples)
        try:
            return [*self.select(shard, samples).each()]
        except CorruptError as error:
            if self._parts is not None:
                self._damaged[shard] = error
                return [error] * len(samples)
            if self.requires_full_download(shard):
                raise
            self._run(shard, lambda reader: reader.check())
        found: list[Selection | CorruptError] = []
        for place in range(len(samples)):
            try:
                found.append(self.select(shard, samples[place : place + 1]))
            except CorruptError as error:
                found.append(error)
        return found

    def lengths(self, shard: int, column: int) -> NDArray[np.int64]:
        """Return the length of each sample of a shard, int64 [n], by a column. Raise CorruptError."""

        def read() -> NDArray[np.int64]:
            index = self._index_of(shard)
            if isinstance(index, ReadsLengths):
                reading = index.read_lengths(shard, column, file=self.file(shard))
                if reading is not None:
                    return self._stored_object(shard).run(reading)
            return self._download(shard).lengths(column)

        return retried(read)

    def rows(self, shard: int) -> Selection | None:
        """Select all samples of a shard for only their fixed-size values. Return None if that saves nothing."""

        def attempt() -> Selection | None:
            index = self._index_of(shard)
            reading = index.read_rows(shard, file=self.file(shard)) if isinstance(index, ReadsRows) else None
            return None if reading is None else self._stored_object(shard).run(reading)

        return retried(attempt)

    def forget(self, shard: int) -> None:
        """Forget a shard's ETag and its reader."""
        with self._lock:
            self._readers.pop(shard, None)
            self._whole.pop(shard, None)

    def _remote(self, shard: int) -> _Remote:
        with self._lock:
            remote = self._readers.get(shard)
            if remote is None:
                reader = self._reader(shard) if self._keeps_readers else None
                remote = self._readers[shard] = _Remote(self._stored_object(shard), reader)
                if len(self._readers) > _READERS:
                    self._readers.popitem(last=False)
        if remote.reader is None:  # side objects are kept elsewhere, up to a limit
            return _Remote(remote.object, self._reader(shard))
        return remote

    def _reader(self, shard: int) -> RangeReader:
        index = self._index_of(shard)
        assert isinstance(index, ReadsSamples)
        return index.by_range(shard, file=self.file(shard))

    def _object(self, shard: int) -> StoredObject:
        """Return the object of the part `shard`."""
        name = self._index.name(shard)
        with self._lock:
            found = self._objects.get(name)
            if found is None:
                found = self._objects[name] = self._plain_object(shard)
            return found

    def _of_extents(self, index: ReadsExtents, shard: int) -> StoredExtents:
        extents, objects = index.extents(shard), list[IndexedObject]()
        for number, extent in enumerate(extents):
            if (found := self._indexed.get(extent.name)) is None:
                made = indexed_object(self._storage, index, shard, number, pool=self._requests)
                found = self._indexed.setdefault(extent.name, made)  # atomic: one thread's object wins
            objects.append(found)
        return StoredExtents(extents, objects)

    def _stored_object(self, shard: int) -> StoredObject | StoredExtents:
        if self._extents is not None:
            return self._of_extents(self._extents, shard)
        return self._plain_object(shard)

    def _plain_object(self, shard: int) -> StoredObject:
        size = int(self._index.sizes[shard]) if self._parts is None else self._parts.object_size(shard)
        name = self._index.name(shard)
        return StoredObject(self._storage, name, size=size, pool=self._requests)

    def _run(self, shard: int, read: Callable[[RangeReader], Reading[T]]) -> T:
        def attempt() -> T:
            found, reader = self._remote(shard)
            assert reader is not None
            try:
                return found.run(read(reader))
            except CorruptError:
                self.forget(shard)
                raise

        return retried(attempt)

    def whole(self, shard: int) -> OpenedShard:
        """Download a whole shard into memory, where the last few are kept. Raise CorruptError."""
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
        self.download(shard, raw.extend)
        return self._index_of(shard).open(shard, raw, file=self.file(shard))
