"""Rows and their heap bytes: the extents, and the checksum over both, for one row or for many at once.

A sample's heap bytes are its variable-size values back to back, in column order. The checksum of row and heap bytes is
seeded with the sample's number in its shard. A row stores it xor the shard's row key, which is a hash of all checksums.
So bytes of another row or another shard are detected.

Small pieces are joined before they are hashed, which is cheaper than hashing them one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import chain, count
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.errors import CorruptError
from mdsx.format.schema import Schema

if TYPE_CHECKING:
    from typing_extensions import Buffer

_LARGE_ROW = 512  # bytes from which a view of a row is cheaper than a copy
_AT_ONCE = 4096  # samples whose heap bytes are copied at once
_LARGE_SAMPLE = 1024  # bytes from which hashing row and heap bytes in turn is cheaper than joining them

NULL = 0xFFFFFFFF
"""The length of a null; so a value has at most 2^32 - 2 bytes."""

DAMAGED_HINT = "the shard is damaged: run `mdsx verify` to find out where, then see `mdsx repair`"


def row_checksum(body: bytes | memoryview, heap: bytes | memoryview, sample: int) -> int:
    """Return the checksum of sample number `sample`, without the row key.

    `body`: its row after the checksum field; `heap`: its heap bytes. Both are buffers of bytes.
    """
    checksum: int
    if not heap:
        checksum = xxhash.xxh3_64_intdigest(body, sample)
    elif len(body) + len(heap) < _LARGE_SAMPLE:
        checksum = xxhash.xxh3_64_intdigest(b"".join((body, heap)), sample)
    else:
        hasher = xxhash.xxh3_64(body, sample)
        hasher.update(heap)
        checksum = hasher.intdigest()
    return checksum


def check_row(row: bytes | memoryview, heap: bytes | memoryview, sample: int, row_key: int, file: str | None) -> None:
    """Raise CorruptError unless a sample has the checksum that its row stores, which includes the row key."""
    computed, stored = row_checksum(row[8:], heap, sample) ^ row_key, int.from_bytes(row[:8], "little")
    if computed != stored:
        raise CorruptError(
            "its checksum does not match its bytes",
            file=file,
            place=f"sample {sample}",
            found=f"{computed:016x}",
            expected=f"{stored:016x}",
            hint=DAMAGED_HINT,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Extents:
    """The heap extents that n rows claim, and which claims are wrong."""

    schema: Schema
    heap_size: int | NDArray[np.uint64]  # [n] if the rows belong to several heaps
    starts: NDArray[np.uint64]  # [n]
    lengths: NDArray[np.uint32]  # [n, V], V variable-size columns; NULL is null
    sizes: NDArray[np.int64]  # [n, V], 0 for null
    sums: NDArray[np.int64]  # [n]
    outside: NDArray[np.bool_]  # [n]: the bytes leave the heap
    forbidden: NDArray[np.bool_]  # [n, V]: null in a column that is not nullable

    @classmethod
    def of(cls, schema: Schema, rows: NDArray[Any], heap_size: int | NDArray[np.uint64]) -> Extents:
        """Return the extents of `rows` from their `start` and `lengths`. `schema` must have variable-size columns."""
        starts, lengths = rows["start"], rows["lengths"]
        nulls = lengths == NULL
        sizes = np.where(nulls, 0, lengths).astype(np.int64)
        sums = np.einsum("ij->i", sizes)  # faster than `sum`. Fewer than 2^16 columns of 2^32: no overflow
        limit = np.asarray(heap_size, np.uint64)  # NumPy compares int64 with uint64 as floats
        outside = (starts > limit) | (sums.astype(np.uint64) > limit - np.minimum(starts, limit))
        nullable = np.array([schema.columns[number].type.nullable for number in schema.variable])
        return cls(schema, heap_size, starts, lengths, sizes, sums, outside, nulls & ~nullable)

    @property
    def wrong(self) -> NDArray[np.bool_]:
        """Return bool [n]: which rows are damaged."""
        return self.outside | self.forbidden.any(axis=1) if self.forbidden.any() else self.outside

    def problem(self, row: int, *, file: str | None, sample: int | str) -> CorruptError:
        """Return the problem of row number `row`, which belongs to sample number (or name) `sample`."""
        if self.outside[row]:
            message = "its heap bytes lie outside the heap"
            found = f"{self.sums[row]} bytes from {self.starts[row]}"
            limit = self.heap_size if isinstance(self.heap_size, int) else int(self.heap_size[row])
            expected = f"within {limit}"
            return CorruptError(message, file=file, place=f"sample {sample}", found=found, expected=expected)
        column = self.schema.columns[self.schema.variable[int(self.forbidden[row].argmax())]]
        message = "null in a column that is not nullable"
        return CorruptError(message, file=file, place=f"sample {sample}, column {column.name!r}")


def heap_extents(
    schema: Schema, rows: NDArray[Any], heap_size: int, *, file: str | None, samples: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint32]]:
    """Return the extents of the heap bytes of `rows`, whose samples have the numbers `samples`.

    These are starts and stops (half-open, relative to the heap), and lengths [n, V] of the V variable-size columns,
    NULL for null. Raise CorruptError that names the first sample whose bytes are outside the heap, or that has a null
    in a column that is not nullable.
    """
    if not schema.variable:
        nothing = np.zeros(len(rows), np.int64)
        return nothing, nothing, np.zeros((len(rows), 0), np.uint32)
    extents = Extents.of(schema, rows, heap_size)
    if (wrong := extents.wrong).any():
        first = int(wrong.argmax())
        raise extents.problem(first, file=file, sample=int(samples[first]))
    starts = extents.starts.astype(np.int64)
    return starts, starts + extents.sums, extents.lengths


def row_checksums(
    rows: NDArray[np.uint8],
    row_size: int,
    heaps: Iterable[bytes | memoryview] | None,
    *,
    heap_size: int,
    first: int,
    width: int = 1,
) -> NDArray[np.uint64]:
    """Return the checksums of samples `first`, `first` + 1, ...

    `rows`: their rows, back to back; `heaps`: the heap bytes of each, `heap_size` in total (None without variable-size
    columns), for large samples maybe in `width` pieces each.
    """
    bodies = _bodies(rows, row_size)
    if heaps is None:
        return _numbers(map(xxhash.xxh3_64_digest, bodies, count(first)))
    if width == 1 and len(rows) + heap_size < _LARGE_SAMPLE * len(bodies):
        whole = map(b"".join, zip(bodies, heaps, strict=True))
        return _numbers(map(xxhash.xxh3_64_digest, whole, count(first)))
    return _numbers(map(_in_turn, bodies, zip(*[iter(heaps)] * width, strict=True), count(first)))


def _numbers(digests: Iterable[bytes]) -> NDArray[np.uint64]:
    """Return digests as an array of integers. This is faster than one integer for each."""
    return np.frombuffer(b"".join(digests), ">u8").astype(np.uint64)


def row_key(schema: Schema, checksums: NDArray[np.uint64]) -> int:
    """Return the row key of the shard of `schema` whose rows have these checksums."""
    hasher = xxhash.xxh3_64(schema.json)
    hasher.update(checksums.astype("<u8", copy=False).tobytes())
    key: int = hasher.intdigest()
    return key


def check_row_key(schema: Schema, rows: NDArray[Any], key: int, file: str | None) -> None:
    """Raise CorruptError unless the stored checksums of these rows match the shard's row key."""
    if (found := row_key(schema, rows["checksum"] ^ np.uint64(key))) != key:
        raise CorruptError(
            "the rows are damaged", file=file, place="row key", found=f"{found:016x}", expected=f"{key:016x}"
        )


def cut(heap: bytes | memoryview, stops: NDArray[np.int64]) -> Iterable[bytes | memoryview]:
    """Yield the heap bytes of each sample. `stops`: where they end; the first ones start at 0."""
    view = memoryview(heap)
    if len(view) < _LARGE_SAMPLE * len(stops):  # then copies are faster than views
        return chain.from_iterable(_read(view, stops, first) for first in range(0, len(stops), _AT_ONCE))
    ends: list[int] = stops.tolist()
    return map(view.__getitem__, map(slice, [0, *ends[:-1]], ends))


def _read(heap: memoryview, stops: NDArray[np.int64], first: int) -> Iterable[bytes]:
    """Yield copies of the heap bytes of some samples, from number `first` on."""
    start, ends = int(stops[first - 1]) if first else 0, stops[first : first + _AT_ONCE]
    return map(BytesIO(heap[start : int(ends[-1])]).read, np.diff(ends, prepend=start).tolist())


def _bodies(rows: NDArray[np.uint8], size: int) -> Sequence[bytes] | NDArray[np.uint8]:
    """Return the bytes of each row that its checksum covers."""
    if 8 < size < _LARGE_ROW:
        bodies: list[bytes] = np.ndarray(len(rows) // size, f"V{size - 8}", rows, 8, size).tolist()
        return bodies
    return rows.reshape(-1, size)[:, 8:]  # its items cost less than memory views, which the garbage collector tracks


def _in_turn(body: Buffer, heap: Iterable[bytes | memoryview], sample: int) -> bytes:
    hasher = xxhash.xxh3_64(body, sample)
    for piece in heap:
        hasher.update(piece)
    digest: bytes = hasher.digest()
    return digest
