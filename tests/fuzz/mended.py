"""Broken files with their checksums made right again.

XXH3 stands before everything else: whatever a fuzzer changes would end there. An adversary computes checksums as well
as we do, so each of these takes any bytes, and gives those in which every checksum that can be found is right.
"""

from __future__ import annotations

import contextlib
import json
import struct
from typing import Any

import xxhash

from tests.format.reference import fixed

_FIRST_CHECKED = 56
_MOST_ROWS = 64


def shard(data: bytes) -> bytes:
    """With the checksums of header and rows. Where the rows lie and what they hold is taken from the header."""
    if len(data) < 64:
        return data
    header_size, samples, rows_offset = struct.unpack_from("<IQQ", data, 12)
    row_size, schema_size, heap_offset = struct.unpack_from("<IIQ", data, 32)
    made = bytearray(data)
    end = min(header_size + schema_size, len(data))
    struct.pack_into("<Q", made, 56, xxhash.xxh3_64_intdigest(data[:_FIRST_CHECKED] + data[64:end]))
    variable = None
    with contextlib.suppress(ValueError, LookupError, TypeError, AssertionError):
        columns = json.loads(data[header_size:end])
        variable = sum(not fixed(column["type"]) for column in columns)
    if variable is None or row_size < 8 + (8 + 4 * variable if variable else 0):
        return bytes(made)
    for number in range(min(samples, _MOST_ROWS)):
        row = rows_offset + number * row_size
        if row + row_size > len(data):
            break
        heap = _heap(data, row, heap_offset, variable)
        checksum = xxhash.xxh3_64_intdigest(data[row + 8 : row + row_size] + heap, number)
        struct.pack_into("<Q", made, row, checksum)
    return bytes(made)


def _heap(data: bytes, row: int, heap_offset: int, variable: int) -> bytes:
    if not variable:
        return b""
    start, *lengths = struct.unpack_from(f"<Q{variable}I", data, row + 8)
    first = heap_offset + start
    return data[first : first + sum(length for length in lengths if length != 0xFFFFFFFF)]


def index(data: bytes) -> bytes:
    """In the one form, with fingerprint and checksum; text that is no JSON gets the checksum alone."""
    try:
        made = json.loads(data)
        text = json.dumps(made, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    except (ValueError, RecursionError):
        return _with_checksum(data)
    with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError, RecursionError):
        made["fingerprint"] = _fingerprint(made)
        text = json.dumps(made, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    return _with_checksum(text)


def _fingerprint(index: dict[str, Any]) -> str:
    shards = index["shards"]
    columns = json.dumps(index["columns"], ensure_ascii=False, separators=(",", ":"))
    sizes, hashes = shards.get("raw_size", shards["size"]), shards.get("raw_xxh3_128", shards["xxh3_128"])
    facts = zip(shards["samples"], sizes, hashes, strict=True)
    lines = "".join(f"\n{count} {size} {digest}" for count, size, digest in facts)
    return str(xxhash.xxh3_128_hexdigest((columns + lines).encode()))


def _with_checksum(data: bytes) -> bytes:
    before, key, after = data.rpartition(b'"checksum":"')
    if not key:
        return data
    digest = xxhash.xxh3_64_hexdigest(before + key + b"0" * 16 + after[16:])
    return before + key + digest.encode() + after[16:]


def tar(data: bytes) -> bytes:
    """With the checksum of each block that looks like a header."""
    made = bytearray(data)
    for at in range(0, len(data) - 511, 512):
        block = data[at : at + 512]
        if block[257:262] == b"ustar":
            summed = sum(block) - sum(block[148:156]) + 8 * ord(" ")
            made[at + 148 : at + 156] = b"%06o\0 " % summed
    return bytes(made)
