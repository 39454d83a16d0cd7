"""Sparse members of tars, built by hand: Python's tarfile cannot write them."""

from __future__ import annotations

import tarfile
from collections.abc import Mapping, Sequence

BLOCK = 512


def padded(data: bytes) -> bytes:
    return data.ljust(-(-len(data) // BLOCK) * BLOCK, b"\0")


def header(name: str, size: int, kind: bytes = b"0", **fields: bytes) -> bytes:
    """Return a GNU header; `fields` are `at_OFFSET=bytes` to write over it before the checksum is computed."""
    info = tarfile.TarInfo(name)
    info.size, info.type = 0, kind
    block = bytearray(info.tobuf(tarfile.GNU_FORMAT)[:BLOCK])
    block[124:136] = b"%011o\0" % size if size < 8**11 else b"\x80" + size.to_bytes(11, "big")
    for place, data in fields.items():
        at = int(place.removeprefix("at_"))
        block[at : at + len(data)] = data
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def pax(records: Mapping[str, str], kind: bytes = b"x") -> bytes:
    """Return a pax header with `records`."""
    lines = b"".join(_line(f"{key}={value}") for key, value in records.items())
    return header("pax", len(lines), kind) + padded(lines)


def pax_lines(*texts: str, times: int) -> bytes:
    """Return a pax header with these records repeated `times` times."""
    lines = b"".join(map(_line, texts)) * times
    return header("pax", len(lines), b"x") + padded(lines)


def _line(text: str) -> bytes:
    body = f" {text}\n".encode()
    size = len(body) + 1
    while size != len(body) + len(str(size)):
        size = len(body) + len(str(size))
    return str(size).encode() + body


def pax_sparse(records: Mapping[str, str], stored: bytes, name: str = "s.bin") -> bytes:
    return pax(records) + header(name, len(stored)) + padded(stored)


def old_gnu(pieces: Sequence[tuple[int, int]], size: int, stored: bytes, name: str = "g.bin") -> bytes:
    """Return a member of type S. The header has the first 4 pieces, and each block after it 21."""
    entries = [b"%011o\0%011o\0" % piece for piece in pieces]
    blocks = [b"".join(entries[place : place + 21]).ljust(504, b"\0") for place in range(4, len(entries), 21)]
    more = b"".join(block + bytes([number < len(blocks)]) + bytes(7) for number, block in enumerate(blocks, 1))
    real = b"%011o\0" % size if size < 8**11 else b"\x80" + size.to_bytes(11, "big")
    fields = {"at_386": b"".join(entries[:4]), "at_482": bytes([bool(blocks)]), "at_483": real}
    return header(name, len(stored), b"S", **fields) + more + padded(stored)
