"""Read the records of a TFRecord file: plain, gzip, zlib or zstd.

    record = u64 length, u32 masked CRC32C of these 8 bytes, data, u32 masked CRC32C of the data       (little-endian)

An empty file has no records. A record whose data has a wrong checksum is left out. After a wrong length, the rest of
the file cannot be read. Both yield an error in their place.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import chain
from typing import NamedTuple

from mdsx.base.chunks import Chunks
from mdsx.base.decompress import decompress
from mdsx.errors import CorruptError, UnsupportedError, UsageError, restated

_HEAD = struct.Struct("<QI")
_MOST = 2**31 - 1  # bytes of a record: the limit of protobuf messages
_ROOM, _RATIO = 2**21, 50  # bytes of a record: this many, and this many for each stored byte of the file


class TFRecord(NamedTuple):
    """The bytes of record `number`, which begins at `offset` of the decompressed file."""

    number: int
    offset: int
    data: bytes

    @property
    def place(self) -> str:
        return record_place(self.number, self.offset)


def record_place(number: int, offset: int) -> str:
    """Return where a record is, for messages."""
    return f"record {number}, offset {offset}"


def checksum() -> Callable[[bytes], int]:
    """Return the function that computes the CRC32C of bytes, from google-crc32c. Raise UsageError without it."""
    try:
        import google_crc32c
    except ImportError as error:
        raise UsageError(
            "TFRecord files need the package google-crc32c", hint="pip install 'mdsx[tfrecord]'"
        ) from error
    found: Callable[[bytes], int] = google_crc32c.value
    return found


def masked(crc: int) -> int:
    """Return a CRC32C as TFRecord files store it."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def read_records(chunks: Iterator[bytes], *, file: str, stored: int) -> Iterator[TFRecord | CorruptError]:
    """Yield the records of `file`, whose `stored` bytes are `chunks`, and an error for each damaged stretch.

    Raise UnsupportedError for a compression that mdsx cannot read.
    """
    crc32c, most = checksum(), min(_MOST, _ROOM + _RATIO * stored)
    stream = _Stream(chunks, crc32c)
    number = 0

    def error(message: str, **fields: object) -> CorruptError:
        hint = fields.pop("hint", None)
        place = record_place(number, offset)
        return CorruptError(message, file=file, place=place, hint=str(hint) if hint else None, **fields)

    while True:
        offset = stream.offset
        try:
            head = stream.read(_HEAD.size)
            if not head:
                return
            if len(head) < _HEAD.size:
                yield error("file is truncated in the middle of a record's length")
                return
            size, crc = _HEAD.unpack(head)
            if masked(crc32c(head[:8])) != crc:
                message = "the length of a record has a wrong checksum" if number else "is not a TFRecord file"
                yield error(message, hint="the rest of the file cannot be read" if number else None)
                return
            if size > most:
                hint = f"the limit is {_RATIO} times the size of the file plus 2 MiB: decompress the file first"
                yield error(
                    "a record is too large",
                    found=f"{size:,} bytes",
                    expected=f"at most {most:,}",
                    hint=hint if most < _MOST else None,
                )
                return
            data, found = stream.read(size), stream.read(4)
        except UnsupportedError as unknown:
            raise restated(unknown, file=file) from None
        except CorruptError as damage:
            yield error(damage.message, found=damage.found, expected=damage.expected, hint=damage.hint)
            return
        if len(found) < 4:
            yield error("file is truncated in the middle of a record", found=len(data) + len(found), expected=size + 4)
            return
        if masked(crc32c(data)) == int.from_bytes(found, "little"):
            yield TFRecord(number, offset, data)
        else:
            yield error("the data of a record has a wrong checksum")
        number += 1


class _Stream(Chunks):
    """The decompressed bytes of a file."""

    def __init__(self, chunks: Iterator[bytes], crc32c: Callable[[bytes], int]) -> None:
        super().__init__(chunks)
        head = self.read(_HEAD.size)
        rest = chain([head, self._chunk[self._at :]], chunks)
        plain = len(head) == _HEAD.size and masked(crc32c(head[:8])) == _HEAD.unpack(head)[1]
        super().__init__(rest if plain else decompress(rest, zlib_too=True))  # a length may begin like gzip
