"""The last bytes of every index, of lengths and of a selection: `,"checksum":"<16 digits>"}` and a line feed.

The checksum is XXH3-64 of all bytes before it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import xxhash

from mdsx.errors import CorruptError, UnsupportedError

if TYPE_CHECKING:
    from typing_extensions import Buffer

END_SIZE = 32
_END = re.compile(rb',"checksum":"([0-9a-f]{16})"\}\n')
_START = b'{"format":"mdsx'


def shown_version(digits: bytes) -> str:
    """Return a version for an error message, shortened if it has hundreds of digits."""
    return digits.decode() if len(digits) <= 100 else f"a number of {len(digits)} digits"


def check_version(start: re.Match[bytes] | None, data: bytes, version: int, *, what: str, file: str) -> None:
    """Raise CorruptError or UnsupportedError unless `data` begins with `start`, whose first group is this version."""
    if start is None or start[1] == b"0":
        raise CorruptError(f"not {what}", file=file, found=repr(data[:40]))
    if start[1] != b"%d" % version:
        message, found = f"{what} of a later version", shown_version(start[1])
        raise UnsupportedError(message, file=file, found=found, expected=version, hint="upgrade mdsx")


def seal(data: bytes) -> bytes:
    """Append the checksum to `data`, the bytes of a file before it."""
    return b'%b,"checksum":"%b"}\n' % (data, xxhash.xxh3_64_hexdigest(data).encode())


def checksums(data: Buffer) -> tuple[str, str | None]:
    """Return the computed checksum of a file, and the stored one (None if it does not end with one)."""
    place = max(len(memoryview(data)) - END_SIZE, 0)
    end = _END.fullmatch(data, place)
    return xxhash.xxh3_64_hexdigest(memoryview(data)[:place]), None if end is None else end[1].decode()


def begins_sealed(start: bytes) -> bool:
    """Return whether an undamaged index that begins with `start` must end with a checksum."""
    return start.startswith(_START)


def is_sealed(data: Buffer) -> bool:
    """Return whether an index is complete and has the right checksum."""
    computed, stored = checksums(data)
    return computed == stored
