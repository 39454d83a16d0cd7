"""Broken files with recomputed checksums.

mdsx checks XXH3 before everything else, so every change by a fuzzer would fail there. An adversary can compute
checksums too. So each of these functions takes any bytes, and returns them with every checksum corrected that it finds.
"""

from __future__ import annotations

import contextlib
import json
import struct

import xxhash

from tests.format.reference import fingerprint, fixed, seal_index
from tests.transfer.converting.tf_files import masked

_FIRST_CHECKED = 56
_MOST_ROWS = 64


def index_of_files(data: bytes) -> bytes:
    """Return an index of Parquet files or tars with a right checksum."""
    body = data[: max(len(data) - 32, 0)]
    return body + b',"checksum":"%s"}\n' % xxhash.xxh3_64_hexdigest(body).encode()


def shard(data: bytes) -> bytes:
    """Return it with right checksums and row key. The header gives the place and content of the rows."""
    if len(data) < 64:
        return data
    header_size, samples = struct.unpack_from("<IQ", data, 12)
    row_size, schema_size, heap_offset = struct.unpack_from("<IIQ", data, 32)
    made, checksums = bytearray(data), list[int]()
    end, rows_offset = min(header_size + schema_size, len(data)), -(-(header_size + schema_size) // 64) * 64
    variable = None
    with contextlib.suppress(ValueError, LookupError, TypeError, AssertionError):
        columns = json.loads(data[header_size:end])
        variable = sum(not fixed(column["type"]) for column in columns)
    readable = variable is not None and row_size >= 8 + (8 + 4 * variable if variable else 0)
    for number in range(min(samples, _MOST_ROWS) if readable else 0):
        row = rows_offset + number * row_size
        if row + row_size > len(data):
            break
        heap = _heap(data, row, heap_offset, variable)
        checksums.append(xxhash.xxh3_64_intdigest(data[row + 8 : row + row_size] + heap, number))
    key = xxhash.xxh3_64_intdigest(data[header_size:end] + struct.pack(f"<{len(checksums)}Q", *checksums))
    for number, checksum in enumerate(checksums):
        struct.pack_into("<Q", made, rows_offset + number * row_size, checksum ^ key)
    struct.pack_into("<Q", made, 24, key)
    struct.pack_into("<Q", made, 56, xxhash.xxh3_64_intdigest(bytes(made[:_FIRST_CHECKED]) + data[64:end]))
    return bytes(made)


def _heap(data: bytes, row: int, heap_offset: int, variable: int | None) -> bytes:
    if not variable:
        return b""
    start, *lengths = struct.unpack_from(f"<Q{variable}I", data, row + 8)
    first = heap_offset + start
    return data[first : first + sum(length for length in lengths if length != 0xFFFFFFFF)]


def index(data: bytes) -> bytes:
    """Return it with right fingerprint and checksum; text that is not JSON gets only the checksum."""
    with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError, RecursionError, struct.error):
        made = json.loads(data)
        made.pop("checksum", None)
        made["fingerprint"] = fingerprint(made)
        return seal_index(made)
    body = data.rpartition(b',"checksum":"')[0] or data
    return body + b',"checksum":"' + xxhash.xxh3_64_hexdigest(body).encode() + b'"}\n'


def tar(data: bytes) -> bytes:
    """Return it with the right checksum of each block that looks like a header."""
    made = bytearray(data)
    for at in range(0, len(data) - 511, 512):
        block = data[at : at + 512]
        if block[257:262] == b"ustar":
            summed = sum(block) - sum(block[148:156]) + 8 * ord(" ")
            made[at + 148 : at + 156] = b"%06o\0 " % summed
    return bytes(made)


def tfrecord(data: bytes) -> bytes:
    """Return it with the right checksums of each record, as long as lengths are inside the file."""
    made, at = bytearray(data), 0
    while at + 16 <= len(data):
        size = min(int.from_bytes(data[at : at + 8], "little"), len(data) - at - 16)
        made[at : at + 8] = size.to_bytes(8, "little")
        made[at + 8 : at + 12] = masked(bytes(made[at : at + 8]))
        made[at + 12 + size : at + 16 + size] = masked(data[at + 12 : at + 12 + size])
        at += 16 + size
    return bytes(made)
