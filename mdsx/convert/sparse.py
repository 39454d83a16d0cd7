"""Sparse members of a tar: only the pieces that are not holes are stored, and a map says where they belong.

GNU tar has written that map in four ways: in the header (type S), and in pax records of version 0.0, 0.1 and 1.0. All
raise ValueError where the map does not fit the stored bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from mdsx.convert.headers import BLOCK, octal

_LONGEST_MAP = 2**20
_DIGITS = 20

Pieces = list[tuple[int, int]]  # offset in the whole, length


def header_entries(fields: bytes) -> Pieces:
    """The map's entries in a type S header, or in a block that continues it: pairs of 12-byte octal numbers."""
    pairs = [fields[start : start + 24] for start in range(0, len(fields) // 24 * 24, 24)]
    return [(octal(pair[:12]), octal(pair[12:])) for pair in pairs if pair[:1] != b"\0"]


def pax_pieces(records: Sequence[tuple[str, bytes]]) -> Pieces | None:
    """The map of pax versions 0.0 and 0.1; None if the records hold none."""
    numbers: list[int] = []
    for key, value in records:
        if key == "GNU.sparse.map":
            numbers = [_number(number) for number in value.split(b",") if number]
        elif key in ("GNU.sparse.offset", "GNU.sparse.numbytes"):
            numbers.append(_number(value))
    return _paired(numbers) if numbers else None


def stored_pieces(stored: bytes) -> int:
    """How many pieces the map of pax version 1.0 claims to have: its first line says so."""
    count = _number(stored[: _DIGITS + 1].partition(b"\n")[0])
    if 4 * count > min(len(stored), _LONGEST_MAP):  # each takes two digits and two line ends at least
        raise ValueError(f"its map claims {count:,} pieces")
    return count


def split_stored_map(stored: bytes) -> tuple[Pieces, bytes]:
    """The map of pax version 1.0, which stands before the stored pieces as lines of decimal digits, and the pieces."""
    count, _, rest = stored[:_LONGEST_MAP].partition(b"\n")
    lines = rest.split(b"\n", 2 * _number(count))[: 2 * _number(count)]
    size = len(count) + 1 + sum(len(line) + 1 for line in lines)
    return _paired([_number(line) for line in lines]), stored[-(-size // BLOCK) * BLOCK :]


def expand(pieces: Pieces, stored: bytes, size: int) -> bytes:
    """The whole of `size` bytes: `stored` cut into `pieces`, zeros elsewhere."""
    parts: list[bytes] = []
    used = end = 0
    for offset, length in pieces:
        if offset < end or offset + length > size:
            raise ValueError("pieces overlap or leave the file")
        parts += [bytes(offset - end), stored[used : used + length]]
        used, end = used + length, offset + length
    if used != len(stored):
        raise ValueError("pieces and stored bytes differ in size")
    return b"".join([*parts, bytes(size - end)])


def _number(digits: bytes) -> int:
    if len(digits) > _DIGITS or not digits.isdigit():
        raise ValueError("no number")
    return int(digits)


def _paired(numbers: list[int]) -> Pieces:
    return list(zip(numbers[::2], numbers[1::2], strict=True))
