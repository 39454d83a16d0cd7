"""Write the JSON text of an index, from the entries of new shards, or from other indexes.

An index of millions of shards is joined from arrays: Python objects for each shard would take gigabytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.base.strict_json import parse_json
from mdsx.errors import CorruptError, UsageError
from mdsx.format.families.json_text import check_keys
from mdsx.format.filenames import NameRun, join_runs, runs_of
from mdsx.format.index import MAX_METADATA_SIZE, MAX_SHARDS, VERSION, Index, ShardEntry, exact_sum, fingerprint_of
from mdsx.format.inputs import Refused
from mdsx.format.schema import Schema
from mdsx.format.seal import seal
from mdsx.format.shard import MAX_SIZE


def build_index(
    schema: Schema,
    compression: str | None,
    entries: Sequence[ShardEntry],
    metadata: dict[str, Any] | None = None,
    lengths: Mapping[str, int] | None = None,
) -> bytes:
    """Return the index of the shards `entries`, in order. `compression`: None or "zstd". `lengths`: the sums of the
    samples' lengths by some columns. Raise UsageError."""
    files = _files(lambda: runs_of(entry.name for entry in entries))
    if compression is None and any((each.size, each.hash) != (each.raw_size, each.raw_hash) for each in entries):
        raise UsageError("an uncompressed shard's raw size and hash must equal those of its object")
    return _written(schema, compression, files, _Shards.of(entries), metadata, lengths or {})


def join_indexes(
    schema: Schema,
    compression: str | None,
    parts: Sequence[tuple[str, Index]],
    metadata: dict[str, Any] | None = None,
    lengths: Mapping[str, int] | None = None,
) -> bytes:
    """Return the index of the shards of all `parts`, in order. Each part is a folder ("" for the dataset's own) and the
    index in it, which must have this schema and compression. `lengths`: the sums of lengths; by default those that all
    parts have. Raise UsageError."""
    files = _files(lambda: join_runs((folder, index.files) for folder, index in parts))
    indexes = [index for _, index in parts]
    if lengths is None:
        in_all = set.intersection(*(set(index.lengths) for index in indexes)) if indexes else ()
        lengths = {name: sum(index.lengths[name] for index in indexes) for name in in_all}
    return _written(schema, compression, files, _Shards.joined(indexes), metadata, lengths)


@dataclass(frozen=True, slots=True)
class _Shards:
    """The fields of all shards, [S]; see `ShardEntry`."""

    counts: NDArray[np.int64]
    row_keys: NDArray[np.uint64]
    sizes: NDArray[np.int64]
    hashes: NDArray[np.uint8]  # [S, 16]
    raw_sizes: NDArray[np.int64]
    raw_hashes: NDArray[np.uint8]  # [S, 16]

    @classmethod
    def of(cls, entries: Sequence[ShardEntry]) -> _Shards:
        return cls(
            np.array([entry.samples for entry in entries], np.int64),
            np.array([entry.row_key for entry in entries], np.uint64),
            np.array([entry.size for entry in entries], np.int64),
            _bytes_of(entry.hash for entry in entries),
            np.array([entry.raw_size for entry in entries], np.int64),
            _bytes_of(entry.raw_hash for entry in entries),
        )

    @classmethod
    def joined(cls, indexes: Sequence[Index]) -> _Shards:
        if not indexes:
            return cls.of([])
        return cls(
            np.concatenate([index.counts for index in indexes]),
            np.concatenate([index.row_keys for index in indexes]),
            np.concatenate([index.sizes for index in indexes]),
            np.concatenate([index.hashes for index in indexes]),
            np.concatenate([index.raw_sizes for index in indexes]),
            np.concatenate([index.raw_hashes for index in indexes]),
        )


def _bytes_of(hashes: Iterable[str]) -> NDArray[np.uint8]:
    return np.frombuffer(bytes.fromhex("".join(hashes)), np.uint8).reshape(-1, 16)


def _files(make: Callable[[], list[NameRun]]) -> list[NameRun]:
    """Return the runs that `make` makes. Raise UsageError for a name that a shard cannot have."""
    try:
        return make()
    except ValueError as error:
        hint = "use letters, digits, '.', '_' and '-', with '/' between components, and a number of five digits"
        raise UsageError("not a valid name of a shard's file", found=repr(error.args[0]), hint=hint) from None


def _written(
    schema: Schema,
    compression: str | None,
    files: list[NameRun],
    shards: _Shards,
    metadata: dict[str, Any] | None,
    lengths: Mapping[str, int],
) -> bytes:
    check_shard_count(len(shards.counts), exact_sum(shards.raw_sizes))
    texts = {
        "files": _text(files),
        "samples": _text(shards.counts.tolist()),
        "row_key": _hex_text(shards.row_keys.astype(">u8")),
        "size": _text(shards.sizes.tolist()),
        "xxh3_128": _hex_text(shards.hashes),
    }
    if compression is not None:
        texts["raw_size"] = _text(shards.raw_sizes.tolist())
        texts["raw_xxh3_128"] = _hex_text(shards.raw_hashes)
    members = {
        "format": _text("mdsx"),
        "version": VERSION,
        "columns": schema.json,
        "compression": _text(compression),
        "rows_offset": _text(schema.rows_offset),
        "row_size": _text(schema.row_size),
        "samples": _text(exact_sum(shards.counts)),
        "shards": _object(texts),
        "fingerprint": _text(fingerprint_of(schema, shards.counts, shards.raw_sizes, shards.raw_hashes)),
        **({"lengths": _text(sums)} if (sums := _ordered(lengths, schema)) else {}),
        "metadata": _metadata_text({} if metadata is None else metadata),
    }
    return seal(_object(members).removesuffix(b"}"))


def _ordered(lengths: Mapping[str, int], schema: Schema) -> dict[str, int]:
    """Return the sums of lengths in the order of the columns, without those that an index cannot hold."""
    names = [column.name for column in schema.columns]
    return {name: lengths[name] for name in names if name in lengths and lengths[name] <= MAX_SIZE}


def check_shard_count(count: int, raw_size: int) -> None:
    """Raise UsageError if `count` shards, of `raw_size` bytes in all, are more than a dataset may have."""
    if count > MAX_SHARDS:
        raise UsageError(
            "too many shards",
            found=count,
            expected=f"at most {MAX_SHARDS} (2^22)",
            hint=f"write the dataset with shard_size={fitting_shard_size(raw_size)} or more",
        )


def fitting_shard_size(raw_size: int) -> str:
    """Return a shard_size with which `raw_size` bytes make at most half the allowed number of shards."""
    size = 2**20
    while size * MAX_SHARDS < 2 * raw_size:
        size *= 2
    return f'"{size // 2**20}MiB"'


def _text(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _hex_text(values: NDArray[Any]) -> bytes:
    return b'"' + values.tobytes().hex().encode() + b'"'


def _object(members: dict[str, bytes]) -> bytes:
    return b"{" + b",".join(_text(key) + b":" + value for key, value in members.items()) + b"}"


def _metadata_text(metadata: dict[str, Any]) -> bytes:
    if not isinstance(metadata, dict):
        raise UsageError("metadata must be a dict", found=type(metadata).__name__)
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
