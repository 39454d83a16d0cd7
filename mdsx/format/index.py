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
from mdsx.format.encoders import check_keys
from mdsx.format.jsontext import parse_json
from mdsx.format.names import Run, join_name, runs_of
from mdsx.format.numbers import Refused
from mdsx.format.schema import Schema

VERSION = 1
MAX_METADATA_SIZE = 2**20

_CHUNK = 1 << 16  # shards whose numbers are turned into text at once


class ShardEntry(NamedTuple):
    """What the index says of one shard. Sizes in bytes; hashes are XXH3-128 in hexadecimal. `size` and `hash` are
    those of the stored object, the raw ones those of the uncompressed shard: the same where nothing is compressed."""

    name: str
    samples: int
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

    def hash(self, shard: int) -> str:
        """XXH3-128 of the stored object."""
        return bytes(self.hashes[shard]).hex()

    def raw_hash(self, shard: int) -> str:
        """XXH3-128 of the uncompressed shard."""
        return bytes(self.raw_hashes[shard]).hex()

    def entry(self, shard: int) -> ShardEntry:
        counts, sizes, raw_sizes = int(self.counts[shard]), int(self.sizes[shard]), int(self.raw_sizes[shard])
        return ShardEntry(self.name(shard), counts, sizes, self.hash(shard), raw_sizes, self.raw_hash(shard))


def fingerprint(schema: Schema, entries: Sequence[ShardEntry]) -> str:
    """Hash of a dataset's content: the same wherever its shards lie, compressed or not."""
    samples, raw_sizes = [entry.samples for entry in entries], [entry.raw_size for entry in entries]
    return fingerprint_of(schema, samples, raw_sizes, [entry.raw_hash for entry in entries])


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

    if compression is None and any(entry[2:4] != entry[4:6] for entry in entries):
        raise UsageError("an uncompressed shard's raw size and hash are those of its object")
    shards = {
        "files": _text(files),
        "samples": _text([entry.samples for entry in entries]),
        "size": _text([entry.size for entry in entries]),
        "xxh3_128": _text([entry.hash for entry in entries]),
    }
    if compression is not None:
        shards["raw_size"] = _text([entry.raw_size for entry in entries])
        shards["raw_xxh3_128"] = _text([entry.raw_hash for entry in entries])
    members = {
        "format": _text("mdsx"),
        "version": _text(VERSION),
        "columns": schema.json,
        "compression": _text(compression),
        "rows_offset": _text(schema.rows_offset),
        "row_size": _text(schema.row_size),
        "samples": _text(sum(entry.samples for entry in entries)),
        "shards": _object(shards),
        "fingerprint": _text(fingerprint(schema, entries)),
        "metadata": _metadata_text({} if metadata is None else metadata),
        "checksum": _text("0" * 16),
    }
    data = _object(members) + b"\n"
    return data.removesuffix(b'0000000000000000"}\n') + xxhash.xxh3_64_hexdigest(data).encode() + b'"}\n'


def fingerprint_of(schema: Schema, samples: Sequence[int], raw_sizes: Sequence[int], raw_hashes: Sequence[str]) -> str:
    """As `fingerprint`, from columns."""
    hasher = xxhash.xxh3_128(schema.json)
    for first in range(0, len(samples), _CHUNK):
        chunk = slice(first, first + _CHUNK)
        count = len(samples[chunk])
        fields: list[object] = [None] * (3 * count)
        fields[::3], fields[1::3], fields[2::3] = samples[chunk], raw_sizes[chunk], raw_hashes[chunk]
        hasher.update(("\n%d %d %s" * count % tuple(fields)).encode())
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
