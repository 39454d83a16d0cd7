"""The index: which shards a dataset has, what is in each, and the hashes that prove it.

Here is the index in memory, where a shard takes some dozens of bytes, and how it is written; `indexparser` reads it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.errors import CorruptError, UsageError
from mdsx.format.encodevalues import check_keys
from mdsx.format.filenames import Run, join_name, runs_of
from mdsx.format.given import Refused
from mdsx.format.jsontext import parse_json
from mdsx.format.schema import Schema

VERSION = b"1"
MAX_SHARDS = 2**22
"""Shards of a dataset: enough for a petabyte in shards of 256 MiB, and few enough to be opened in seconds."""
MAX_METADATA_SIZE = 2**20

_CHUNK = 2**16  # shards whose records are made at once
_RECORD = np.dtype([("samples", "<u8"), ("raw_size", "<u8"), ("raw_hash", "u1", (16,))])


class ShardEntry(NamedTuple):
    """What the index says of one shard. Sizes in bytes; hashes are XXH3-128 in hexadecimal. `size` and `hash` are
    those of the stored object, the raw ones those of the uncompressed shard: the same where nothing is compressed."""

    name: str
    samples: int
    row_key: int
    size: int
    hash: str
    raw_size: int
    raw_hash: str


@dataclass(frozen=True, slots=True, eq=False)
class Index:
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
    files: tuple[Run, ...]
    firsts: NDArray[np.int64]  # number of the first shard of each run
    fingerprint: str
    metadata: dict[str, Any]

    @property
    def row_size(self) -> int:
        return self.schema.row_size

    def name(self, shard: int) -> str:
        """Name of the shard's file, relative to the index's folder."""
        if not 0 <= shard < len(self.counts):
            raise IndexError(shard)
        run = int(np.searchsorted(self.firsts, shard, side="right")) - 1
        prefix, suffix, number, _ = self.files[run]
        return join_name(prefix, suffix, number + shard - int(self.firsts[run]))

    def row_key(self, shard: int) -> int:
        """Row key of the shard."""
        return int(self.row_keys[shard])

    def hash(self, shard: int) -> str:
        """XXH3-128 of the stored object."""
        return bytes(self.hashes[shard]).hex()

    def raw_hash(self, shard: int) -> str:
        """XXH3-128 of the uncompressed shard."""
        return bytes(self.raw_hashes[shard]).hex()

    def entry(self, shard: int) -> ShardEntry:
        count, size, raw_size = int(self.counts[shard]), int(self.sizes[shard]), int(self.raw_sizes[shard])
        key, hash, raw_hash = self.row_key(shard), self.hash(shard), self.raw_hash(shard)
        return ShardEntry(self.name(shard), count, key, size, hash, raw_size, raw_hash)


def fingerprint(schema: Schema, entries: Sequence[ShardEntry]) -> str:
    """Hash of a dataset's content: the same wherever its shards lie, compressed or not."""
    samples = np.array([entry.samples for entry in entries], np.int64)
    raw_sizes = np.array([entry.raw_size for entry in entries], np.int64)
    hashes = np.frombuffer(bytes.fromhex("".join(entry.raw_hash for entry in entries)), np.uint8)
    return fingerprint_of(schema, samples, raw_sizes, hashes.reshape(-1, 16))


def build_index(
    schema: Schema,
    compression: str | None,
    entries: Sequence[ShardEntry],
    metadata: dict[str, Any] | None = None,
) -> bytes:
    """The index of the shards `entries`, in their order; `compression` is None or "zstd". Raises UsageError."""
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
    """Raise UsageError where `count` shards of `raw_size` bytes in all are more than a dataset may have."""
    if count > MAX_SHARDS:
        raise UsageError(
            "a dataset may not have so many shards",
            found=count,
            expected=f"at most {MAX_SHARDS} (2^22)",
            hint=f"write it with shard_size={fitting_shard_size(raw_size)} or more",
        )


def fitting_shard_size(raw_size: int) -> str:
    """A shard_size with which `raw_size` bytes of samples make at most half as many shards as a dataset may have."""
    size = 2**20
    while size * MAX_SHARDS < 2 * raw_size:
        size *= 2
    return f'"{size // 2**20}MiB"'


def fingerprint_of(
    schema: Schema, samples: NDArray[np.int64], raw_sizes: NDArray[np.int64], raw_hashes: NDArray[np.uint8]
) -> str:
    """As `fingerprint`, from columns."""
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
        parse_json(data, unique_keys=True)  # what is written can be read
    except Refused as refused:
        message = "metadata cannot be kept as it is"
        raise UsageError(message, expected=refused.expected, found=refused.found) from None
    except (TypeError, ValueError, RecursionError, CorruptError) as error:
        raise UsageError(f"metadata cannot be written as JSON: {error}") from error
    if len(data) > MAX_METADATA_SIZE:
        raise UsageError("metadata is too large", found=f"{len(data)} bytes", expected="at most 1 MiB")
    return data
