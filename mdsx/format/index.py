"""The index: the entries of all shards.

A shard takes a few dozen bytes in memory. The index also defines how its shards' bytes become samples: it implements
`protocol.StoredIndex` and most of the capabilities. `index_writer` writes its text, and `index_parser` parses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.errors import CorruptError
from mdsx.format.check import bounded, find_problems
from mdsx.format.decode import SampleDecoder
from mdsx.format.filenames import NameRun, join_name, within
from mdsx.format.lengths import constant_length, estimated_mean
from mdsx.format.protocol import (
    EstimatesLengths,
    FindsDamage,
    Reading,
    ReadsLengths,
    ReadsRows,
    ReadsSamples,
    ReadsWhole,
)
from mdsx.format.salvage import Salvage, salvage, surplus
from mdsx.format.schema import Schema
from mdsx.format.selection import Selection
from mdsx.format.shard import Layout, ShardView
from mdsx.format.stored_bytes import (
    FramedBytes,
    Hashes,
    PlainBytes,
    RawStream,
    ShardRanges,
    ShardReceiver,
    hash_mismatch,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

VERSION = b"1"
MAX_SHARDS = 2**22
"""The most shards of a dataset: enough for a petabyte in shards of 256 MiB, few enough to open in seconds."""
MAX_METADATA_SIZE = 2**20

_CHUNK = 2**16  # shards to hash or add up at once
_RECORD = np.dtype([("samples", "<u8"), ("raw_size", "<u8"), ("raw_hash", "u1", (16,))])


class ShardEntry(NamedTuple):
    """The index's entry of one shard. Sizes are in bytes, hashes are XXH3-128 in hexadecimal. `size` and `hash` are of
    the stored object, the raw ones of the uncompressed shard. They are equal if it is not compressed."""

    name: str
    samples: int
    row_key: int
    size: int
    hash: str
    raw_size: int
    raw_hash: str


@dataclass(frozen=True, slots=True, eq=False)
class Index(ReadsWhole, ReadsSamples, ReadsLengths, EstimatesLengths, ReadsRows, FindsDamage):
    """A parsed index. Arrays are read-only, [S] for S shards; `ShardEntry` explains them."""

    schema: Schema
    compression: str | None
    rows_offset: int
    samples: int
    counts: NDArray[np.int64]
    row_keys: NDArray[np.uint64]
    sizes: NDArray[np.int64]
    hashes: NDArray[np.uint8]  # [S, 16]
    raw_sizes: NDArray[np.int64]
    raw_hashes: NDArray[np.uint8]  # [S, 16]
    files: tuple[NameRun, ...]
    firsts: NDArray[np.int64]  # number of the first shard of each run
    fingerprint: str
    lengths: dict[str, int]  # the sum of the samples' lengths by some columns
    metadata: dict[str, Any]

    @property
    def base_fingerprint(self) -> str:
        """The fingerprint of the shards before the first one in another folder. Appended parts do not change it."""
        folders = [prefix.rpartition("/")[0] for prefix, *_ in self.files]
        for folder, first in zip(folders, self.firsts.tolist(), strict=False):  # there is a first even without files
            if folder != folders[0]:
                some = slice(first)
                return fingerprint_of(self.schema, self.counts[some], self.raw_sizes[some], self.raw_hashes[some])
        return self.fingerprint

    def name(self, shard: int) -> str:
        """Return the key of the shard, relative to the index's folder."""
        if not 0 <= shard < len(self.counts):
            raise IndexError(shard)
        run = int(np.searchsorted(self.firsts, shard, side="right")) - 1
        prefix, suffix, number, _ = self.files[run]
        return join_name(prefix, suffix, number + shard - int(self.firsts[run]))

    def shard_names(self, folder: str = "") -> Iterator[str]:
        """Yield the keys of all shards, in order. `folder`: the index's folder, to prepend to them."""
        for prefix, suffix, first, count in self.files:
            prefix = within(folder, prefix)
            for number in range(first, first + count):
                yield join_name(prefix, suffix, number)

    def row_key(self, shard: int) -> int:
        """Return the shard's row key."""
        return int(self.row_keys[shard])

    def raw_hash(self, shard: int) -> str:
        """Return the XXH3-128 of the uncompressed shard."""
        return bytes(self.raw_hashes[shard]).hex()

    def hash(self, shard: int) -> str:
        """Return the XXH3-128 of the stored object."""
        return bytes(self.hashes[shard]).hex()

    def shard_layout(self, shard: int) -> Layout:
        """Return the layout of the uncompressed shard."""
        key, count, raw_size = self.row_key(shard), int(self.counts[shard]), int(self.raw_sizes[shard])
        return Layout(self.schema, key, self.rows_offset, count, raw_size)

    def shard_entry(self, shard: int) -> ShardEntry:
        count, size, raw_size = int(self.counts[shard]), int(self.sizes[shard]), int(self.raw_sizes[shard])
        key, hash, raw_hash = self.row_key(shard), self.hash(shard), self.raw_hash(shard)
        return ShardEntry(self.name(shard), count, key, size, hash, raw_size, raw_hash)

    # --- the protocol of stored formats: see `StoredIndex`

    format: ClassVar[str] = "mdsx"
    checks: ClassVar[str] = "checksums of samples, XXH3-128 of shards"

    def has_ranges(self, shard: int) -> bool:
        return True

    def receive(self, shard: int, *, file: str) -> ShardReceiver:
        raw_size = int(self.raw_sizes[shard]) if self.compression else None
        stream = RawStream(size=int(self.sizes[shard]), raw_size=raw_size, file=file)
        return ShardReceiver(stream, Hashes(self.hash(shard), self.raw_hash(shard)), file)

    def open(self, shard: int, raw: Buffer, *, file: str) -> ShardView:
        layout = self.shard_layout(shard)
        view = ShardView.parse(raw, file=file, schema=self.schema, row_key=layout.row_key)
        layout.check(view.layout, file)
        return view

    def verify(self, shard: int, opened: ShardView, *, file: str) -> None:
        found, expected = xxhash.xxh3_128_hexdigest(opened.buffer), self.raw_hash(shard)
        if found != expected:
            for problem in find_problems(opened):
                raise problem.error
            raise hash_mismatch(file, found, expected)

    def check(self, shard: int, raw: Buffer, *, file: str) -> Sequence[CorruptError]:
        try:
            view = self.open(shard, raw, file=file)
        except CorruptError as error:
            return [error]
        return bounded((problem.error for problem in find_problems(view)), file)

    def find_damage(
        self, shard: int, stored: memoryview, *, size: int, file: str, first: int | None
    ) -> Sequence[CorruptError]:
        return self.salvage(shard, stored, size=size, file=file, first=first)[0]

    def by_range(self, shard: int, *, file: str) -> ShardRanges:
        size, raw_size = int(self.sizes[shard]), int(self.raw_sizes[shard])
        raw = PlainBytes() if self.compression is None else FramedBytes(size=size, raw_size=raw_size, file=file)
        return ShardRanges(raw, self.shard_layout(shard), file)

    def read_lengths(self, shard: int, column: int, *, file: str) -> Reading[NDArray[np.int64]]:
        return self.by_range(shard, file=file).lengths(column)

    def mean_length(self, column: int) -> Fraction | None:
        asked = self.schema.columns[column]
        if (stored := self.lengths.get(asked.name)) is not None and constant_length(asked.type) is None:
            return Fraction(stored, max(self.samples, 1))
        heaps = 0
        for first in range(0, len(self.counts), _CHUNK):
            some = slice(first, first + _CHUNK)
            ends = self.rows_offset + self.counts[some] * self.schema.row_size
            heaps += exact_sum(self.raw_sizes[some] - (ends + 63 & -64))
        return estimated_mean(asked.type, self.samples, heaps)

    def total_length(self, column: int) -> int | None:
        return self.lengths.get(self.schema.columns[column].name)

    def read_rows(self, shard: int, *, file: str) -> Reading[Selection] | None:
        return self.by_range(shard, file=file).rows() if self.schema.variable else None

    def decoder(self, columns: Mapping[str, int]) -> SampleDecoder:
        return SampleDecoder(self.schema, columns)

    # --- damage

    def salvage(
        self, shard: int, stored: memoryview, *, size: int, file: str, first: int | None
    ) -> tuple[list[CorruptError], Salvage]:
        """Return the problems of a damaged shard, and its undamaged samples. Arguments as for `find_damage`."""
        entry = self.shard_entry(shard)
        compressed = self.compression is not None
        found = salvage(
            stored, self.shard_layout(shard), compressed=compressed, size=entry.size, file=file, first=first
        )
        if found.other is not None:
            return [self._wrong_shard(found.other, entry, file)], found
        problems = [*surplus(size, entry.size, file), *found.problems]
        if not problems:
            for data, expected in ((stored, entry.hash), (found.view.buffer, entry.raw_hash)):
                if (hashed := xxhash.xxh3_128_hexdigest(data)) != expected:
                    message = "the stored bytes differ from those in the index, although their content is right"
                    problems.append(CorruptError(message, file=file, place="XXH3-128", found=hashed, expected=expected))
        return problems, found

    def _wrong_shard(self, key: int, entry: ShardEntry, file: str) -> CorruptError:
        """Return the error for a shard that is not the one in the index. None of its samples can be trusted."""
        message = "is not the shard that the index names"
        for shard in np.flatnonzero(self.row_keys == np.uint64(key))[:1].tolist():
            message += f", but {self.name(shard)}"
        found, expected = f"{key:016x}", f"{entry.row_key:016x}"
        return CorruptError(message, file=file, place="row key", found=found, expected=expected)


def exact_sum(numbers: NDArray[np.int64]) -> int:
    """Return the sum of non-negative numbers. It may be 2^63 or more."""
    high, low = (int(part.sum()) for part in (numbers >> 32, numbers & 0xFFFFFFFF))  # neither sum overflows
    return (high << 32) + low


def fingerprint_of(
    schema: Schema, samples: NDArray[np.int64], raw_sizes: NDArray[np.int64], raw_hashes: NDArray[np.uint8]
) -> str:
    """Return the `fingerprint` of the shards whose entries have these fields."""
    hasher = xxhash.xxh3_128(schema.json)
    for first in range(0, len(samples), _CHUNK):
        chunk = slice(first, first + _CHUNK)
        records = np.empty(len(samples[chunk]), _RECORD)
        records["samples"], records["raw_size"], records["raw_hash"] = (
            samples[chunk],
            raw_sizes[chunk],
            raw_hashes[chunk],
        )
        hasher.update(records.tobytes())
    found: str = hasher.hexdigest()
    return found
