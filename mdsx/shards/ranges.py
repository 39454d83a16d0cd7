"""Byte ranges of stored objects, with few requests.

One request fetches neighbouring ranges, and several requests are in flight at once. This module verifies nothing: the
caller checks the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypeVar

from mdsx.errors import ChangedError
from mdsx.format import Range, Reading
from mdsx.storage import Storage, file_of

_GAP = 64 * 1024  # reading over a gap of this many bytes costs less than one more request

T = TypeVar("T")


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
    """Byte ranges of one stored object, which must stay the same object from the first request on."""

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
