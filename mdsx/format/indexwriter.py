"""Writes the index: one JSON text for the shards, in order, with a checksum at its end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import xxhash

from mdsx.errors import CorruptError, UsageError
from mdsx.format.encodevalues import check_keys
from mdsx.format.filenames import runs_of
from mdsx.format.given import Refused
from mdsx.format.index import MAX_METADATA_SIZE, MAX_SHARDS, VERSION, ShardEntry, fingerprint
from mdsx.format.jsontext import parse_json
from mdsx.format.schema import Schema


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
        parse_json(data, unique_keys=True)  # so that every index can be read
    except Refused as refused:
        message = "metadata cannot be kept as it is"
        raise UsageError(message, expected=refused.expected, found=refused.found) from None
    except (TypeError, ValueError, RecursionError, CorruptError) as error:
        raise UsageError(f"metadata cannot be written as JSON: {error}") from error
    if len(data) > MAX_METADATA_SIZE:
        raise UsageError("metadata is too large", found=f"{len(data)} bytes", expected="at most 1 MiB")
    return data
