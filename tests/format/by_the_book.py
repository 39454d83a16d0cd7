"""Shards built from format-spec.md, sample by sample and field by field, without any code of mdsx."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Mapping, Sequence

import xxhash

ITEM = {"bool": 1, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
ITEM |= {f"{sign}int{bits}": bits // 8 for sign in ("", "u") for bits in (8, 16, 32, 64)}


def up(value: int, step: int) -> int:
    return (value + step - 1) // step * step


def fixed_size(text: str) -> tuple[int, int] | None:
    """Return item size and size of a fixed-size column; None for other columns."""
    match = re.fullmatch(r"([\w.-]+)(?:\[([^\]]*)\])?(\?)?", text)
    assert match
    base, dims, mark = match.groups()
    if base not in ITEM or mark or "*" in (dims or ""):
        return None
    return ITEM[base], ITEM[base] * math.prod(int(dim) for dim in (dims or "1").split(","))


def shard(columns: Mapping[str, str], samples: Sequence[Mapping[str, bytes | None]]) -> bytes:
    """Return the shard of samples whose values are encoded bytes; None is null."""
    schema = json.dumps(
        [{"name": name, "type": text} for name, text in columns.items()], ensure_ascii=False, separators=(",", ":")
    ).encode()
    fixed = {name: sizes for name, text in columns.items() if (sizes := fixed_size(text))}
    variable = [name for name in columns if name not in fixed]

    bodies, heap = list[bytes](), b""
    checksums = list[int]()
    for number, sample in enumerate(samples):
        values = [sample[name] for name in variable]
        body = b""  # the row after its checksum
        if variable:
            body += struct.pack("<Q", len(heap))
            body += b"".join(struct.pack("<I", 0xFFFFFFFF if value is None else len(value)) for value in values)
        for name, (item, size) in fixed.items():
            body = body.ljust(up(8 + len(body), item) - 8, b"\0")
            value = sample[name]
            assert value is not None
            assert len(value) == size
            body += value
        body = body.ljust(up(8 + len(body), 8) - 8, b"\0")
        own = b"".join(value for value in values if value is not None)
        checksums.append(xxhash.xxh3_64_intdigest(body + own, seed=number))
        bodies.append(body)
        heap += own

    key = xxhash.xxh3_64_intdigest(schema + b"".join(struct.pack("<Q", checksum) for checksum in checksums))
    rows = b"".join(struct.pack("<Q", c ^ key) + body for c, body in zip(checksums, bodies, strict=True))
    row_size = 8 + len(bodies[0]) if bodies else 0
    rows_offset = up(64 + len(schema), 64)
    heap_offset = up(rows_offset + len(rows), 64)
    head = b"\x89MDSX\r\n\x1a" + struct.pack("<HHI", 1, 0, 64)
    head += struct.pack("<QQIIQQ", len(samples), key, row_size, len(schema), heap_offset, heap_offset + len(heap))
    head += struct.pack("<Q", xxhash.xxh3_64_intdigest(head + schema))
    return ((head + schema).ljust(rows_offset, b"\0") + rows).ljust(heap_offset, b"\0") + heap
