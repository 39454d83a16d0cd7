"""Read stored objects: whole shards, with their format's checks, and byte ranges of one object.

Neighbouring ranges are fetched together, and several requests are in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Protocol, TypeVar

from mdsx.base.process import REQUESTS, Counter, Share, count, in_flight
from mdsx.errors import ChangedError, CorruptError, FormatError, MissingError, TruncatedError, restated
from mdsx.format import (
    TABLE_END,
    Hashes,
    Range,
    RawStream,
    Reading,
    ReadsParts,
    ReadsWhole,
    Schema,
    ShardEntry,
    ShardView,
    StoredIndex,
    check_shard,
    claimed_raw_size,
    filenames,
)
from mdsx.storage import Room, Storage, file_of

_GAP = 64 * 1024  # bytes: reading across a gap of this size costs less than another request
_SMALL_GAP = 16 * 1024  # the same in small objects, where a few ranges would otherwise read most of the object
_GAPS = 64  # such gaps in an object

_REPLACED = (
    "open the dataset again if it was replaced (Parquet: run `mdsx index parquet`, tars: `mdsx index tar`), or restore "
    "the old object"
)
_OTHER_OBJECT = (ChangedError, MissingError, TruncatedError)
"""Errors that mean that an object is not the one that the index names."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


def retried(fetch: Callable[[], T], damage: type[FormatError] = CorruptError) -> T:
    """Return the result of `fetch`. Call it a second time if it raises `damage`, which may have happened in
    transfer."""
    with suppress(damage):
        return fetch()
    count(Counter.RETRIES)
    return fetch()


@dataclass(frozen=True, slots=True)
class Request:
    """Bytes [start, stop), with the ranges numbered in `serves`."""

    start: int
    stop: int
    serves: tuple[int, ...]


def gap_in(size: int) -> int:
    """Return the largest gap, in bytes, across which ranges of an object of this size are read together."""
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


def run(read: Callable[[Sequence[Range]], list[memoryview]], reading: Reading[T]) -> T:
    """Read the ranges that `reading` yields, and return its result."""
    try:
        wanted = next(reading)
        while True:
            wanted = reading.send(read(wanted))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


class StoredObject:
    """Reads byte ranges of one stored object, which must stay the same from the first request on. The bytes are not
    verified."""

    def __init__(self, storage: Storage, key: str, *, size: int, pool: Executor) -> None:
        self.key = key
        self.file = file_of(storage, key)
        self._storage = storage
        self._size = size
        self._pool = pool
        self._lock = Lock()
        self.etag: str | None = None
        """The object's ETag, known after the first read; None if the storage has none."""

    def read(self, ranges: Sequence[Range]) -> list[memoryview]:
        spans = coalesce(ranges, gap_in(self._size))
        fetch = map if len(spans) == 1 else self._pool.map  # a single request stays in this thread
        parts = list(fetch(self._get, spans))
        found: list[memoryview] = [memoryview(b"")] * len(ranges)
        for span, part in zip(spans, parts, strict=True):
            for number in span.serves:
                low, high = ranges[number]
                found[number] = part[low - span.start : high - span.start]
        return found

    def run(self, reading: Reading[T]) -> T:
        """Read the ranges that `reading` yields, and return its result."""
        return run(self.read, reading)

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
            message = "the object is not the one that the index names"
            raise self._changed(message, "size", found=piece.total, expected=self._size)
        if piece.etag:
            with self._lock:  # the first requests are in flight together, and none of them knows the ETag
                self.etag = self.etag or piece.etag
            if piece.etag != self.etag:
                message = "the object was replaced while it was read"
                raise self._changed(message, "ETag", found=piece.etag, expected=self.etag)
        return memoryview(piece.data)

    def _changed(self, message: str, place: str, *, found: object, expected: object) -> ChangedError:
        return ChangedError(message, file=self.file, place=place, found=found, expected=expected, hint=_REPLACED)


# --- whole shards


class _Checks(Protocol[T_co]):
    def feed(self, chunk: bytes) -> Iterable[object]: ...
    def finish(self) -> T_co: ...


def download_object(
    storage: Storage,
    index: StoredIndex,
    shard: int,
    write: Callable[[bytes], object],
    *,
    name: str | None = None,
    etag: str | None = None,
    room: Room | None = None,
) -> None:
    """Write the raw bytes of a shard, which is an object or a part of one, with `write`. Raise CorruptError at the end
    if the bytes fail their checks.

    `name`: the shard's key in `storage`, if it is not the one in the index. `etag`: raise ChangedError if the shard is
    a whole object with another ETag. `room`: memory to download an uncompressed shard into, if the storage can do that;
    `write` then gets views of it.
    """
    key = index.name(shard) if name is None else name
    if isinstance(index, ReadsParts):
        found = StoredObject(storage, key, size=index.object_size(shard), pool=Share(REQUESTS))
        write_part(found, index, shard, write)
        return
    assert isinstance(index, ReadsWhole)
    receiver = index.receive(shard, file=file_of(storage, key))
    try:
        _pass(
            storage,
            key,
            receiver,
            write,
            size=int(index.sizes[shard]),
            etag=etag,
            room=None if index.compression else room,
        )
    except _OTHER_OBJECT as error:
        raise restated(error, hint=error.hint or _REPLACED) from error


def write_part(found: StoredObject, index: ReadsParts, shard: int, write: Callable[[bytes], object]) -> None:
    """Write the raw bytes of a shard that is part of the object `found`."""
    for piece in found.run(index.read_part(shard, file=found.file)):
        write(piece)  # type: ignore[arg-type]


def stream_shard(
    storage: Storage, key: str, write: Callable[[bytes], object], *, size: int, raw_size: int | None
) -> Hashes:
    """Write the raw bytes of a shard of `size` stored bytes with `write`. `raw_size`: given if it is compressed.

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
    room: Room | None = None,
) -> T_co:
    def sink(chunk: bytes) -> None:
        count(Counter.DOWNLOADED, len(chunk))
        for piece in stream.feed(chunk):
            write(piece)  # type: ignore[arg-type]

    with in_flight():
        storage.download(key, sink, size=size, etag=etag, room=room)
    return stream.finish()


def inspect_shard(
    storage: Storage, key: str, size: int, *, schema: Schema | None = None, values: bool = True
) -> tuple[ShardView, ShardEntry]:
    """Read and check a whole shard of our own format that no index names (see `check_shard` for `schema` and `values`).

    Return the shard, and its entry for an index. Raise CorruptError or UnsupportedError.
    """
    raw_size, raw, file = None, bytearray(), file_of(storage, key)
    if filenames.is_compressed(key):
        raw_size = claimed_raw_size(storage.get(key, start=max(0, size - TABLE_END)).data, file=file)
    hashes = stream_shard(storage, key, raw.extend, size=size, raw_size=raw_size)
    for problem in check_shard(raw, file=file, schema=schema, values=values):
        raise problem
    view = ShardView.parse(raw, file=file)
    if not view.samples:
        raise CorruptError("the shard has no samples", file=file)
    return view, ShardEntry(key, view.samples, view.row_key, size, hashes.stored, len(raw), hashes.raw)
