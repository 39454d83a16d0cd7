"""An uncompressed shard: its header, and views of its rows and its heap, without a copy.

Parsing takes constant time, and checks header, schema, sizes, offsets and the padding of sections before it allocates
memory. A higher major version is *unsupported*; any other error is *corrupt*. A higher minor version can be read: its
additions to the header are covered by the checksum and otherwise skipped. The contents of rows and heap are checked on
access (`heap_extents`, `row_checksum`, `value_decoder`) or all at once (`check_shard`).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.errors import CorruptError, UnsupportedError, UsageError
from mdsx.format.lengths import lengths_of_rows
from mdsx.format.rows import NULL, check_row, check_row_key, cut, heap_extents, row_checksums
from mdsx.format.schema import HEADER_SIZE, MAX_ROW_SIZE, MAX_SCHEMA_SIZE, Schema, up
from mdsx.format.selection import RowLayout, Selection

if TYPE_CHECKING:
    from typing_extensions import Buffer

MAGIC = b"\x89MDSX\r\n\x1a"
MAJOR = 1
MAX_HEADER_SIZE = 4096
MAX_SIZE = 2**63 - 1

_SMALL = 16 * 1024  # bytes: hashing a sample of up to this mean size takes about 2 us

_FIELDS = struct.Struct("<8sHHIQQIIQQQ")
_CHECKED = 56  # offset of the checksum, which covers all bytes before it, and those after it up to the schema's end


@dataclass(frozen=True, slots=True)
class Header:
    """A parsed header. Offsets are from the start of the file, sizes in bytes."""

    samples: int
    row_key: int
    rows_offset: int
    row_size: int
    heap_offset: int
    file_size: int
    schema: Schema


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of an uncompressed shard of `raw_size` bytes, from its index or its header.

    `row_key`: None if unknown; the other fields are then only a claim.
    """

    schema: Schema
    row_key: int | None
    rows_offset: int
    samples: int
    raw_size: int

    @classmethod
    def of(cls, header: Header) -> Layout:
        return cls(header.schema, header.row_key, header.rows_offset, header.samples, header.file_size)

    @property
    def heap_offset(self) -> int:
        return up(self.rows_offset + self.samples * self.schema.row_size, 64)

    @property
    def heap_size(self) -> int:
        return self.raw_size - self.heap_offset

    def check(self, found: Layout, file: str) -> None:
        """Raise CorruptError if the shard in `file`, whose schema and row key match, has another layout."""
        pairs = [(layout.samples, layout.rows_offset, layout.raw_size) for layout in (found, self)]
        if pairs[0] != pairs[1]:
            raise CorruptError(
                "the shard is not the one that the index names",
                file=file,
                place="number of samples, offset of the rows, size",
                found=pairs[0],
                expected=pairs[1],
            )


def raw_size(schema: Schema, samples: int, heap_size: int) -> int:
    """Return the size of an uncompressed shard of `samples` samples with a heap of `heap_size` bytes."""
    return up(schema.rows_offset + samples * schema.row_size, 64) + heap_size


def build_header(schema: Schema, samples: int, heap_size: int, row_key: int) -> bytes:
    """Return a shard's bytes before its rows: header, schema, zero padding. Raise UsageError for 2^63 bytes or more."""
    size = raw_size(schema, samples, heap_size)
    if size > MAX_SIZE:
        raise UsageError("a shard must be smaller than 2^63 bytes", found=size)
    fields = (MAGIC, MAJOR, schema.minor, HEADER_SIZE, samples, row_key, schema.row_size, len(schema.json))
    head = _FIELDS.pack(*fields, size - heap_size, size, 0)[:_CHECKED]
    checksum = xxhash.xxh3_64_intdigest(head + schema.json)
    return (head + struct.pack("<Q", checksum) + schema.json).ljust(schema.rows_offset, b"\0")


def header_row_key(shard: Buffer) -> int:
    """Return the row key in a shard's first bytes, unverified."""
    return int.from_bytes(memoryview(shard)[24:32], "little")


def parse_header(
    data: Buffer,
    *,
    size: int,
    file: str | None = None,
    schema: Schema | None = None,
    row_key: int | None = None,
) -> Header:
    """Parse the header in `data`, the shard's first bytes, at least up to its rows. `size`: the size of the whole file.

    If `schema` and `row_key` are given, from an index, the shard's must equal them. Raise CorruptError or
    UnsupportedError.
    """
    view = memoryview(data).cast("B")

    def expect(condition: bool, place: str, message: str, found: object = None, expected: object = None) -> None:
        if not condition:
            raise CorruptError(message, file=file, place=place, found=found, expected=expected)

    length = len(view)
    expect(length >= HEADER_SIZE, "header", "the file is shorter than a header", length, f"{HEADER_SIZE} or more bytes")
    fields = _FIELDS.unpack_from(view)
    magic, major, minor, header_size, samples, own_key, row_size, schema_size, heap_offset, file_size, stored = fields
    expect(magic == MAGIC, "magic", "this is no mdsx shard", magic.hex(" "), MAGIC.hex(" "))
    if major > MAJOR:
        message = f"the shard is of version {major}.{minor}, this reader knows {MAJOR}"
        raise UnsupportedError(
            message, file=file, place="major version", found=major, expected=MAJOR, hint="upgrade mdsx"
        )
    expect(major == MAJOR, "major version", "there is no such version", major, MAJOR)
    good = header_size % 8 == 0 and HEADER_SIZE <= header_size <= MAX_HEADER_SIZE
    expect(good, "header size", "wrong header size", header_size, "a multiple of 8 from 64 to 4096")
    expect(schema_size <= MAX_SCHEMA_SIZE, "schema size", "the schema is too large", schema_size, "at most 1 MiB")
    end = header_size + schema_size
    expect(length >= end, "schema", "the file ends before its schema does", length, f"{end} or more bytes")
    hasher = xxhash.xxh3_64(view[:_CHECKED])
    hasher.update(view[HEADER_SIZE:end])
    found = f"{hasher.intdigest():016x}"
    expect(hasher.intdigest() == stored, "header checksum", "header or schema are damaged", found, f"{stored:016x}")

    rows_offset = up(end, 64)
    good = row_size % 8 == 0 and row_size <= MAX_ROW_SIZE
    expect(good, "row size", "wrong row size", row_size, "a multiple of 8 below 2^31")
    after = up(rows_offset + samples * row_size, 64)
    expect(heap_offset == after, "offset of the heap", "wrong offset", heap_offset, after)
    expect(file_size <= MAX_SIZE, "file size", "the shard is too large", file_size, "below 2^63")
    expect(file_size == size, "file size", "the file is not as long as it says", f"{size} bytes", file_size)
    expect(file_size >= heap_offset, "file size", "the file ends before its heap begins", file_size, heap_offset)

    written = bytes(view[header_size:end])
    if schema is None:
        schema = Schema.from_json(written, file=file)
    expect(written == schema.json, "schema", "it is not the index's", written[:200], schema.json[:200])
    expect(row_size == schema.row_size, "row size", "not the size that the columns need", row_size, schema.row_size)
    message = "this is another shard than the index names"
    expect(row_key in (None, own_key), "row key", message, f"{own_key:016x}", f"{row_key or 0:016x}")
    needs_heap = samples > 0 and bool(schema.variable)
    expect(needs_heap or file_size == heap_offset, "heap", "bytes that belong to no sample", file_size, heap_offset)
    expect(length >= rows_offset, "padding", "the file ends before its rows begin", length, rows_offset)
    expect(not any(view[end:rows_offset]), "padding between schema and rows", "it is not zero")
    return Header(samples, own_key, rows_offset, row_size, heap_offset, file_size, schema)


@dataclass(frozen=True, slots=True, eq=False)
class ShardView:
    """A parsed shard: read-only views of its `rows` [samples], of `schema.row_dtype`, and of its `heap`."""

    buffer: memoryview
    file: str | None
    schema: Schema
    row_key: int
    rows_offset: int
    rows: NDArray[np.void]
    heap: memoryview
    readers: dict[str, Any] = field(default_factory=dict)
    """The state that decoders of single samples prepare for this shard, by their columns."""
    checks_samples: ClassVar[bool] = True

    @property
    def checks_cheaply(self) -> bool:
        return len(self.buffer) < _SMALL * self.samples

    @classmethod
    def parse(
        cls, buffer: Buffer, *, file: str | None = None, schema: Schema | None = None, row_key: int | None = None
    ) -> ShardView:
        """Parse the shard in `buffer`. If `schema` and `row_key` are given, the shard's must equal them.

        Raise CorruptError or UnsupportedError.
        """
        view = memoryview(buffer).cast("B").toreadonly()
        header = parse_header(view, size=len(view), file=file, schema=schema, row_key=row_key)
        end = header.rows_offset + header.samples * header.row_size
        if any(view[end : header.heap_offset]):
            raise CorruptError("it is not zero", file=file, place="padding between rows and heap")
        rows = np.frombuffer(view, np.uint8)[header.rows_offset : end].view(header.schema.row_dtype)
        return cls(view, file, header.schema, header.row_key, header.rows_offset, rows, view[header.heap_offset :])

    @property
    def samples(self) -> int:
        """Return the number of samples."""
        return len(self.rows)

    @property
    def layout(self) -> Layout:
        return Layout(self.schema, self.row_key, self.rows_offset, self.samples, len(self.buffer))

    def select(self, samples: NDArray[np.int64], *, verify: bool) -> Selection:
        """Select `samples` (int64 [n]). With `verify`, check each by its row's checksum. Raise CorruptError."""
        if verify:
            self._check(samples)
        return Selection(RowLayout(self.schema), self.file, samples, self.rows, samples, self.heap)

    def lengths(self, column: int) -> NDArray[np.int64]:
        """Return the lengths of all samples, int64 [n], without reading the heap. Raise CorruptError."""
        check_row_key(self.schema, self.rows, self.row_key, self.file)
        return lengths_of_rows(self.schema, self.rows, len(self.heap), column, file=self.file)

    def _check(self, samples: NDArray[np.int64]) -> None:
        schema, size, file = self.schema, self.schema.row_size, self.file
        starts = stops = np.zeros(len(samples), np.int64)
        if schema.variable:  # copy only the extents, because rows may be long
            extents = np.empty(len(samples), schema.extents_dtype)
            extents["start"], extents["lengths"] = self.rows["start"][samples], self.rows["lengths"][samples]
            starts, stops, _ = heap_extents(schema, extents, len(self.heap), file=file, samples=samples)
        for sample, start, stop in zip(samples.tolist(), starts.tolist(), stops.tolist(), strict=True):
            at = self.rows_offset + sample * size
            check_row(self.buffer[at : at + size], self.heap[start:stop], sample, self.row_key, file)


def shard_checksums(shard: ShardView) -> NDArray[np.uint64]:
    """Return the checksums of a shard's samples, without the row key. Their heap bytes must be in order."""
    rows, heaps = shard.rows.view(np.uint8), None
    if shard.schema.variable:
        lengths = shard.rows["lengths"]
        stops = np.where(lengths == NULL, 0, lengths).sum(axis=1, dtype=np.int64).cumsum()
        heaps = cut(shard.heap, stops)
    return row_checksums(rows, shard.schema.row_size, heaps, heap_size=len(shard.heap), first=0)
