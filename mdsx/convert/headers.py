"""The headers of a tar: one block of 512 bytes each, and the records of pax headers."""

from __future__ import annotations

from typing import NamedTuple

BLOCK = 512


class Header(NamedTuple):
    name: bytes
    size: int
    kind: bytes
    link: bytes
    block: bytes


def parse_header(block: bytes) -> Header | None:
    """The header in `block`; None if it is damaged or none."""
    if block[257:262] != b"ustar" and any(block[257:265]):  # v7 has zeros there; its sum alone misses shifted fields
        return None
    try:
        expected, size = octal(block[148:156]), octal(block[124:136])
    except ValueError:
        return None
    summed = sum(block) - sum(block[148:156]) + 8 * ord(" ")
    if summed != expected:  # some old tars summed signed bytes
        high = block[:148] + block[156:]
        if summed - 256 * sum(byte > 127 for byte in high) != expected:
            return None
    name = block[:100].partition(b"\0")[0]
    if block[257:263] == b"ustar\0" and block[345]:  # GNU's "ustar  " keeps times where ustar has the prefix
        name = block[345:500].partition(b"\0")[0] + b"/" + name
    if not name:
        return None
    return Header(name, size, block[156:157], block[157:257].partition(b"\0")[0], block)


def parse_records(payload: bytes) -> list[tuple[str, bytes]] | None:
    """The records `length key=value\\n` of a pax header; None if it is damaged."""
    records, start, payload = [], 0, payload.rstrip(b"\0")
    while start < len(payload):
        length, space, _ = payload[start : start + 20].partition(b" ")
        if not (space and length.isdigit()):
            return None
        end = start + int(length)
        key, equals, value = payload[start + len(length) + 1 : end].partition(b"=")
        if not equals or not value.endswith(b"\n") or end > len(payload):
            return None
        records.append((key.decode("utf-8", "replace"), value[:-1]))
        start = end
    return records


def octal(field: bytes) -> int:
    """A number in a tar header: octal digits, or base 256 where the first bit is set. ValueError if it is none."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    number = int(field.partition(b"\0")[0].strip() or b"0", 8)
    if number < 0:
        raise ValueError("negative")
    return number
