"""The index: what it says about each shard, and the JSON text that is written.

A shard takes a few dozen bytes in memory. The index also says how its shards' bytes become samples: it implements
`protocol.StoredIndex`. `index_parser` reads the text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.errors import CorruptError, UsageError
from mdsx.format.check import check_shard
from mdsx.format.decode import SampleDecoder
from mdsx.format.filenames import NameRun, join_name, runs_of
from mdsx.format.inputs import Refused
from mdsx.format.lengths import mean_length
from mdsx.format.protocol import Reading, Reads, WholeShards
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
from mdsx.format.strict_json import parse_json
from mdsx.format.values import check_keys

if TYPE_CHECKING:
    from typing_extensions import Buffer

VERSION = b"1"
MAX_SHARDS = 2**22
"""The most shards of a dataset: enough for a petabyte in shards of 256 MiB, few enough to open in seconds."""
MAX_METADATA_SIZE = 2**20

_CHUNK = 2**16  # shards that are hashed at once
_RECORD = np.dtype([("samples", "<u8"), ("raw_size", "<u8"), ("raw_hash", "u1", (16,))])


class ShardEntry(NamedTuple):
    """The index's entry of one shard. Sizes are in bytes; hashes are XXH3-128 in hexadecimal. `size` and `hash` are
    those of the stored object, the raw ones those of the uncompressed shard: the same if it is not compressed."""

    name: str
    samples: int
    row_key: int
    size: int
    hash: str
    raw_size: int
    raw_hash: str


@dataclass(frozen=True, slots=True, eq=False)
class Index(WholeShards):
    """A parsed index. Arrays are read-only, [S] for S shards; see `ShardEntry` for what they hold."""

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
    metadata: dict[str, Any]

    @property
    def base_fingerprint(self) -> str:
        """The fingerprint of the shards up to the first one in another folder. Parts that are appended do not change
        it."""
        folders = [prefix.rpartition("/")[0] for prefix, *_ in self.files]
        for folder, first in zip(folders, self.firsts.tolist(), strict=False):  # without files, there is a first too
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

    def row_key(self, shard: int) -> int:
        """Return the shard's row key."""
        return int(self.row_keys[shard])

    def hash(self, shard: int) -> str:
        """Return the XXH3-128 of the stored object."""
        return bytes(self.hashes[shard]).hex()

    def layout(self, shard: int) -> Layout:
        """Return the layout of the uncompressed shard."""
        key, count, raw_size = self.row_key(shard), int(self.counts[shard]), int(self.raw_sizes[shard])
        return Layout(self.schema, key, self.rows_offset, count, raw_size)

    def entry(self, shard: int) -> ShardEntry:
        count, size, raw_size = int(self.counts[shard]), int(self.sizes[shard]), int(self.raw_sizes[shard])
        key, hash, raw_hash = self.row_key(shard), self.hash(shard), self.raw_hash(shard)
        return ShardEntry(self.name(shard), count, key, size, hash, raw_size, raw_hash)

    # --- the protocol of stored formats: see `StoredIndex`

    format: ClassVar[str] = "mdsx"
    checks: ClassVar[str] = "checksums of samples, XXH3-128 of shards"

    def reads(self, shard: int) -> Reads:
        return Reads.SAMPLES

    def receive(self, shard: int, *, file: str) -> ShardReceiver:
        raw_size = int(self.raw_sizes[shard]) if self.compression else None
        stream = RawStream(size=int(self.sizes[shard]), raw_size=raw_size, file=file)
        return ShardReceiver(stream, Hashes(self.hash(shard), self.raw_hash(shard)), file)

    def open(self, shard: int, raw: Buffer, *, file: str) -> ShardView:
        layout = self.layout(shard)
        view = ShardView.parse(raw, file=file, schema=self.schema, row_key=layout.row_key)
        layout.check(view.layout, file)
        return view

    def verify(self, shard: int, opened: ShardView, *, file: str) -> None:
        found, expected = xxhash.xxh3_128_hexdigest(opened.buffer), self.raw_hash(shard)
        if found != expected:
            for problem in check_shard(opened.buffer, file=file, schema=self.schema, row_key=self.row_key(shard)):
                raise problem
            raise hash_mismatch(file, found, expected)

    def check(self, shard: int, raw: Buffer, *, file: str) -> Sequence[CorruptError]:
        try:
            self.open(shard, raw, file=file)
        except CorruptError as error:
            return [error]
        return check_shard(raw, file=file, schema=self.schema, row_key=self.row_key(shard))

    def find_damage(
        self, shard: int, stored: memoryview, *, size: int, file: str, first: int | None
    ) -> Sequence[CorruptError]:
        return self.salvage(shard, stored, size=size, file=file, first=first)[0]

    def by_range(self, shard: int, *, file: str) -> ShardRanges:
        size, raw_size = int(self.sizes[shard]), int(self.raw_sizes[shard])
        raw = PlainBytes() if self.compression is None else FramedBytes(size=size, raw_size=raw_size, file=file)
        return ShardRanges(raw, self.layout(shard), file)

    def read_lengths(self, shard: int, column: int, *, file: str) -> Reading[NDArray[np.int64]]:
        return self.by_range(shard, file=file).lengths(column)

    def mean_length(self, column: int) -> float | None:
        if self.schema.variable != (column,):
            return None
        ends = self.rows_offset + self.counts * self.schema.row_size
        heaps = self.raw_sizes - -(-ends // 64) * 64
        return mean_length(self.schema.columns[column].type, self.samples, int(heaps.sum()))

    def read_rows(self, shard: int, *, file: str) -> Reading[Selection] | None:
        return self.by_range(shard, file=file).rows() if self.schema.variable else None

    def decoder(self, columns: Mapping[str, int]) -> SampleDecoder:
        return SampleDecoder(self.schema, columns)

    # --- damage

    def salvage(
        self, shard: int, stored: memoryview, *, size: int, file: str, first: int | None
    ) -> tuple[list[CorruptError], Salvage]:
        """Return the problems of a damaged shard, and its sound samples. Arguments as for `StoredIndex.find_damage`."""
        entry = self.entry(shard)
        compressed = self.compression is not None
        found = salvage(stored, self.layout(shard), compressed=compressed, size=entry.size, file=file, first=first)
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
        """Return the error for a shard that is not the one in the index: none of its samples can be trusted."""
        message = "is not the shard that the index names"
        for shard in np.flatnonzero(self.row_keys == np.uint64(key))[:1].tolist():
            message += f", but {self.name(shard)}"
        found, expected = f"{key:016x}", f"{entry.row_key:016x}"
        return CorruptError(message, file=file, place="row key", found=found, expected=expected)


def fingerprint(schema: Schema, entries: Sequence[ShardEntry]) -> str:
    """Return the hash of a dataset's content: the same wherever its shards are stored, compressed or not."""
    samples = np.array([entry.samples for entry in entries], np.int64)
    raw_sizes = np.array([entry.raw_size for entry in entries], np.int64)
    hashes = np.frombuffer(bytes.fromhex("".join(entry.raw_hash for entry in entries)), np.uint8)
    return fingerprint_of(schema, samples, raw_sizes, hashes.reshape(-1, 16))


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


# --- the text


def build_index(
    schema: Schema,
    compression: str | None,
    entries: Sequence[ShardEntry],
    metadata: dict[str, Any] | None = None,
) -> bytes:
    """Return the index of the shards `entries`, in order. `compression` is None or "zstd". Raise UsageError."""
    try:
        files = [list(run) for run in runs_of(entry.name for entry in entries)]
    except ValueError as error:
        hint = "letters, digits, '.', '_' and '-', with '/' between components, and a number of five digits in it"
        raise UsageError("this cannot be the name of a shard's file", found=repr(error.args[0]), hint=hint) from None

    check_shard_count(len(entries), sum(entry.raw_size for entry in entries))
    if compression is None and any((each.size, each.hash) != (each.raw_size, each.raw_hash) for each in entries):
        raise UsageError("an uncompressed shard's raw size and hash are those of its object")
    shards = {
        "files": _text(files),
        "samples": _text([entry.samples for entry in entries]),
        "row_key": _text("".join(f"{entry.row_key:016x}" for entry in entries)),
        "size": _text([entry.size for entry in entries]),
        "xxh3_128": _text("".join(entry.hash for entry in entries)),
    }
    if compression is not None:
        shards["raw_size"] = _text([entry.raw_size for entry in entries])
        shards["raw_xxh3_128"] = _text("".join(entry.raw_hash for entry in entries))
    members = {
        "format": _text("mdsx"),
        "version": VERSION,
        "columns": schema.json,
        "compression": _text(compression),
        "rows_offset": _text(schema.rows_offset),
        "row_size": _text(schema.row_size),
        "samples": _text(sum(entry.samples for entry in entries)),
        "shards": _object(shards),
        "fingerprint": _text(fingerprint(schema, entries)),
        "metadata": _metadata_text({} if metadata is None else metadata),
    }
    data = _object(members).removesuffix(b"}")
    return data + b',"checksum":"' + xxhash.xxh3_64_hexdigest(data).encode() + b'"}\n'


def check_shard_count(count: int, raw_size: int) -> None:
    """Raise UsageError if `count` shards, of `raw_size` bytes in all, are more than a dataset may have."""
    if count > MAX_SHARDS:
        raise UsageError(
            "too many shards",
            found=count,
            expected=f"at most {MAX_SHARDS} (2^22)",
            hint=f"write it with shard_size={fitting_shard_size(raw_size)} or more",
        )


def fitting_shard_size(raw_size: int) -> str:
    """Return a shard_size with which `raw_size` bytes make at most half the allowed number of shards."""
    size = 2**20
    while size * MAX_SHARDS < 2 * raw_size:
        size *= 2
    return f'"{size // 2**20}MiB"'


def _text(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _object(members: dict[str, bytes]) -> bytes:
    return b"{" + b",".join(_text(key) + b":" + value for key, value in members.items()) + b"}"


def _metadata_text(metadata: dict[str, Any]) -> bytes:
    if not isinstance(metadata, dict):
        raise UsageError("metadata is not a dict", found=type(metadata).__name__)
    try:
        data = _text(metadata)
        check_keys(metadata)
        parse_json(data, unique_keys=True)  # so that the reader accepts it
    except Refused as refused:
        message = "metadata cannot be stored unchanged"
        raise UsageError(message, expected=refused.expected, found=refused.found) from None
    except (TypeError, ValueError, RecursionError, CorruptError) as error:
        raise UsageError(f"metadata cannot be written as JSON: {error}") from error
    if len(data) > MAX_METADATA_SIZE:
        raise UsageError("metadata is too large", found=f"{len(data)} bytes", expected="at most 1 MiB")
    return data
