"""Raw bytes of a shard that is not local, fetched by byte range.

A raw range is a half-open range of the *uncompressed* shard. Neighbouring ranges are fetched by one request, several
requests are in flight at once, and of a compressed shard only the frames that hold the ranges are fetched and decoded.
What comes back is not verified here: the caller checks each sample by its own checksum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import ChangedError
from mdsx.format import FRAME_SIZE, decompress_frame, parse_seek_table, seek_table_size
from mdsx.storage import Storage

_GAP = 64 * 1024  # reading over a gap of this many bytes costs less than one more request
_FRAMES_KEPT = 4  # decoded frames kept of a compressed shard: neighbours are often asked for one after another

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Span:
    """One request: bytes [start, stop) serve the ranges numbered in `serves`."""

    start: int
    stop: int
    serves: tuple[int, ...]


def coalesce(ranges: Sequence[Range], gap: int = _GAP) -> list[_Span]:
    """The fewest spans that hold all `ranges`, joining those that are at most `gap` bytes apart."""
    spans: list[_Span] = []
    serves: list[int] = []
    start = stop = -1
    for number in sorted(range(len(ranges)), key=ranges.__getitem__):
        low, high = ranges[number]
        if serves and low <= stop + gap:
            stop = max(stop, high)
        else:
            if serves:
                spans.append(_Span(start, stop, tuple(serves)))
            start, stop, serves = low, high, []
        serves.append(number)
    if serves:
        spans.append(_Span(start, stop, tuple(serves)))
    return spans


class StoredObject:
    """Byte ranges of one stored object, which must stay the same object from the first request on."""

    def __init__(self, storage: Storage, key: str, *, size: int, pool: Executor) -> None:
        self.key = key
        self.file = f"{storage.url.rstrip('/')}/{key}"
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

    def _get(self, span: _Span) -> memoryview:
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
                hint="write the dataset anew, or open it anew if it was replaced",
            )
        self._etag = piece.etag or None
        return memoryview(piece.data)


class PlainShard:
    """Raw ranges of an uncompressed shard: the object's own."""

    def __init__(self, stored: StoredObject) -> None:
        self.file = stored.file
        self.read: Callable[[Sequence[Range]], list[memoryview]] = stored.read


class FramedShard:
    """Raw ranges of a compressed shard, by the frames that hold them. Threads may share it."""

    def __init__(self, stored: StoredObject, *, size: int, raw_size: int) -> None:
        self.file = stored.file
        self._stored = stored
        self._size = size
        self._raw_size = raw_size
        self._offsets: NDArray[np.int64] | None = None
        self._kept: dict[int, bytes] = {}
        self._lock = Lock()

    def read(self, ranges: Sequence[Range]) -> list[memoryview]:
        wanted = sorted({frame for low, high in ranges if high > low for frame in _frames(low, high)})
        frames = self._decode(wanted)
        return [self._cut(frames, low, high) for low, high in ranges]

    def _decode(self, wanted: list[int]) -> dict[int, bytes]:
        with self._lock:
            frames = {number: self._kept[number] for number in wanted if number in self._kept}
        missing = [number for number in wanted if number not in frames]
        if missing:
            offsets = self._seek_table()
            stored = self._stored.read([(int(offsets[number]), int(offsets[number + 1])) for number in missing])
            for number, data in zip(missing, stored, strict=True):
                expected = min(FRAME_SIZE, self._raw_size - number * FRAME_SIZE)
                frames[number] = decompress_frame(data, expected_size=expected, file=self.file, place=f"frame {number}")
            with self._lock:
                self._kept = {number: frames[number] for number in wanted[-_FRAMES_KEPT:]}
        return frames

    def _seek_table(self) -> NDArray[np.int64]:
        if self._offsets is None:
            tail = self._stored.read([(self._size - seek_table_size(self._raw_size), self._size)])[0]
            self._offsets = parse_seek_table(tail, raw_size=self._raw_size, size=self._size, file=self.file)
        return self._offsets

    @staticmethod
    def _cut(frames: dict[int, bytes], low: int, high: int) -> memoryview:
        if low == high:
            return memoryview(b"")
        parts = [
            memoryview(frames[number])[max(low - number * FRAME_SIZE, 0) : high - number * FRAME_SIZE]
            for number in _frames(low, high)
        ]
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))


RawShard = PlainShard | FramedShard


def _frames(low: int, high: int) -> range:
    return range(low // FRAME_SIZE, (high - 1) // FRAME_SIZE + 1)
