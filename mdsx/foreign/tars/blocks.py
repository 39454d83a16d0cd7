"""Read the blocks of a tar in order, parse the headers in them, and limit what a tar may claim.

A sparse member of 1 KiB may claim gigabytes of holes, and 1 MiB of header records compresses to 1 KiB. So the holes in
each member, sample and tar are limited, and the records in each tar. `decompress` limits the expansion of a compressed
tar.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from mdsx.base.chunks import Chunks
from mdsx.errors import CorruptError, UnsupportedError, restated

BLOCK = 512
ZEROS = bytes(BLOCK)
EXTENDED = (b"x", b"X", b"g", b"L", b"K")  # types of headers that belong to the next member
WITHOUT_BYTES = (b"1", b"2", b"3", b"4", b"5", b"6")  # links, devices, directories, FIFOs: whatever size they claim
EXTENSION_LIMIT = 2**20  # extended headers of one member, and sparse maps; more is damage
VALUE_LIMIT = 2**32 - 1  # a column's value is smaller
DIGITS = 20  # of a number in a header or a sparse map
_SHOWN = 1000  # characters of a name in an error
_HOLES, _HOLES_RATIO = 2**26, 1000
_RECORDS = 2**18

HOLES_RULE = "64 MiB and 1,000 times the stored bytes"
RECORDS_RULE = "262,144 records plus one per stored byte"


class TarHeader(NamedTuple):
    """The fields of one header block."""

    name: bytes
    size: int
    kind: bytes
    link: bytes
    block: bytes


def parse_header(block: bytes) -> TarHeader | None:
    """Return the header in `block`; None if it is damaged or not a header."""
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
    return TarHeader(name, size, block[156:157], block[157:257].partition(b"\0")[0], block)


def parse_records(payload: bytes) -> list[tuple[str, bytes]] | None:
    """Return the records `length key=value\\n` of a pax header; None if it is damaged."""
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
    """Return the number in a header field: octal digits, or base 256 if the first bit is set. Raise ValueError."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    number = int(field.partition(b"\0")[0].strip() or b"0", 8)
    if number < 0:
        raise ValueError("negative")
    return number


def most_holes(stored: int) -> int:
    """Return how many bytes of holes `stored` stored bytes may have."""
    return _HOLES + _HOLES_RATIO * stored


class Budget:
    """Limits what one tar may claim. `stored` counts the bytes of its file read so far, compressed or not."""

    def __init__(self) -> None:
        self.stored = self.holes = self._records = 0

    def count(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield `chunks`, and count each as stored."""
        for chunk in chunks:
            self.stored += len(chunk)
            yield chunk

    def take_holes(self, size: int) -> bool:
        """Take `size` more bytes of holes; return False, and take none, if that exceeds the budget."""
        if self.holes + size > most_holes(self.stored):
            return False
        self.holes += size
        return True

    def take_records(self, count: int) -> bool:
        """Take `count` more header records or pieces of sparse maps; return False if that exceeds the budget."""
        self._records += count
        return self._records <= _RECORDS + self.stored


class Tape(Chunks):
    """The bytes of a tar, read in order from chunks. If they are damaged where they are compressed, they end there.

    Reading raises UnsupportedError for a compression that mdsx cannot read.
    """

    def __init__(self, chunks: Iterator[bytes], file: str, budget: Budget) -> None:
        super().__init__(chunks)
        self.budget = budget
        self.last = ""  # name of the last member read; errors mention it
        self._file = file
        self._broken: CorruptError | None = None

    @property
    def chunk(self) -> tuple[bytes, int]:
        """Return the present chunk, and the position of the next byte in it."""
        return self._chunk, self._at

    def advance(self, place: int) -> None:
        """Move to a later position in the present chunk."""
        self.offset += place - self._at
        self._at = place

    def wants(self, name: str) -> bool:
        """Return whether the bytes of a member with this name are read, not skipped."""
        return True

    def skip(self, size: int) -> None:
        while size and (data := self.read(min(size, 2**20))):
            size -= len(data)

    def block(self) -> bytes | None:
        """Return the block of the next header; None at the end of the archive."""
        start = self.offset
        block = self.read(BLOCK)
        if len(block) == BLOCK:
            return block if block != ZEROS else None
        if self._broken:
            raise self.error(str(self._broken), start)
        if not start:
            raise self.error("is not a tar" if block else "is empty, without even an end-of-archive block", start)
        if block:
            raise self.error("tar is truncated in the middle of a header", start)
        raise self.error("tar has no end-of-archive block: it may be truncated, and lack members", start)

    def check_end(self) -> None:
        """Read the rest of the tar, which must be zeros."""
        while data := self.read(BLOCK):
            if data.strip(b"\0"):
                self._unread(data)
                hint = "if tars were concatenated, convert them one by one"
                raise self.error("there are bytes after the end of the archive", self.offset, hint=hint)
        if self._broken:
            raise self.error(str(self._broken), self.offset)

    def seek_header(self) -> bool:
        """Skip to the next undamaged header; return False if there is none."""
        while len(block := self.read(BLOCK)) == BLOCK:
            if block[257:262] == b"ustar" and parse_header(block):
                self._unread(block)
                return True
        return False

    def truncated(self, start: int, expected: int, found: int, name: bytes) -> CorruptError:
        """Return the error for a member that begins at `start` and has only `found` bytes."""
        if self._broken:
            return self.error(str(self._broken), start, name)
        return self.error("tar is truncated in the middle of this member", start, name, found=found, expected=expected)

    def error(self, message: str, start: int, name: bytes = b"", **fields: object) -> CorruptError:
        place = f"offset {start}"
        if name:
            place = member_place(as_text(name), start)
        elif self.last:
            place += f", after member {printable(self.last)}"
        hint = fields.pop("hint", None)
        return CorruptError(message, file=self._file, place=place, hint=str(hint) if hint else None, **fields)

    def _next_chunk(self) -> bytes:
        try:
            return super()._next_chunk()
        except UnsupportedError as error:
            raise restated(error, file=self._file) from None
        except CorruptError as error:  # raised by the decompression, which ends the stream
            self._broken = error
            return b""

    def _unread(self, data: bytes) -> None:
        self.offset -= len(data)
        if self._at >= len(data):  # it came from this chunk, which may be large
            self._at -= len(data)
        else:
            self._chunk, self._at = data + self._chunk[self._at :], 0


def member_place(name: str, offset: int) -> str:
    """Return the place of a member in its tar, for errors."""
    return f"member {printable(name)}, offset {offset}"


def printable(name: str) -> str:
    """Return `name` in quotes on one line, even if it is not UTF-8. The middle of a very long name is left out."""
    if len(name) > _SHOWN:
        name = f"{name[: _SHOWN // 2]}...{name[-_SHOWN // 4 :]}"
    return repr(name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"))


def as_text(name: bytes) -> str:
    """Return a member's name as text; bytes that are not UTF-8 become surrogates, which a later check refuses."""
    return name.decode("utf-8", "surrogateescape")
