"""Reads the index, and checks what it says as far as that can be done without the shards.

An index that reads well has the right checksum and fingerprint, offsets that follow from its columns, numbers that
agree with each other, and file names that lead nowhere else. Keys that are not known are ignored: a later minor version
may add some.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.errors import CorruptError, UnsupportedError
from mdsx.format.frames import MAX_FRAMES, frame_count, seek_table_size
from mdsx.format.header import MAX_HEADER_SIZE, MAX_SIZE
from mdsx.format.index import MAX_METADATA_SIZE, VERSION, Index, fingerprint_of
from mdsx.format.jsonobject import JsonObject
from mdsx.format.jsontext import parse_json
from mdsx.format.names import Run, is_name, join_name
from mdsx.format.schema import HEADER_SIZE, Schema, up

MAX_SAMPLES = 2**62 - 1

_CHECKSUM = re.compile(rb'"[0-9a-f]{16}"')
_FINGERPRINT = re.compile("[0-9a-f]{32}")


def parse_index(data: bytes, *, file: str | None = None) -> Index:
    """The index that `data` holds. Raises CorruptError or UnsupportedError."""
    root = JsonObject(data, file=file)
    if root.string("format") != "mdsx":
        raise root.error("this is no mdsx index", "format", found=root.string("format")[:80], expected="mdsx")
    version = root.integer("version")
    if version > VERSION:
        message = f"the index is of version {version}, this reader knows {VERSION}"
        raise UnsupportedError(message, file=file, place="version", hint="upgrade mdsx")
    if version < VERSION:
        raise root.error("there is no such version", "version", found=version, expected=VERSION)
    root.check_form(ending=b"\n")
    _check_text(root, data)

    schema = Schema.from_json(bytes(root["columns"]), file=file)
    compression = _compression(root, file)
    rows_offset = _layout(root, schema)
    shards = JsonObject(root["shards"], file=file, place="shards")
    shards.check_form()
    counts, sizes, hashes = shards.integers("samples"), shards.integers("size"), shards.hashes("xxh3_128")
    raw_sizes, raw_hashes = sizes, hashes
    if compression is not None:
        raw_sizes, raw_hashes = shards.integers("raw_size"), shards.hashes("raw_xxh3_128")
    elif "raw_size" in shards or "raw_xxh3_128" in shards:
        raise shards.error("raw sizes and hashes stand only where the dataset is compressed")
    files = _files(shards)
    for key, length in {
        "size": len(sizes),
        "xxh3_128": len(hashes),
        "raw_size": len(raw_sizes),
        "raw_xxh3_128": len(raw_hashes),
        "files": sum(count for *_, count in files),
    }.items():
        if length != len(counts):
            raise shards.error("not as many shards as in samples", key, found=length, expected=len(counts))
    numbers, raw_numbers = counts.tolist(), raw_sizes.tolist()
    _check_samples(root, sum(numbers))
    _check_raw_sizes(shards, schema, rows_offset, counts, raw_sizes)
    if compression is not None:
        _check_frames(shards, sizes, raw_sizes)
    _check_fingerprint(root, fingerprint_of(schema, numbers, raw_numbers, raw_hashes))
    stored = _hash_bytes(hashes)
    return Index(
        schema=schema,
        compression=compression,
        rows_offset=rows_offset,
        samples=sum(numbers),
        counts=_frozen(counts),
        sizes=_frozen(sizes),
        hashes=stored,
        raw_sizes=_frozen(raw_sizes),
        raw_hashes=stored if raw_hashes is hashes else _hash_bytes(raw_hashes),
        files=files,
        firsts=_frozen(np.cumsum([0, *(count for *_, count in files[:-1])], dtype=np.int64)),
        fingerprint=root.string("fingerprint"),
        metadata=_metadata(root),
    )


def _check_text(root: JsonObject, data: bytes) -> None:
    """It is UTF-8, and its checksum is right: that of the file with the checksum's digits set to 0."""
    try:
        str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise root.error(f"the index is not UTF-8: {error}") from None
    if _CHECKSUM.fullmatch(root["checksum"]) is None:
        raise root.error("this is not a checksum of 16 lower-case hexadecimal digits", "checksum")
    start = root.offset("checksum") + 1
    view = memoryview(data)
    hasher = xxhash.xxh3_64(view[:start])
    hasher.update(b"0" * 16)
    hasher.update(view[start + 16 :])
    stored = root.string("checksum")
    if hasher.hexdigest() != stored:
        raise root.error("the index is damaged", "checksum", found=hasher.hexdigest(), expected=stored)


def _compression(root: JsonObject, file: str | None) -> str | None:
    if "compression" not in root or bytes(root["compression"]) == b"null":
        return None
    compression = root.string("compression")
    if compression != "zstd":
        message = f"compression {compression[:80]!r} is not known to this version"
        raise UnsupportedError(message, file=file, place="compression", hint="upgrade mdsx")
    return compression


def _layout(root: JsonObject, schema: Schema) -> int:
    """The offset of the rows in every shard: what a header of any allowed size can give. A shard must agree with it."""
    offset, row_size = root.integer("rows_offset"), root.integer("row_size")
    if row_size != schema.row_size:
        raise root.error("not what the columns need", "row_size", found=row_size, expected=schema.row_size)
    least, most = (up(size + len(schema.json), 64) for size in (HEADER_SIZE, MAX_HEADER_SIZE))
    if offset % 64 or not least <= offset <= most:
        raise root.error("not behind header and schema", "rows_offset", found=offset, expected=least)
    return offset


def _files(shards: JsonObject) -> tuple[Run, ...]:
    try:
        runs = msgspec.json.decode(shards["files"], type=list[Run])
    except (ValueError, RecursionError) as error:
        raise shards.error(f"this is not a list of [prefix, suffix, first, count]: {error}", "files") from None
    suffixes: dict[str, str] = {}
    found = []
    for number, (prefix, suffix, first, count) in enumerate(runs):
        if first < 0 or count < 0 or first + count > MAX_SIZE:
            raise shards.error("numbers out of range", f"files[{number}]", found=[first, count])
        name = join_name(prefix, suffix, first + max(count - 1, 0))  # the longest; otherwise all are alike
        if not is_name(name):
            raise shards.error("this may not be a file's name", f"files[{number}]", found=repr(name[:600]))
        found.append((prefix, suffixes.setdefault(suffix, suffix), first, count))
    return tuple(found)


def _check_samples(root: JsonObject, total: int) -> None:
    if total > MAX_SAMPLES:
        raise root.error("more samples than an order can have", "samples", found=total, expected="below 2^62")
    if root.integer("samples") != total:
        raise root.error("not the sum over the shards", "samples", found=root.integer("samples"), expected=total)


def _check_raw_sizes(
    shards: JsonObject, schema: Schema, rows_offset: int, counts: NDArray[np.int64], raw_sizes: NDArray[np.int64]
) -> None:
    """Each shard has room for its rows; and where no column has a heap, or no sample is, nothing else."""
    room = (raw_sizes - rows_offset) // schema.row_size
    rows = np.minimum(counts, np.maximum(room, 0)).astype(np.uint64) * np.uint64(schema.row_size)  # cannot overflow
    least = (rows + np.uint64(rows_offset + 63)) // np.uint64(64) * np.uint64(64)
    sizes = raw_sizes.astype(np.uint64)
    wrong = (counts > room) | (sizes < least)
    wrong |= (sizes != least) & (not schema.variable or counts == 0)
    if wrong.any():
        shard = int(wrong.argmax())
        found = f"{raw_sizes[shard]} bytes for {counts[shard]} samples"
        raise shards.error("the size cannot hold the samples", f"raw size of shard {shard}", found=found)


def _check_frames(shards: JsonObject, sizes: NDArray[np.int64], raw_sizes: NDArray[np.int64]) -> None:
    """A stored object has room for the seek table of its frames: what is claimed of it is checked before it is read."""
    wrong = (frame_count(raw_sizes) > MAX_FRAMES) | (seek_table_size(raw_sizes) > sizes)
    if wrong.any():
        shard = int(wrong.argmax())
        found = f"{sizes[shard]} bytes for {raw_sizes[shard]}"
        raise shards.error("the stored size cannot hold its frames", f"raw size of shard {shard}", found=found)


def _check_fingerprint(root: JsonObject, computed: str) -> None:
    stored = root.string("fingerprint")
    if _FINGERPRINT.fullmatch(stored) is None:
        raise root.error("this is not a hash of 32 lower-case hexadecimal digits", "fingerprint")
    if computed != stored:
        raise root.error("it is not that of these shards", "fingerprint", found=stored, expected=computed)


def _metadata(root: JsonObject) -> dict[str, Any]:
    text = bytes(root["metadata"])
    if len(text) > MAX_METADATA_SIZE:
        raise root.error("it is too large", "metadata", found=f"{len(text)} bytes", expected="at most 1 MiB")
    try:
        metadata = parse_json(text, unique_keys=True)
    except CorruptError as error:
        raise root.error(str(error), "metadata") from None
    if not isinstance(metadata, dict):
        raise root.error("it is not an object", "metadata")
    return metadata


def _hash_bytes(hashes: list[str]) -> NDArray[np.uint8]:
    return np.frombuffer(bytes.fromhex("".join(hashes)), np.uint8).reshape(len(hashes), 16)


def _frozen(values: NDArray[np.int64]) -> NDArray[np.int64]:
    values.setflags(write=False)
    return values
