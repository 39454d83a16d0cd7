"""For an index without checksums, check by the headers of its members that a part of a tar is the indexed sample.

This detects a tar that was replaced or rewritten with other members, and every damaged header. It does not detect
changed bytes inside a member, because the index was made without reading them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mdsx.foreign.tars.blocks import (
    BLOCK,
    DIGITS,
    EXTENDED,
    EXTENSION_LIMIT,
    WITHOUT_BYTES,
    parse_header,
    parse_records,
    printable,
)


class Expected(NamedTuple):
    """The bytes of a value in its sample, [start, stop); an array begins after its member's NumPy header."""

    start: int
    stop: int
    array: bool


class _Member(NamedTuple):
    name: bytes
    start: int
    stop: int


def find_problem(data: memoryview, expected: Sequence[Expected], key: bytes | None) -> str | None:
    """Return what is wrong with the members in `data`, the bytes of a sample, or None. `data` must consist of headers
    and members without gaps, and members with values must have this key, start and stop."""
    members = _members(data)
    if isinstance(members, str):
        return members
    by_span = {(member.start, member.stop): member for member in members}
    by_stop = {member.stop: member for member in members if member.stop > member.start}
    for value in expected:
        found = by_stop.get(value.stop) if value.array else by_span.get((value.start, value.stop))
        if found is None or found.start > value.start:
            return f"no member has the {value.stop - value.start} bytes from {value.start} on"
        if key is not None and not found.name.startswith(key + b"."):
            name, wanted = (printable(each.decode("utf-8", "surrogateescape")) for each in (found.name, key))
            return f"member {name} does not belong to sample {wanted}"
    return None


def _members(data: memoryview) -> list[_Member] | str:
    """Return the members whose headers and bytes fill `data`, or the problem."""
    found: list[_Member] = []
    at, end, name, size = 0, 0, b"", None
    while at < len(data):
        header = parse_header(bytes(data[at : at + BLOCK])) if len(data) - at >= BLOCK else None
        if header is None:
            return f"there is no undamaged header of a tar {at} bytes from its start"
        start, more = at + BLOCK, header.kind == b"S" and header.block[482]
        while more and start + BLOCK <= len(data):  # the rest of a sparse map
            start, more = start + BLOCK, data[start + 504]
        stored = header.size if size is None or header.kind in EXTENDED else size
        stop = start if header.kind in WITHOUT_BYTES else start + stored
        if stop > len(data):
            return f"the member {at} bytes from its start is longer than the sample"
        if header.kind in EXTENDED:
            payload = bytes(data[start : min(stop, start + EXTENSION_LIMIT)])
            if header.kind == b"L":
                name = payload.rstrip(b"\0")
            elif header.kind in (b"x", b"X"):
                records = dict(parse_records(payload) or [])
                name = records.get("path", name)
                digits = records.get("size", b"")
                size = int(digits) if digits.isdigit() and len(digits) <= DIGITS else size
        else:
            found.append(_Member(name or header.name, start, stop))
            end, name, size = stop, b"", None
        at = start + -(-(stop - start) // BLOCK) * BLOCK
    return found if end == len(data) else "its last member ends before the sample does"
