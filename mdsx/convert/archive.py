"""Chunks of a tar, compressed or not -> its members, in order, in one pass; strict, and with damage as values.

Reads what GNU tar, bsdtar, Python's tarfile and WebDataset write: v7, ustar, GNU and pax, long names, sparse members.
Python's own tarfile takes a damaged or cut header for the end of the archive, so it would lose samples in silence. Here

- every header's checksum must be right, every member whole, and the archive closed by a block of zeros. One that ends
  without, be it between two members, may have been cut, and nobody could tell;
- behind the end there are only zeros, and the stream is read to its end, so that gzip's and zstd's checksums are too.

Each damage comes out in its place as a CorruptError; who goes on gets what follows from the next sound header on.
Directories and volume labels are left out. A member that has no bytes of its own (a link, a device) says so in
`problem`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from mdsx.convert import sparse
from mdsx.convert.decompress import decompress
from mdsx.convert.sparse import BLOCK, octal
from mdsx.errors import CorruptError, FormatError

_ZEROS = bytes(BLOCK)
_EXTENSION_LIMIT = 2**20  # a pax record or long name beyond it is damage, not a name
_VALUE_LIMIT = 2**32 - 1  # what a column's value stays below
_LINKS = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a character device",
    b"4": "a block device",
    b"6": "a FIFO",
}


@dataclass(frozen=True, slots=True)
class Member:
    """One member; `offset` is where its first header starts. With a `problem` there are no bytes to be had."""

    name: str
    offset: int
    data: bytes = b""
    problem: str | None = None

    @property
    def place(self) -> str:
        return f"member {printable(self.name)}, offset {self.offset}"


def printable(name: str) -> str:
    """`name` quoted, on one line, also where it is not UTF-8."""
    return repr(name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"))


def read_members(chunks: Iterator[bytes], *, file: str) -> Iterator[Member | CorruptError]:
    """The members of the tar in `chunks`, and a CorruptError for each damage. `file` is its name for those."""
    tape = _Tape(decompress(chunks), file)
    shared: dict[str, bytes] = {}  # the pax global header
    while True:
        try:
            block = tape.block()
            if block is None:
                tape.check_end()
                return
            member = _read_member(tape, block, shared)
        except CorruptError as error:
            yield error
            if not tape.seek_header():
                return
        else:
            if member:
                tape.last = member.name
                yield member


class _Header(NamedTuple):
    name: bytes
    size: int
    kind: bytes
    link: bytes
    block: bytes


class _Tape:
    """The tar's bytes, in order; `offset` counts those taken."""

    def __init__(self, chunks: Iterator[bytes], file: str) -> None:
        self.offset = 0
        self.last = ""  # the last member read, to say where damage is
        self._chunks, self._file = chunks, file
        self._chunk, self._at = b"", 0
        self._broken: FormatError | None = None

    def read(self, size: int) -> bytes:
        """The next `size` bytes; fewer where the tar ends."""
        end = self._at + size
        if end <= len(self._chunk):
            data, self._at = self._chunk[self._at : end], end
        else:
            parts = [self._chunk[self._at :]]
            missing = size - len(parts[0])
            self._chunk, self._at = b"", 0
            while missing and (chunk := self._next_chunk()):
                parts.append(chunk[:missing])
                if len(chunk) > missing:
                    self._chunk, self._at = chunk, missing
                missing -= len(parts[-1])
            data = b"".join(parts)
        self.offset += len(data)
        return data

    def skip(self, size: int) -> None:
        while size and (data := self.read(min(size, 2**20))):
            size -= len(data)

    def block(self) -> bytes | None:
        """The next header's block; None at the archive's end."""
        start = self.offset
        block = self.read(BLOCK)
        if len(block) == BLOCK:
            return block if block != _ZEROS else None
        if self._broken:
            raise self.error(str(self._broken), start)
        if not start:
            raise self.error("is not a tar" if block else "is empty, not even a tar's end", start)
        if block:
            raise self.error("tar is cut in the middle of a header", start)
        raise self.error("tar is not closed by zeros: it may be cut, and members may be missing", start)

    def check_end(self) -> None:
        """Read what follows the end of the archive, which must be zeros."""
        while data := self.read(BLOCK):
            if data.strip(b"\0"):
                self._unread(data)
                hint = "tars concatenated? convert them one by one"
                raise self.error("there are bytes behind the tar's end", self.offset, hint=hint)
        if self._broken:
            raise self.error(str(self._broken), self.offset)

    def seek_header(self) -> bool:
        """Go to the next block that is a sound header; False if there is none."""
        while len(block := self.read(BLOCK)) == BLOCK:
            if block[257:262] == b"ustar" and _parse(block):
                self._unread(block)
                return True
        return False

    def cut(self, start: int, expected: int, found: int, name: bytes) -> CorruptError:
        """The error for a member, begun at `start`, of which only `found` bytes are there."""
        if self._broken:
            return self.error(str(self._broken), start, name)
        return self.error("tar is cut in the middle of this member", start, name, found=found, expected=expected)

    def error(self, message: str, start: int, name: bytes = b"", **fields: object) -> CorruptError:
        place = f"offset {start}"
        if name:
            place = Member(_text(name), start).place
        elif self.last:
            place += f", behind member {printable(self.last)}"
        hint = fields.pop("hint", None)
        return CorruptError(message, file=self._file, place=place, hint=str(hint) if hint else None, **fields)

    def _next_chunk(self) -> bytes:
        try:
            return next((chunk for chunk in self._chunks if chunk), b"")
        except FormatError as error:  # by the decompression: nothing follows
            self._broken = error
            return b""

    def _unread(self, data: bytes) -> None:
        self._chunk, self._at = data + self._chunk[self._at :], 0
        self.offset -= len(data)


def _read_member(tape: _Tape, block: bytes, shared: dict[str, bytes]) -> Member | None:
    """The member whose first header is `block`; None for one that is left out."""
    start = tape.offset - BLOCK
    header = _parse(block)
    long_name, records = b"", list(shared.items())
    while header and header.kind in (b"x", b"X", b"g", b"L", b"K"):
        payload = _payload(tape, header, start, limit=_EXTENSION_LIMIT)
        if header.kind == b"L":
            long_name = payload.rstrip(b"\0")
        elif header.kind != b"K":
            parsed = _pax_records(payload)
            if parsed is None:
                raise tape.error("pax header is damaged", start)
            if header.kind == b"g":
                shared.update(parsed)
            records += parsed
        header = _parse(tape.block() or _ZEROS)
    if header is None:
        first = start == 0 and tape.offset == BLOCK
        raise tape.error("is not a tar" if first else "header is damaged", start if first else tape.offset - BLOCK)
    return _with_records(tape, header, start, long_name, records)


def _with_records(
    tape: _Tape, header: _Header, start: int, long_name: bytes, records: list[tuple[str, bytes]]
) -> Member | None:
    pax = dict(records)
    header = header._replace(name=pax.get("GNU.sparse.name") or pax.get("path") or long_name or header.name)
    name = _text(header.name)
    if "size" in pax:
        header = header._replace(size=_decimal(tape, start, pax["size"]))
    if header.kind == b"5" or (header.kind in (b"0", b"\0") and name.endswith("/")):
        return None
    if header.kind in _LINKS:
        return Member(name, start, problem=f"is {_LINKS[header.kind]}" + _target(header, pax))
    if header.kind not in (b"0", b"\0", b"7", b"S"):
        tape.skip(-(-header.size // BLOCK) * BLOCK)
        return None if header.kind in (b"D", b"V") else Member(name, start, problem=f"is of type {header.kind!r}")
    size, pieces = _sparse_map(tape, header, start, pax, records)
    if max(header.size, size) >= _VALUE_LIMIT:
        tape.skip(-(-header.size // BLOCK) * BLOCK)
        return Member(name, start, problem=f"is too large: {max(header.size, size):,} bytes; a value stays below 4 GiB")
    data = _payload(tape, header, start, limit=_VALUE_LIMIT)
    if pieces is not None:
        try:
            if pax.get("GNU.sparse.major") == b"1":
                pieces, data = sparse.split_stored_map(data)
            data = sparse.expand(pieces, data, size)
        except ValueError as error:
            raise tape.error(f"sparse member is damaged: {error}", start, header.name) from None
    return Member(name, start, data)


def _sparse_map(
    tape: _Tape, header: _Header, start: int, pax: dict[str, bytes], records: list[tuple[str, bytes]]
) -> tuple[int, sparse.Pieces | None]:
    """Whole size and map of a sparse member; its stored size and None where it is not sparse."""
    try:
        if header.kind == b"S":
            pieces, more = sparse.header_entries(header.block[386:482]), header.block[482]
            while more:
                block = tape.read(BLOCK).ljust(BLOCK, b"\0")
                pieces, more = pieces + sparse.header_entries(block[:504]), block[504]
            return octal(header.block[483:495]), pieces
        if "GNU.sparse.major" in pax:
            return int(pax["GNU.sparse.realsize"]), []
        if "GNU.sparse.size" in pax:
            return int(pax["GNU.sparse.size"]), sparse.pax_pieces(records) or []
    except (KeyError, ValueError):
        raise tape.error("map of a sparse member is damaged", start, header.name) from None
    return header.size, None


def _payload(tape: _Tape, header: _Header, start: int, *, limit: int) -> bytes:
    """The bytes that follow `header`; the padding behind them is taken too."""
    if header.size > limit:
        raise tape.error("size of an extended header is damaged", start, found=header.size)
    data = tape.read(header.size)
    if len(data) < header.size:
        raise tape.cut(start, header.size, len(data), header.name)
    tape.read(-header.size % BLOCK)
    return data


def _parse(block: bytes) -> _Header | None:
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
    return _Header(name, size, block[156:157], block[157:257].partition(b"\0")[0], block)


def _pax_records(payload: bytes) -> list[tuple[str, bytes]] | None:
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


def _decimal(tape: _Tape, start: int, value: bytes) -> int:
    if not value.isdigit():
        raise tape.error("pax header is damaged", start, found=repr(value))
    return int(value)


def _target(header: _Header, pax: dict[str, bytes]) -> str:
    link = pax.get("linkpath") or header.link
    return f" to {printable(_text(link))}, whose bytes are elsewhere" if link else ""


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
