"""The last bytes of every index: `,"checksum":"<16 digits>"}` and a line feed.

The checksum is XXH3-64 of all bytes before it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import xxhash

if TYPE_CHECKING:
    from typing_extensions import Buffer

END_SIZE = 32
_END = re.compile(rb',"checksum":"([0-9a-f]{16})"\}\n')
_START = b'{"format":"mdsx'


def shown_version(digits: bytes) -> str:
    """Return a version for an error message, shortened if it has hundreds of digits."""
    return digits.decode() if len(digits) <= 100 else f"a number of {len(digits)} digits"


def seal(data: bytes) -> bytes:
    """Append the checksum to `data`, the bytes of an index before it."""
    return b'%b,"checksum":"%b"}\n' % (data, xxhash.xxh3_64_hexdigest(data).encode())


def checksums(data: Buffer) -> tuple[str, str | None]:
    """Return the computed checksum of an index, and the stored one (None if it does not end with one)."""
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
