"""The stored bytes of shards of our own format: received whole with their checks, or read by range.

A raw range is a half-open range of the *uncompressed* shard. In an uncompressed object, it is also a range of the
object. In a compressed one, the seek table at the object's end is read, and then the frames of the range. There is no
I/O here: a reader yields the ranges that it needs, and is sent their bytes (see `protocol.Reading`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.errors import CorruptError
from mdsx.format.frames import FRAME_SIZE, FrameReader, decompress_frame, parse_seek_table, seek_table_size
from mdsx.format.lengths import lengths_of_rows
from mdsx.format.protocol import Range, Reading
from mdsx.format.rows import DAMAGED_HINT, check_row, check_row_key, heap_extents
from mdsx.format.selection import RowLayout, Selection
from mdsx.format.shard import Layout, parse_header

if TYPE_CHECKING:
    from typing_extensions import Buffer

_FRAMES_KEPT = 4  # decoded frames to keep for each shard, as neighbouring samples are often read in succession


class Hashes(NamedTuple):
    """XXH3-128 of a shard's stored bytes, and of its raw bytes. They are equal if it is not compressed."""

    stored: str
    raw: str


class RawStream:
    """Converts the stored bytes of a shard to raw bytes. With `raw_size`, it decompresses and checks its frames."""

    def __init__(self, *, size: int, raw_size: int | None, file: str) -> None:
        self._stored, self._raw = xxhash.xxh3_128(), xxhash.xxh3_128()
        self._frames = None if raw_size is None else FrameReader(raw_size, size, file)

    def feed(self, chunk: Buffer) -> Iterator[Buffer]:
        """Yield the raw bytes that are complete with the next `chunk`. Raise CorruptError."""
        self._stored.update(chunk)
        if self._frames is None:
            yield chunk
            return
        for piece in self._frames.feed(chunk):
            self._raw.update(piece)
            yield piece

    def finish(self) -> Hashes:
        """Return the hashes, which the caller compares. Raise CorruptError if frames are missing."""
        if self._frames is None:
            return Hashes(self._stored.hexdigest(), self._stored.hexdigest())
        self._frames.finish()
        return Hashes(self._stored.hexdigest(), self._raw.hexdigest())


class ShardReceiver:
    """Checks the bytes of a shard, once complete, against the hashes in the index."""

    def __init__(self, stream: RawStream, expected: Hashes, file: str) -> None:
        self.feed = stream.feed
        self._stream, self._expected, self._file = stream, expected, file

    def finish(self) -> None:
        for found, expected in zip(self._stream.finish(), self._expected, strict=True):
            if found != expected:
                raise hash_mismatch(self._file, found, expected)


def hash_mismatch(file: str, found: str, expected: str) -> CorruptError:
    return CorruptError(
        "the shard's bytes do not match the index",
        file=file,
        place="XXH3-128",
        found=found,
        expected=expected,
        hint=DAMAGED_HINT,
    )


class RawBytes(Protocol):
    """Raw ranges of one shard."""

    def read(self, ranges: Sequence[Range]) -> Reading[Sequence[memoryview]]: ...


class PlainBytes:
    """Raw ranges of an uncompressed shard: the same ranges of the object."""

    def read(self, ranges: Sequence[Range]) -> Reading[Sequence[memoryview]]:
        return (yield ranges)


class FramedBytes:
    """Raw ranges of a compressed shard. Threads may share it: its state is replaced, never changed."""

    def __init__(self, *, size: int, raw_size: int, file: str) -> None:
        self._size = size
        self._raw_size = raw_size
        self._file = file
        self._offsets: NDArray[np.int64] | None = None
        self._kept: dict[int, bytes] = {}

    def read(self, ranges: Sequence[Range]) -> Reading[Sequence[memoryview]]:
        wanted = sorted({frame for low, high in ranges if high > low for frame in _frames(low, high)})
        frames = yield from self._decode(wanted)
        return [_cut(frames, low, high) for low, high in ranges]

    def _decode(self, wanted: list[int]) -> Reading[dict[int, bytes]]:
        kept = self._kept
        frames = {number: kept[number] for number in wanted if number in kept}
        missing = [number for number in wanted if number not in frames]
        if missing:
            offsets = yield from self._seek_table()
            stored = yield [(int(offsets[number]), int(offsets[number + 1])) for number in missing]
            for number, data in zip(missing, stored, strict=True):
                expected = min(FRAME_SIZE, self._raw_size - number * FRAME_SIZE)
                place = f"frame {number}"
                frames[number] = decompress_frame(data, expected_size=expected, file=self._file, place=place)
            self._kept = {number: frames[number] for number in wanted[-_FRAMES_KEPT:]}
        return frames

    def _seek_table(self) -> Reading[NDArray[np.int64]]:
        if self._offsets is None:
            (tail,) = yield [(self._size - seek_table_size(self._raw_size), self._size)]
            self._offsets = parse_seek_table(tail, raw_size=self._raw_size, size=self._size, file=self._file)
        return self._offsets


class ShardRanges:
    """Reads samples of a shard with this layout, from the index. Each is checked by its row's checksum."""

    def __init__(self, raw: RawBytes, layout: Layout, file: str) -> None:
        self._raw, self._layout, self._file = raw, layout, file
        self._key = layout.row_key or 0

    def select(self, samples: NDArray[np.int64]) -> Reading[Selection]:
        """Select `samples` in two requests: first their rows, then the heap bytes that the rows locate."""
        layout, file = self._layout, self._file
        schema, size, rows_offset = layout.schema, layout.schema.row_size, layout.rows_offset
        at = [(rows_offset + sample * size, rows_offset + (sample + 1) * size) for sample in samples.tolist()]
        data = bytearray().join((yield from self._raw.read(at)))
        rows = np.frombuffer(data, dtype=schema.row_dtype)
        heaps: Sequence[memoryview] = [memoryview(b"")] * len(samples)
        if schema.variable:
            offset = layout.heap_offset
            low, high, _ = heap_extents(schema, rows, layout.heap_size, file=file, samples=samples)
            extents = zip(low.tolist(), high.tolist(), strict=True)
            heaps = yield from self._raw.read([(offset + start, offset + stop) for start, stop in extents])
        for place, sample in enumerate(samples.tolist()):
            row = memoryview(data)[place * size : (place + 1) * size]
            check_row(row, heaps[place], sample, self._key, file)
        if schema.variable:  # this heap has only these samples
            rows["start"] = np.cumsum(high - low) - (high - low)
        heap = memoryview(b"".join(heaps))
        return Selection(RowLayout(schema), file, samples, rows, np.arange(len(samples)), heap)

    def lengths(self, column: int) -> Reading[NDArray[np.int64]]:
        """Return the lengths of all samples, int64 [n], from their rows."""
        layout, found = self._layout, (yield from self.rows())
        return lengths_of_rows(layout.schema, found.rows, layout.heap_size, column, file=self._file)

    def rows(self) -> Reading[Selection]:
        """Select all samples from only the rows. The selection has only fixed-size values.

        A sample's checksum also covers its heap bytes, so it cannot be checked. The row key proves that these are the
        rows of the shard, with the right checksums.
        """
        layout, file = self._layout, self._file
        schema, start = layout.schema, layout.rows_offset
        (data,) = yield from self._raw.read([(start, start + layout.samples * schema.row_size)])
        rows = np.frombuffer(data, dtype=schema.row_dtype)
        check_row_key(schema, rows, self._key, file)
        return Selection(RowLayout(schema), file, np.arange(len(rows)), rows, np.arange(len(rows)), memoryview(b""))

    def check(self) -> Reading[None]:
        """Raise CorruptError if the shard's header is damaged, or is another shard's."""
        layout, file = self._layout, self._file
        (data,) = yield from self._raw.read([(0, layout.rows_offset)])
        found = parse_header(data, size=layout.raw_size, file=file, schema=layout.schema, row_key=layout.row_key)
        layout.check(Layout.of(found), file)


def _cut(frames: dict[int, bytes], low: int, high: int) -> memoryview:
    if low == high:
        return memoryview(b"")
    parts = [
        memoryview(frames[number])[max(low - number * FRAME_SIZE, 0) : high - number * FRAME_SIZE]
        for number in _frames(low, high)
    ]
    return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))


def _frames(low: int, high: int) -> range:
    return range(low // FRAME_SIZE, (high - 1) // FRAME_SIZE + 1)
