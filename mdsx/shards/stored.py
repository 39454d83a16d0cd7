"""What is read of shards from storage: whole ones through their checks, and samples of them by range.

What is damaged in transfer is fetched once more before it is an error. A request for ranges fetches neighbouring ones
together, and several requests are in flight at once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import ChangedError, CorruptError, FormatError, MissingError, TruncatedError, restated
from mdsx.format import (
    TABLE_END,
    Hashes,
    OpenedShard,
    Range,
    RangeReader,
    RawStream,
    Reading,
    Reads,
    Schema,
    Selection,
    ShardEntry,
    ShardView,
    StoredIndex,
    check_shard,
    claimed_raw_size,
    filenames,
)
from mdsx.process import REQUESTS, Counter, Share, count, in_flight
from mdsx.storage import Storage, file_of

_GAP = 64 * 1024  # reading over a gap of this many bytes costs less than one more request
_SMALL_GAP = 16 * 1024  # the same in small objects: else a few ranges would read most of one
_GAPS = 64  # such gaps in an object
_READERS = 1024  # shards whose ETags, and whatever their readers keep, are remembered
_WHOLE = 2  # shards held in memory

_REPLACED = (
    "open the dataset again if it was replaced (Parquet: run `mdsx index parquet`, tars: `mdsx index tar`), or put "
    "back what was there"
)

_OTHER_OBJECT = (ChangedError, MissingError, TruncatedError)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


def retried(fetch: Callable[[], T], damage: type[FormatError] = CorruptError) -> T:
    """Return what `fetch` does; call it once more if it raises `damage`, which may be damage in transfer."""
    with suppress(damage):
        return fetch()
    count(Counter.RETRIES)
    return fetch()


# --- whole shards


class _Checks(Protocol[T_co]):
    def feed(self, chunk: bytes) -> Iterable[object]: ...
    def finish(self) -> T_co: ...


def download_shard(
    storage: Storage,
    index: StoredIndex,
    shard: int,
    write: Callable[[bytes], object],
    *,
    name: str | None = None,
    etag: str | None = None,
) -> None:
    """Write the raw bytes of a shard with `write`. Raise CorruptError, at the end, if they are not the right ones.

    `name` is the shard's key in `storage`, if it is not the index's own name for it. Raise ChangedError if it is an
    object of its own, and its ETag is not `etag`, if that is given.
    """
    key = index.name(shard) if name is None else name
    if index.reads(shard) is Reads.GROUPS:
        found = StoredObject(storage, key, size=index.object_size(shard), pool=Share(REQUESTS))
        _write_group(found, index, shard, write)
        return
    receiver = index.receive(shard, file=file_of(storage, key))
    try:
        _pass(storage, key, receiver, write, size=int(index.sizes[shard]), etag=etag)
    except _OTHER_OBJECT as error:
        raise restated(error, hint=error.hint or _REPLACED) from error


def _write_group(found: StoredObject, index: StoredIndex, shard: int, write: Callable[[bytes], object]) -> None:
    """Write the raw bytes of a shard that is a part of the object `found`."""
    for piece in found.run(index.read_group(shard, file=found.file)):
        write(piece)  # type: ignore[arg-type]


def stream_shard(
    storage: Storage, key: str, write: Callable[[bytes], object], *, size: int, raw_size: int | None
) -> Hashes:
    """Write the raw bytes of a shard of `size` stored bytes with `write`; with `raw_size` it is compressed.

    Return its hashes, which the caller compares. Raise CorruptError for a damaged frame.
    """
    return _pass(storage, key, RawStream(size=size, raw_size=raw_size, file=file_of(storage, key)), write, size=size)


def _pass(
    storage: Storage,
    key: str,
    stream: _Checks[T_co],
    write: Callable[[bytes], object],
    *,
    size: int,
    etag: str | None = None,
) -> T_co:
    def sink(chunk: bytes) -> None:
        count(Counter.DOWNLOADED, len(chunk))
        for piece in stream.feed(chunk):
            write(piece)  # type: ignore[arg-type]

    with in_flight():
        storage.download(key, sink, size=size, etag=etag)
    return stream.finish()


def inspect_shard(
    storage: Storage, key: str, size: int, *, schema: Schema | None = None, values: bool = True
) -> tuple[ShardView, ShardEntry]:
    """Read and check a whole shard of ours that no index names (see `check_shard` for `schema` and `values`).

    Return it, and its entry in an index. Raise CorruptError or UnsupportedError.
    """
    raw_size, raw, file = None, bytearray(), file_of(storage, key)
    if filenames.is_compressed(key):
        raw_size = claimed_raw_size(storage.get(key, start=max(0, size - TABLE_END)).data, file=file)
    hashes = stream_shard(storage, key, raw.extend, size=size, raw_size=raw_size)
    for problem in check_shard(raw, file=file, schema=schema, values=values):
        raise problem
    view = ShardView.parse(raw, file=file)
    if not view.samples:
        raise CorruptError("it has no sample", file=file)
    return view, ShardEntry(key, view.samples, view.row_key, size, hashes.stored, len(raw), hashes.raw)


# --- samples


class _Remote(NamedTuple):
    object: StoredObject
    reader: RangeReader | None


class StoredShards:
    """The shards of one dataset in storage. Threads may share it; processes may not."""

    def __init__(self, storage: Storage, index: StoredIndex, with_side_object: Callable[[int], StoredIndex]) -> None:
        """`with_side_object(shard)` returns an index that can read a shard that has a side object."""
        self._storage = storage
        self._index = copy(index)  # what it keeps of objects lasts as long as their ETags here
        self._with_side_object = with_side_object
        self._lock = Lock()
        self._readers: OrderedDict[int, _Remote] = OrderedDict()
        self._whole: OrderedDict[int, OpenedShard] = OrderedDict()
        self._objects: dict[str, StoredObject] = {}  # by key, of groups
        self._damaged: dict[int, CorruptError] = {}  # groups
        self._requests = Share(REQUESTS)

    def file(self, shard: int) -> str:
        """Return the shard's full name, for messages."""
        return file_of(self._storage, self._index.name(shard))

    def is_whole_only(self, shard: int) -> bool:
        """Return whether the shard's format has no way to read single samples from storage."""
        return self._index.reads(shard) is not Reads.SAMPLES

    def download(self, shard: int, write: Callable[[bytes], object]) -> None:
        """Do what `download_shard` does. The object must be the one that this process read of before: of its groups, or
        of single samples as long as their reader is remembered."""
        if self._index.reads(shard) is Reads.GROUPS:
            _write_group(self._object(shard), self._index, shard, write)
            return
        remote = self._readers.get(shard)
        etag = None if remote is None else remote.object.etag
        download_shard(self._storage, self._index, shard, write, etag=etag)

    def select(self, shard: int, samples: NDArray[np.int64]) -> Selection:
        """Select `samples` (int64 [n]) of a shard. Raise CorruptError."""
        if self.is_whole_only(shard):
            return self._in_memory(shard).select(samples, verify=False)
        return self._run(shard, lambda reader: reader.select(samples))

    def select_each(self, shard: int, samples: NDArray[np.int64]) -> list[Selection | CorruptError]:
        """Select each of `samples` by itself, or return its error. Raise the error of the shard as such, if any.

        A damaged group of an object that is the right one is an error of each of its samples.
        """
        if shard in self._damaged:
            return [self._damaged[shard]] * len(samples)
        try:
            return [*self.select(shard, samples).each()]
        except CorruptError as error:
            if self._index.reads(shard) is Reads.GROUPS:
                self._damaged[shard] = error
                return [error] * len(samples)
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

    def lengths(self, shard: int, column: int) -> NDArray[np.int64]:
        """Return the length of each sample of a shard, int64 [n], by a column. Raise CorruptError."""
        file = self.file(shard)

        def read() -> NDArray[np.int64]:
            reading = self._index_of(shard).read_lengths(shard, column, file=file)
            if reading is None:
                return self._download(shard).lengths(column)
            return self._stored_object(shard).run(reading)

        return retried(read)

    def rows(self, shard: int) -> Selection | None:
        """Select all samples of a shard for their fixed-size values alone; None if that saves nothing."""

        def attempt() -> Selection | None:
            reading = self._index_of(shard).read_rows(shard, file=self.file(shard))
            return None if reading is None else self._stored_object(shard).run(reading)

        return retried(attempt)

    def forget(self, shard: int) -> None:
        """Forget a shard's ETag, and what its reader keeps."""
        with self._lock:
            self._readers.pop(shard, None)
            self._whole.pop(shard, None)

    def _index_of(self, shard: int) -> StoredIndex:
        """Return an index that can read the shard."""
        return self._index if self._index.side_object(shard) is None else self._with_side_object(shard)

    def _remote(self, shard: int) -> _Remote:
        with self._lock:
            remote = self._readers.get(shard)
            if remote is None:
                reader = None
                if self._index.side_object(shard) is None:
                    reader = self._index.by_range(shard, file=self.file(shard))
                remote = self._readers[shard] = _Remote(self._stored_object(shard), reader)
                if len(self._readers) > _READERS:
                    self._readers.popitem(last=False)
        if remote.reader is None:  # side objects are kept elsewhere, up to a limit
            return _Remote(remote.object, self._index_of(shard).by_range(shard, file=self.file(shard)))
        return remote

    def _object(self, shard: int) -> StoredObject:
        """Return the object that has the group `shard`."""
        name = self._index.name(shard)
        with self._lock:
            found = self._objects.get(name)
            if found is None:
                found = self._objects[name] = self._stored_object(shard)
            return found

    def _stored_object(self, shard: int) -> StoredObject:
        name, size = self._index.name(shard), self._index.object_size(shard)
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
        self.download(shard, raw.extend)
        return self._index_of(shard).open(shard, raw, file=self.file(shard))


# --- byte ranges


@dataclass(frozen=True, slots=True)
class Request:
    """Bytes [start, stop), which hold the ranges numbered in `serves`."""

    start: int
    stop: int
    serves: tuple[int, ...]


def gap_in(size: int) -> int:
    """Return the gap, in bytes, over which ranges of an object of that size are read together."""
    return min(_GAP, max(_SMALL_GAP, size // _GAPS))


def coalesce(ranges: Sequence[Range], gap: int) -> list[Request]:
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
        self.etag: str | None = None
        """That of the object, once something of it was read; None if the storage has none."""

    def read(self, ranges: Sequence[Range]) -> list[memoryview]:
        spans = coalesce(ranges, gap_in(self._size))
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
        try:
            with in_flight():
                piece = self._storage.get(self.key, start=span.start, stop=span.stop, etag=self.etag)
        except _OTHER_OBJECT as error:
            raise restated(error, hint=error.hint or _REPLACED) from error
        count(Counter.DOWNLOADED, len(piece.data))
        if piece.total != self._size:
            raise ChangedError(
                "the object is not the one that the index names",
                file=self.file,
                place="size",
                found=piece.total,
                expected=self._size,
                hint=_REPLACED,
            )
        self.etag = piece.etag or None
        return memoryview(piece.data)
