"""The last bytes of an index, of a dataset or of files in place: `,"checksum":"<16 digits>"}` and a line feed.

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
    """Return a version as errors show it: whole, unless it has hundreds of digits."""
    return digits.decode() if len(digits) <= 100 else f"a number of {len(digits)} digits"


def seal(data: bytes) -> bytes:
    """Return an index whose bytes before the checksum are `data`."""
    return b'%b,"checksum":"%b"}\n' % (data, xxhash.xxh3_64_hexdigest(data).encode())


def checksums(data: Buffer) -> tuple[str, str | None]:
    """Return the checksum that an index needs, and the one that it has; None if it does not end with one."""
    place = max(len(memoryview(data)) - END_SIZE, 0)
    end = _END.fullmatch(data, place)
    return xxhash.xxh3_64_hexdigest(memoryview(data)[:place]), None if end is None else end[1].decode()


def begins_sealed(start: bytes) -> bool:
    """Return whether an index that begins with `start` ends with a checksum, unless it is damaged."""
    return start.startswith(_START)


def is_sealed(data: Buffer) -> bool:
    """Return whether an index is whole and has the right checksum."""
    computed, stored = checksums(data)
    return computed == stored
