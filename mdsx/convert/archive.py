"""Chunks of a tar, compressed or not -> its members, in order, in one pass; strict, and with damage as values.

Reads what GNU tar, bsdtar, Python's tarfile and WebDataset write: v7, ustar, GNU and pax, long names, sparse members.
Python's own tarfile takes a damaged or cut header for the end of the archive, so it would lose samples in silence. Here

- every header's checksum must be right, every member whole, and the archive closed by a block of zeros. One that ends
  without, be it between two members, may have been cut, and nobody could tell;
- behind the end there are only zeros, and the stream is read to its end, so that gzip's and zstd's checksums are too.

Each damage comes out in its place as a CorruptError; who goes on gets what follows from the next sound header on.
Directories and volume labels are left out. A member that has no bytes of its own (a link, a device) says so in
`problem`; so does one too large to be a value, one whose name is too long, and a sparse one that is nearly all holes
(`budget.py`). Only a directory of type 5, or an old one without bytes, is a directory: as for Python's tarfile, a
regular member whose name ends in a slash is a file, and its bytes are never read as members. Names are text: nothing
is ever written to them, or read from where they lead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mdsx.convert import sparse
from mdsx.convert.budget import RULE, Budget, most_holes
from mdsx.convert.decompress import decompress
from mdsx.convert.headers import BLOCK, Header, octal, parse_header, parse_records
from mdsx.convert.tape import ZEROS, Tape, as_text, member_place, printable
from mdsx.errors import CorruptError

_EXTENSION_LIMIT = 2**20  # extended headers of one member, and sparse maps: beyond it is damage, not a name
_VALUE_LIMIT = 2**32 - 1  # what a column's value stays below
_NAME_LIMIT = 2**16
_SHARED = {"path", "linkpath", "size"}  # records of a global header that mean something here
_LINKS = {
    b"1": ("a hard link", "pack it with `tar --hard-dereference`"),
    b"2": ("a symbolic link", "pack what it leads to with `tar --dereference`"),
    b"3": ("a character device", ""),
    b"4": ("a block device", ""),
    b"6": ("a FIFO", ""),
}
_UNSPARSE = "pack it without --sparse"


@dataclass(frozen=True, slots=True)
class Member:
    """One member; `offset` is where its first header starts. With a `problem` there are no bytes to be had.

    `holes` are the bytes of `data` that are not stored. `hint` is the way out of the problem, where there is one.
    """

    name: str
    offset: int
    data: bytes = b""
    problem: str | None = None
    hint: str = ""
    holes: int = 0

    @property
    def place(self) -> str:
        return member_place(self.name, self.offset)


def read_members(chunks: Iterator[bytes], *, file: str) -> Iterator[Member | CorruptError]:
    """The members of the tar in `chunks`, and a CorruptError for each damage. `file` is its name for those."""
    budget = Budget()
    tape = Tape(decompress(budget.count(chunks)), file, budget)
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


def _read_member(tape: Tape, block: bytes, shared: dict[str, bytes]) -> Member | None:
    """The member whose first header is `block`; None for one that is left out."""
    start = tape.offset - BLOCK
    header = parse_header(block)
    long_name, records = b"", list(shared.items())
    while header and header.kind in (b"x", b"X", b"g", b"L", b"K"):
        payload = _payload(tape, header, start, limit=start + _EXTENSION_LIMIT - tape.offset)
        if header.kind == b"L":
            long_name = payload.rstrip(b"\0")
        elif header.kind != b"K":
            _take_records(
                tape, start, payload.count(b"\n") + payload.count(b",")
            )  # entries of a sparse map have commas
            parsed = parse_records(payload)
            if parsed is None:
                raise tape.error("pax header is damaged", start)
            if header.kind == b"g":
                parsed = [(key, value) for key, value in parsed if key in _SHARED]
                shared.update(parsed)
            records += parsed
        header = parse_header(tape.block() or ZEROS)
    if header is None:
        first = start == 0 and tape.offset == BLOCK
        raise tape.error("is not a tar" if first else "header is damaged", start if first else tape.offset - BLOCK)
    return _with_records(tape, header, start, long_name, records)


def _with_records(
    tape: Tape, header: Header, start: int, long_name: bytes, records: list[tuple[str, bytes]]
) -> Member | None:
    pax = dict(records)
    short_name = header.name
    header = header._replace(name=pax.get("GNU.sparse.name") or pax.get("path") or long_name or header.name)
    if "size" in pax:
        header = header._replace(size=_decimal(tape, start, pax["size"]))
    old_directory = header.kind == b"\0" and short_name.endswith(b"/")
    if header.kind == b"5" or (old_directory and not header.size):
        return None
    name = as_text(header.name[:_NAME_LIMIT])
    if header.kind in _LINKS:
        kind, hint = _LINKS[header.kind]
        return Member(name, start, problem=f"is {kind}" + _target(header, pax), hint=hint)
    size, pieces, problem, hint = header.size, None, "", ""
    if header.kind not in (b"0", b"\0", b"7", b"S"):
        problem = f"is of type {header.kind!r}"
    elif old_directory:
        problem = f"is a directory in the way of old tars, but has {header.size:,} bytes"
    elif len(header.name) > _NAME_LIMIT:
        problem = f"has a name of {len(header.name):,} bytes; a name has at most {_NAME_LIMIT:,}"
    else:
        size, pieces = _sparse_map(tape, header, start, pax, records)
        if max(header.size, size) >= _VALUE_LIMIT:
            problem = f"is too large: {max(header.size, size):,} bytes; a value stays below 4 GiB"
    holes = max(size - header.size, 0)
    if not problem and holes > most_holes(header.size):
        problem = f"is sparse: {size:,} bytes, of which only {header.size:,} are stored"
        hint = f"its holes may have {RULE}: {_UNSPARSE}"
    if problem:
        tape.skip(-(-header.size // BLOCK) * BLOCK)
        return None if header.kind in (b"D", b"V") else Member(name, start, problem=problem, hint=hint)
    data = _payload(tape, header, start, limit=_VALUE_LIMIT)
    if pieces is None:
        return Member(name, start, data)
    if not tape.budget.take_holes(holes):
        total, stored = tape.budget.holes + holes, tape.budget.stored
        problem = f"is sparse: with it, holes of the tar have {total:,} bytes, of which only {stored:,} are stored"
        return Member(name, start, problem=problem, hint=f"a tar's holes may have {RULE}: {_UNSPARSE}")
    return Member(name, start, _expanded(tape, header, start, pax, pieces, data, size), holes=holes)


def _expanded(
    tape: Tape, header: Header, start: int, pax: dict[str, bytes], pieces: sparse.Pieces, data: bytes, size: int
) -> bytes:
    """The whole of a sparse member of `size` bytes, of which `data` are stored."""
    try:
        if pax.get("GNU.sparse.major") == b"1":
            _take_records(tape, start, sparse.stored_pieces(data))
            pieces, data = sparse.split_stored_map(data)
        return sparse.expand(pieces, data, size)
    except ValueError as error:
        raise tape.error(f"sparse member is damaged: {error}", start, header.name) from None


def _take_records(tape: Tape, start: int, count: int) -> None:
    if not tape.budget.take_records(count):
        hint = "a tar may have 262,144 of them, and one for each byte that is stored"
        raise tape.error("the tar's headers and sparse maps have too many records", start, hint=hint)


def _sparse_map(
    tape: Tape, header: Header, start: int, pax: dict[str, bytes], records: list[tuple[str, bytes]]
) -> tuple[int, sparse.Pieces | None]:
    """Whole size and map of a sparse member; its stored size and None where it is not sparse."""
    try:
        if header.kind == b"S":
            pieces, more, map_start = sparse.header_entries(header.block[386:482]), header.block[482], tape.offset
            while more:
                if tape.offset - map_start > _EXTENSION_LIMIT:
                    raise ValueError("endless")
                block = tape.read(BLOCK).ljust(BLOCK, b"\0")
                _take_records(tape, start, len(block) // 24)
                pieces += sparse.header_entries(block[:504])
                more = block[504]
            return octal(header.block[483:495]), pieces
        if "GNU.sparse.major" in pax:
            return _decimal(tape, start, pax["GNU.sparse.realsize"]), []
        if "GNU.sparse.size" in pax:
            return _decimal(tape, start, pax["GNU.sparse.size"]), sparse.pax_pieces(records) or []
    except (KeyError, ValueError):
        raise tape.error("map of a sparse member is damaged", start, header.name) from None
    return header.size, None


def _payload(tape: Tape, header: Header, start: int, *, limit: int) -> bytes:
    """The bytes that follow `header`; the padding behind them is taken too."""
    if header.size > limit:
        raise tape.error("size of an extended header is damaged", start, found=header.size)
    data = tape.read(header.size)
    if len(data) < header.size:
        raise tape.cut(start, header.size, len(data), header.name)
    tape.read(-header.size % BLOCK)
    return data


def _decimal(tape: Tape, start: int, value: bytes) -> int:
    if not value.isdigit() or len(value) > 20:
        raise tape.error("pax header is damaged", start, found=repr(value[:80]))
    return int(value)


def _target(header: Header, pax: dict[str, bytes]) -> str:
    link = pax.get("linkpath") or header.link
    return f" to {printable(as_text(link))}, whose bytes are elsewhere" if link else ""
