"""The checksums of many rows at once, as fast as Python allows; `rows.row_checksum` says what one is.

What is small is copied and joined, which is cheaper there than views and hashers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count

import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.format.rows import NULL
from mdsx.format.schema import Schema
from mdsx.format.shard import ShardView

_LARGE_ROW = 512  # bytes from which a view of a row is cheaper than a copy
_LARGE_SAMPLE = 1024  # bytes from which hashing row and heap bytes in turn is cheaper than joining them


def row_checksums(
    rows: NDArray[np.uint8], row_size: int, heaps: Iterable[bytes | memoryview] | None, *, heap_size: int, first: int
) -> NDArray[np.uint64]:
    """The checksums of samples `first`, `first` + 1, ...

    `rows` are their rows back to back, `heaps` the heap bytes of each (None without variable-size columns), which are
    `heap_size` together.
    """
    bodies = _bodies(rows, row_size)
    if heaps is None:
        found: Iterable[int] = map(xxhash.xxh3_64_intdigest, bodies, count(first))
    elif len(rows) + heap_size < _LARGE_SAMPLE * len(bodies):
        found = map(xxhash.xxh3_64_intdigest, map(b"".join, zip(bodies, heaps, strict=True)), count(first))
    else:
        found = map(_in_turn, bodies, heaps, count(first))
    return np.fromiter(found, np.uint64, len(bodies))


def row_key(schema: Schema, checksums: NDArray[np.uint64]) -> int:
    """The row key of the shard of `schema` whose rows have these checksums."""
    hasher = xxhash.xxh3_64(schema.json)
    hasher.update(checksums.astype("<u8", copy=False).tobytes())
    key: int = hasher.intdigest()
    return key


def shard_checksums(shard: ShardView) -> NDArray[np.uint64]:
    """The checksums of a shard's samples, which fill the heap in order, as they must. What the rows store of them is
    these xor the row key."""
    rows, heaps = shard.rows.view(np.uint8), None
    if shard.schema.variable:
        lengths = shard.rows["lengths"]
        stops = np.where(lengths == NULL, 0, lengths).sum(axis=1, dtype=np.int64).cumsum()
        heaps = cut(shard.heap, stops)
    return row_checksums(rows, shard.schema.row_size, heaps, heap_size=len(shard.heap), first=0)


def cut(heap: bytes | memoryview, stops: NDArray[np.int64]) -> Iterable[memoryview]:
    """The heap bytes of each sample, where those of the first start at 0 and `stops` says where each sample's end."""
    ends: list[int] = stops.tolist()
    return map(memoryview(heap).__getitem__, map(slice, [0, *ends[:-1]], ends))


def _bodies(rows: NDArray[np.uint8], size: int) -> Sequence[bytes | memoryview]:
    """Of each row what its checksum covers."""
    if 8 < size < _LARGE_ROW:
        bodies: list[bytes] = np.ndarray(len(rows) // size, f"V{size - 8}", rows, 8, size).tolist()
        return bodies
    view = rows.data
    return [view[start + 8 : start + size] for start in range(0, len(rows), size)]


def _in_turn(body: bytes | memoryview, heap: bytes | memoryview, sample: int) -> int:
    hasher = xxhash.xxh3_64(body, sample)
    hasher.update(heap)
    checksum: int = hasher.intdigest()
    return checksum
