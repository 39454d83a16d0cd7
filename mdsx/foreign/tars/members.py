"""Read the members of a tar, compressed or not, in one strict pass that yields damage as errors.

It reads the output of GNU tar, bsdtar, Python's tarfile and WebDataset: v7, ustar, GNU and pax tars, long names, sparse
members. Python's own tarfile takes a damaged or truncated header for the end of the archive, so it would silently lose
samples. Here

- every header's checksum must match, every member must be complete, and a block of zeros must end the archive. Without
  that block, a tar that ends between two members may have been truncated there;
- only zeros may follow the end, and the stream is read to its end, so that the checksums of gzip and zstd are checked.

Damage is yielded as a CorruptError. If the caller continues, it gets the members from the next undamaged header on.
Directories and volume labels are left out. `TarMember.problem` says why a member has no usable bytes: it is a link or a
device, its value is too large, its name is too long, or it is sparse and nearly all holes. As in Python's tarfile, a
directory is a member of type 5, or an old-style member without bytes whose name ends in a slash. Any other member whose
name ends in a slash is a file, and its bytes are never read as members. Names are only text: no such path is ever
written or read.

A sparse member stores only the pieces between its holes, and a map of their places. GNU tar writes this map in four
ways: in the header (type S), and in pax records of version 0.0, 0.1 and 1.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mdsx.base.decompress import decompress, refuse_compressed
from mdsx.errors import CorruptError
from mdsx.foreign.tars.blocks import (
    BLOCK,
    DIGITS,
    EXTENDED,
    EXTENSION_LIMIT,
    HOLES_RULE,
    RECORDS_RULE,
    VALUE_LIMIT,
    ZEROS,
    Budget,
    Tape,
    TarHeader,
    as_text,
    member_place,
    most_holes,
    octal,
    parse_header,
    parse_records,
    printable,
)
from mdsx.foreign.tars.runs import HeaderRun, TarScan

_NAME_LIMIT = 2**16
_SHARED = {"path", "linkpath", "size"}  # the records of a global header that matter here
_LINKS = {
    b"1": ("a hard link", "pack it with `tar --hard-dereference`"),
    b"2": ("a symbolic link", "pack its target with `tar --dereference`"),
    b"3": ("a character device", ""),
    b"4": ("a block device", ""),
    b"6": ("a FIFO", ""),
}
_UNSPARSE = "pack it without --sparse"
_WORTH = 2**14  # bytes of a chunk in which it is worth looking for a run

SparseMap = list[tuple[int, int]]
"""Offset in the whole member and length of each piece that is stored."""


@dataclass(frozen=True, slots=True)
class TarMember:
    """A member of a tar. `offset` is where its first header starts; `holes` is how many bytes of `data` are not stored.

    `start` is where its bytes begin in the tar, or -1 if it has no bytes or is sparse. `named` is where its name is, or
    -1 if the name is in pieces or in a separate header. A member with a `problem` has no data; `hint` is the way out,
    if any. `skipped`: how many bytes it has, if they were not read.
    """

    name: str
    offset: int
    data: bytes = b""
    problem: str | None = None
    hint: str = ""
    holes: int = 0
    start: int = field(default=-1, compare=False)
    named: int = field(default=-1, compare=False)
    skipped: int = 0

    @property
    def size(self) -> int:
        return len(self.data) + self.skipped

    @property
    def place(self) -> str:
        return member_place(self.name, self.offset)


def member_of(run: HeaderRun, place: int) -> TarMember:
    """Return a member of a run."""
    start = int(run.starts[place])
    data, name = run.bytes_of(place), as_text(run.names[place])
    return TarMember(name, int(run.headers[place]), data, start=start, named=start - BLOCK)


class Runs:
    """Finds runs of ordinary members in the chunks of a tar."""

    def __init__(self) -> None:
        self._scan: TarScan | None = None

    def next(self, tape: Tape) -> HeaderRun | None:
        """Return the run that begins here, inside one chunk, and skip it; None if there is none."""
        chunk, at = tape.chunk
        if len(chunk) - at < _WORTH:
            return None
        if self._scan is None or self._scan.data is not chunk:
            self._scan = TarScan(chunk, at, tape.offset - at)
        found = self._scan.run(at)
        if found is None:
            return None
        run, after = found
        tape.advance(after)
        tape.last = as_text(run.names[-1])
        return run


def read_members(chunks: Iterator[bytes], *, file: str) -> Iterator[TarMember | CorruptError]:
    """Yield the members of the tar in `chunks`, and a CorruptError for each damaged place. `file` is the tar's name.

    Raise UnsupportedError for a compression that mdsx cannot read.
    """
    budget = Budget()
    for item in _read(Tape(decompress(budget.count(chunks)), file, budget), Runs()):
        if isinstance(item, HeaderRun):
            for place in range(len(item.names)):
                yield member_of(item, place)
        else:
            yield item


def read_runs(chunks: Iterator[bytes], *, file: str) -> Iterator[HeaderRun | TarMember | CorruptError]:
    """As `read_members`, but yield consecutive ordinary members as a run.

    Raise UnsupportedError for a compressed tar.
    """
    budget = Budget()
    plain = refuse_compressed(budget.count(chunks), file=file)
    yield from _read(Tape(plain, file, budget), Runs())


def read_headers(tape: Tape) -> Iterator[TarMember | CorruptError]:
    """Yield the members of the tar on `tape`, which may skip their bytes."""
    for item in _read(tape):
        assert not isinstance(item, HeaderRun)
        yield item


def _read(tape: Tape, runs: Runs | None = None) -> Iterator[HeaderRun | TarMember | CorruptError]:
    shared: dict[str, bytes] = {}  # the pax global header
    while True:
        if runs and not shared and (run := runs.next(tape)):
            yield run
            continue
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


def _read_member(tape: Tape, block: bytes, shared: dict[str, bytes]) -> TarMember | None:
    """Return the member whose first header is `block`; None if it is left out."""
    start = tape.offset - BLOCK
    header = parse_header(block)
    long_name, records = b"", list(shared.items())
    while header and header.kind in EXTENDED:
        payload = _payload(tape, header, start, limit=start + EXTENSION_LIMIT - tape.offset)
        if header.kind == b"L":
            long_name = payload.rstrip(b"\0")
        elif header.kind != b"K":
            count = payload.count(b"\n") + payload.count(b",")  # commas separate the entries of a sparse map
            _take_records(tape, start, count)
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
    tape: Tape, header: TarHeader, start: int, long_name: bytes, records: list[tuple[str, bytes]]
) -> TarMember | None:
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
        return TarMember(name, start, problem=f"is {kind}" + _target(header, pax), hint=hint)
    size, pieces, problem, hint = header.size, None, "", ""
    if header.kind not in (b"0", b"\0", b"7", b"S"):
        problem = f"is of type {header.kind!r}"
    elif old_directory:
        problem = f"is a directory in an old tar, but has {header.size:,} bytes"
    elif len(header.name) > _NAME_LIMIT:
        problem = f"has a name of {len(header.name):,} bytes; the limit is {_NAME_LIMIT:,}"
    else:
        size, pieces = _sparse_map(tape, header, start, pax, records)
        if max(header.size, size) >= VALUE_LIMIT:
            problem = f"is too large: {max(header.size, size):,} bytes; a value must be smaller than 4 GiB"
    holes = max(size - header.size, 0)
    if not problem and holes > most_holes(header.size):
        problem = f"is sparse: {size:,} bytes, but only {header.size:,} are stored"
        hint = f"its holes may have {HOLES_RULE}: {_UNSPARSE}"
    if problem:
        tape.skip(-(-header.size // BLOCK) * BLOCK)
        return None if header.kind in (b"D", b"V") else TarMember(name, start, problem=problem, hint=hint)
    at = tape.offset
    named = at - BLOCK if header.block[:100].partition(b"\0")[0] == header.name else -1
    if pieces is None and not tape.wants(name):
        tape.skip(-(-header.size // BLOCK) * BLOCK)
        if tape.offset - at < header.size:
            raise tape.truncated(start, header.size, tape.offset - at, header.name)
        return TarMember(name, start, start=at, named=named, skipped=header.size)
    data = _payload(tape, header, start, limit=VALUE_LIMIT)
    if pieces is None:
        return TarMember(name, start, data, start=at, named=named)
    if not tape.budget.take_holes(holes):
        total, stored = tape.budget.holes + holes, tape.budget.stored
        problem = f"is sparse: with it, the tar's holes have {total:,} bytes, but only {stored:,} are stored"
        return TarMember(name, start, problem=problem, hint=f"a tar's holes may have {HOLES_RULE}: {_UNSPARSE}")
    return TarMember(name, start, _expanded(tape, header, start, pax, pieces, data, size), holes=holes)


def _payload(tape: Tape, header: TarHeader, start: int, *, limit: int) -> bytes:
    """Return the bytes after `header`, and skip their padding."""
    if header.size > limit:
        raise tape.error("size of an extended header is damaged", start, found=header.size)
    data = tape.read(header.size)
    if len(data) < header.size:
        raise tape.truncated(start, header.size, len(data), header.name)
    tape.read(-header.size % BLOCK)
    return data


def _decimal(tape: Tape, start: int, value: bytes) -> int:
    if not value.isdigit() or len(value) > DIGITS:
        raise tape.error("pax header is damaged", start, found=repr(value[:80]))
    return int(value)


def _target(header: TarHeader, pax: dict[str, bytes]) -> str:
    link = pax.get("linkpath") or header.link
    return f" to {printable(as_text(link))}, and has no bytes of its own" if link else ""


def _take_records(tape: Tape, start: int, count: int) -> None:
    if not tape.budget.take_records(count):
        hint = f"the limit is {RECORDS_RULE}"
        raise tape.error("the tar's headers and sparse maps have too many records", start, hint=hint)


# --- sparse members


def _sparse_map(
    tape: Tape, header: TarHeader, start: int, pax: dict[str, bytes], records: list[tuple[str, bytes]]
) -> tuple[int, SparseMap | None]:
    """Return the full size and the map of a sparse member, or the stored size and None of another member."""
    try:
        if header.kind == b"S":
            pieces, more, map_start = _header_entries(header.block[386:482]), header.block[482], tape.offset
            while more:
                if tape.offset - map_start > EXTENSION_LIMIT:
                    raise ValueError("endless")
                block = tape.read(BLOCK).ljust(BLOCK, b"\0")
                _take_records(tape, start, len(block) // 24)
                pieces += _header_entries(block[:504])
                more = block[504]
            return octal(header.block[483:495]), pieces
        if "GNU.sparse.major" in pax:
            return _decimal(tape, start, pax["GNU.sparse.realsize"]), []
        if "GNU.sparse.size" in pax:
            return _decimal(tape, start, pax["GNU.sparse.size"]), _pax_pieces(records)
    except (KeyError, ValueError):
        raise tape.error("map of a sparse member is damaged", start, header.name) from None
    return header.size, None


def _header_entries(fields: bytes) -> SparseMap:
    """Return the entries of the map in a type S header or its continuation: pairs of 12-byte octal numbers."""
    pairs = [fields[start : start + 24] for start in range(0, len(fields) // 24 * 24, 24)]
    return [(octal(pair[:12]), octal(pair[12:])) for pair in pairs if pair[:1] != b"\0"]


def _pax_pieces(records: Sequence[tuple[str, bytes]]) -> SparseMap:
    """Return the map in pax records of version 0.0 or 0.1; empty if there is none."""
    numbers: list[int] = []
    for key, value in records:
        if key == "GNU.sparse.map":
            numbers = [_number(number) for number in value.split(b",") if number]
        elif key in ("GNU.sparse.offset", "GNU.sparse.numbytes"):
            numbers.append(_number(value))
    return _paired(numbers)


def _expanded(
    tape: Tape, header: TarHeader, start: int, pax: dict[str, bytes], pieces: SparseMap, data: bytes, size: int
) -> bytes:
    """Return all `size` bytes of a sparse member that stores `data`."""
    try:
        if pax.get("GNU.sparse.major") == b"1":
            count = _number(data[: DIGITS + 1].partition(b"\n")[0])
            if 4 * count > min(len(data), EXTENSION_LIMIT):  # an entry has at least two digits and two line feeds
                raise ValueError(f"its map claims {count:,} pieces")
            _take_records(tape, start, count)
            pieces, data = _split_stored_map(data)
        return _with_holes(pieces, data, size)
    except ValueError as error:
        raise tape.error(f"sparse member is damaged: {error}", start, header.name) from None


def _split_stored_map(stored: bytes) -> tuple[SparseMap, bytes]:
    """Return the map of pax version 1.0, which precedes the data as lines of decimal digits, and the data."""
    count, _, rest = stored[:EXTENSION_LIMIT].partition(b"\n")
    lines = rest.split(b"\n", 2 * _number(count))[: 2 * _number(count)]
    size = len(count) + 1 + sum(len(line) + 1 for line in lines)
    return _paired([_number(line) for line in lines]), stored[-(-size // BLOCK) * BLOCK :]


def _with_holes(pieces: SparseMap, stored: bytes, size: int) -> bytes:
    """Return `size` bytes: `stored` cut into `pieces`, zeros elsewhere."""
    parts: list[bytes] = []
    used = end = 0
    for offset, length in pieces:
        if offset < end or offset + length > size:
            raise ValueError("its pieces overlap or exceed its size")
        parts += [bytes(offset - end), stored[used : used + length]]
        used, end = used + length, offset + length
    if used != len(stored):
        raise ValueError("its pieces and its stored bytes differ in size")
    return b"".join([*parts, bytes(size - end)])


def _number(digits: bytes) -> int:
    if len(digits) > DIGITS or not digits.isdigit():
        raise ValueError("its map contains something other than numbers")
    return int(digits)


def _paired(numbers: list[int]) -> SparseMap:
    return list(zip(numbers[::2], numbers[1::2], strict=True))
