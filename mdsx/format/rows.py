"""What ties a row to its heap bytes: their extent, and the checksum over both.

A sample's heap bytes are its variable-size values back to back, in column order. Their checksum is seeded with the
sample's number in its shard, and what the row stores is that checksum xor the shard's row key, which is a hash of all
of them. So bytes that belong to another row or to another shard are found out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.errors import CorruptError
from mdsx.format.schema import Schema

if TYPE_CHECKING:
    from typing_extensions import Buffer

_SMALL = 1024  # bytes below which joining what is hashed is cheaper than hashing it in turn

NULL = 0xFFFFFFFF
"""The length that says null; so a value has at most 2^32 - 2 bytes."""


def row_checksum(row: Buffer, heap: Buffer, sample: int) -> int:
    """Checksum of sample number `sample`, without the row key.

    `row` is its whole row (the checksum field is skipped), `heap` its bytes; both are buffers of bytes.
    """
    body, heap = memoryview(row)[8:], memoryview(heap)
    checksum: int
    if len(body) + len(heap) < _SMALL:
        checksum = xxhash.xxh3_64_intdigest(b"".join((body, heap)), sample)
    elif not len(heap):
        checksum = xxhash.xxh3_64_intdigest(body, sample)
    else:
        hasher = xxhash.xxh3_64(body, sample)
        hasher.update(heap)
        checksum = hasher.intdigest()
    return checksum


def check_row(row: Buffer, heap: Buffer, sample: int, checksum: int, file: str | None) -> None:
    """Raise CorruptError where the checksum of a sample is not `checksum`: what its row stores, xor the row key."""
    computed = row_checksum(row, heap, sample)
    if computed != checksum:
        raise CorruptError(
            "the sample's checksum does not match its bytes",
            file=file,
            place=f"sample {sample}",
            found=f"{computed:016x}",
            expected=f"{checksum:016x}",
            hint="the shard is damaged: `mdsx verify` says where, and `mdsx repair` what can be done",
        )


@dataclass(frozen=True, slots=True, eq=False)
class Extents:
    """Heap bytes of n rows as they claim to lie, and which of these claims are wrong."""

    schema: Schema
    heap_size: int | NDArray[np.uint64]  # [n] where the rows are of several heaps
    starts: NDArray[np.uint64]  # [n]
    lengths: NDArray[np.uint32]  # [n, V], V variable-size columns; NULL is null
    sizes: NDArray[np.int64]  # [n, V], 0 for null
    sums: NDArray[np.int64]  # [n]
    outside: NDArray[np.bool_]  # [n]: the bytes leave the heap
    forbidden: NDArray[np.bool_]  # [n, V]: null in a column that is not nullable

    @classmethod
    def of(cls, schema: Schema, rows: NDArray[Any], heap_size: int | NDArray[np.uint64]) -> Extents:
        """`schema` must have variable-size columns; `rows` need no fields but `start` and `lengths`."""
        starts, lengths = rows["start"], rows["lengths"]
        nulls = lengths == NULL
        sizes = np.where(nulls, 0, lengths).astype(np.int64)
        sums = sizes.sum(axis=1)  # fewer than 2^16 columns of 2^32: no overflow
        limit = np.asarray(heap_size, np.uint64)  # never int64 beside uint64, which would be compared as floats
        outside = (starts > limit) | (sums.astype(np.uint64) > limit - np.minimum(starts, limit))
        nullable = np.array([schema.columns[number].type.nullable for number in schema.variable])
        return cls(schema, heap_size, starts, lengths, sizes, sums, outside, nulls & ~nullable)

    @property
    def wrong(self) -> NDArray[np.bool_]:
        """[n]: these rows are damaged."""
        return self.outside | self.forbidden.any(axis=1)

    def problem(self, row: int, *, file: str | None, sample: int | str) -> CorruptError:
        """What is wrong with row number `row`, which is that of sample number (or name) `sample`."""
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
    """Where the heap bytes of `rows` lie, `samples` being their numbers.

    Returns starts and stops (half-open, relative to the heap), and lengths [n, V] of the V variable-size columns, NULL
    for null. Raises CorruptError that names the first sample whose bytes leave the heap, or that is null where its
    column is not nullable.
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
