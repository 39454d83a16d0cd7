"""Stored objects: whole shards through the checks of their format, and byte ranges of one object.

Neighbouring ranges are fetched together, and several requests are in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
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

_GAP = 64 * 1024  # reading over a gap of this many bytes costs less than one more request
_SMALL_GAP = 16 * 1024  # the same in small objects: else a few ranges would read most of one
_GAPS = 64  # such gaps in an object

_REPLACED = (
    "open the dataset again if it was replaced (Parquet: run `mdsx index parquet`, tars: `mdsx index tar`), or put "
    "back what was there"
)
_OTHER_OBJECT = (ChangedError, MissingError, TruncatedError)
"""Errors which say that an object is not the one that the index names."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


def retried(fetch: Callable[[], T], damage: type[FormatError] = CorruptError) -> T:
    """Return what `fetch` does; call it once more if it raises `damage`, which may be damage in transfer."""
    with suppress(damage):
        return fetch()
    count(Counter.RETRIES)
    return fetch()


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
    """Write the raw bytes of a shard, which is an object or a part of one, with `write`. Raise CorruptError, at the
    end, if they are not the right ones.

    `name` is the shard's key in `storage`, if it is not the index's own name for it. Raise ChangedError if it is an
    object of its own, and its ETag is not `etag`, if that is given. `room`: memory for a shard that is stored as it is,
    which `write` then gets views of if the storage can read into it.
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
    """Write the raw bytes of a shard that is a part of the object `found`."""
    for piece in found.run(index.read_part(shard, file=found.file)):
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
