"""Build the bytes of a shard from encoded samples.

A shard ends just before the sample that would make the uncompressed file larger than `shard_size`. A sample that is
larger by itself gets a shard of its own. So the bytes do not depend on how samples are batched.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.format.encoder import Encoded
from mdsx.format.rows import cut, row_checksums, row_key
from mdsx.format.schema import Schema
from mdsx.format.shard import ShardView, build_header, raw_size

_AT_ONCE = 2**20  # bytes of rows that are filled and then hashed together, while they are in the processor's cache
_FIRST_IMAGE = 2**26
_LARGE_PIECE = 2**12  # values from this size on are not joined with their neighbours first


class ShardBuilder:
    """Builds one shard after the other: `add` until the shard is full, `finish`, `add` the rest."""

    def __init__(self, schema: Schema, shard_size: int) -> None:
        self.schema = schema
        self.shard_size = shard_size
        self._start_over()

    def _start_over(self) -> None:
        self.samples = 0
        self._heap: list[bytes] = []
        self._heap_size = 0
        # The shard without header, row key and heap, which are written last. Untouched memory costs nothing.
        self._image: NDArray[np.uint8] = np.zeros(min(self.shard_size, _FIRST_IMAGE), np.uint8)

    def add(self, encoded: Encoded, start: int = 0) -> int:
        """Add the samples of `encoded` from number `start` on, as many as fit into this shard.

        Return the number of the first that does not fit: the shard is then full. Return `encoded.samples` if all fit.
        """
        stop = self._stop(encoded, start)
        step = min(max(_AT_ONCE // self.schema.row_size, 1), 4096)
        for first in range(start, stop, step):
            self._place(encoded, first, min(first + step, stop))
        return stop

    def restore(self, shard: ShardView) -> None:
        """Reopen a finished shard, so that samples can be added to it."""
        offset, rows = self.schema.rows_offset, np.frombuffer(shard.rows.tobytes(), np.uint8)
        self._reserve(offset + len(rows))
        image = self._image[offset : offset + len(rows)]
        image[:] = rows
        image.view(self.schema.row_dtype)["checksum"] ^= np.uint64(shard.row_key)
        self.samples = shard.samples
        self._heap = [bytes(shard.heap)]
        self._heap_size = len(shard.heap)

    def finish(self) -> memoryview:
        """Return the bytes of the shard, and begin an empty one."""
        size = raw_size(self.schema, self.samples, self._heap_size)
        self._reserve(size)
        image = self._image[:size]
        rows = image[self.schema.rows_offset :][: self.samples * self.schema.row_size].view(self.schema.row_dtype)
        key = row_key(self.schema, rows["checksum"])
        rows["checksum"] ^= np.uint64(key)
        header = build_header(self.schema, self.samples, self._heap_size, key)
        image[: len(header)] = np.frombuffer(header, np.uint8)
        place = size - self._heap_size
        for block in self._heap:
            image[place : place + len(block)] = np.frombuffer(block, np.uint8)
            place += len(block)
        self._start_over()
        return image.data

    def _stop(self, encoded: Encoded, start: int) -> int:
        before = int(encoded.stops[start - 1]) if start else 0

        def size(stop: int) -> int:
            heap_size = self._heap_size + int(encoded.stops[stop - 1]) - before
            return raw_size(self.schema, self.samples + stop - start, heap_size)

        if start == encoded.samples or size(encoded.samples) <= self.shard_size:
            return encoded.samples
        stop = start + bisect_right(range(start + 1, encoded.samples + 1), self.shard_size, key=size)
        return stop if self.samples else max(stop, start + 1)

    def _place(self, encoded: Encoded, start: int, stop: int) -> None:
        """Put samples [start, stop) of `encoded` into rows and heap."""
        size, width = self.schema.row_size, len(self.schema.variable)
        offset = self.schema.rows_offset + self.samples * size
        end = offset + (stop - start) * size
        self._reserve(end)
        image = self._image[offset:end]
        rows: NDArray[Any] = image.view(self.schema.row_dtype)
        for number, items in zip(self.schema.fixed, encoded.fixed, strict=True):
            rows[f"column{number}"] = items[start:stop]
        heap_size, heaps = 0, None
        if width:
            pieces = encoded.pieces[start * width : stop * width]
            before = int(encoded.stops[start - 1]) if start else 0
            stops = encoded.stops[start:stop] - before
            rows["start"][0] = self._heap_size
            rows["start"][1:] = self._heap_size + stops[:-1]
            rows["lengths"] = encoded.lengths[start:stop]
            heap_size = int(stops[-1])
            if heap_size < _LARGE_PIECE * len(pieces):
                heap = b"".join(pieces)
                heaps = pieces if width == 1 else cut(heap, stops)
                self._heap.append(heap)
            else:  # copied only once, into the finished shard
                heaps = pieces if width == 1 else list(map(b"".join, zip(*[iter(pieces)] * width, strict=True)))
                self._heap += heaps
            self._heap_size += heap_size
        rows["checksum"] = row_checksums(image, size, heaps, heap_size=heap_size, first=self.samples)
        self.samples += stop - start

    def _reserve(self, size: int) -> None:
        """Grow the image to at least `size` bytes."""
        if size > len(self._image):
            image = np.zeros(max(size, min(2 * len(self._image), self.shard_size)), np.uint8)
            image[: len(self._image)] = self._image
            self._image = image
