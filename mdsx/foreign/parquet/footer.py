"""The footer of a Parquet file: its schema, and where the column chunks of each row group are.

mdsx parses its Thrift, and checks offsets and counts before any data is requested. pyarrow reads its schema, with
limits on sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from mdsx.errors import CorruptError, FormatError, UnsupportedError
from mdsx.foreign.arrow import pa
from mdsx.foreign.parquet.metadata import START, STORED, Metadata, parse_metadata
from mdsx.foreign.parquet.text import MAX_FOOTER_SIZE
from mdsx.format import Range

MAGIC, ENCRYPTED = b"PAR1", b"PARE"
TAIL_SIZE = 8
"""Bytes at the end of a file that locate its footer."""

_FIRST = 2**16  # bytes at the end of a file that are read first: most footers are smaller

_STRINGS, _ITEMS = MAX_FOOTER_SIZE, 2**22  # the largest strings and lists in a footer


@dataclass(frozen=True, slots=True, eq=False)
class Footer:
    """A parsed and checked footer."""

    file: str
    offset: int
    parsed: Any
    """pyarrow's FileMetaData, to decode with. Do not ask it for row groups: see `thrift`."""
    schema: Any
    """pyarrow.Schema"""
    metadata: Metadata
    groups: tuple[int, ...]
    """The numbers of the row groups that have rows."""

    @property
    def size(self) -> int:
        """Return the approximate bytes in memory."""
        return int(self.parsed.serialized_size) + self.metadata.chunks.nbytes

    @property
    def leaves(self) -> dict[str, range]:
        """Return column -> the numbers of its column chunks."""
        return self.metadata.leaves

    def rows(self, group: int) -> int:
        """Return the number of rows of a row group."""
        return int(self.metadata.rows[group])

    def check_rows(self, group: int, rows: int) -> None:
        """Raise CorruptError if a row group's column chunks have another number of rows than the footer says."""
        if rows != self.rows(group):
            message = "the number of rows in its column chunks differs from the footer"
            raise CorruptError(
                message, file=self.file, place=f"row group {group}", found=rows, expected=self.rows(group)
            )

    def chunks(self, group: int, leaves: Iterable[int]) -> list[Range]:
        """Return the bytes of some column chunks of a row group."""
        found = self.metadata.chunks[group, list(leaves)]
        starts = found[:, START].tolist()
        return [(start, start + size) for start, size in zip(starts, found[:, STORED].tolist(), strict=True)]


def read_footer(get: Callable[[int, int], bytes], *, size: int, file: str) -> tuple[Footer, bytes]:
    """Return the footer of a file of `size` bytes, and its bytes. `get(start, stop)` returns bytes of the file.

    Raise CorruptError or UnsupportedError.
    """
    start = max(size - _FIRST, 0)
    tail = get(start, size) if size else b""
    offset = footer_offset(tail, size=size, file=file)
    data = tail[offset - start :] if offset >= start else get(offset, size)
    return parse_footer(data, offset=offset, file=file), data


def footer_offset(tail: bytes, *, size: int, file: str) -> int:
    """Return the offset of the footer in a file of `size` bytes that ends with `tail` (8 bytes or more)."""
    if size < len(MAGIC) + TAIL_SIZE or len(tail) < TAIL_SIZE:
        message = "the file is empty" if size == 0 else "the file is too short to be a Parquet file"
        raise CorruptError(message, file=file, found=f"{size} bytes")
    magic = bytes(tail[-4:])
    if magic == ENCRYPTED:
        raise UnsupportedError("the file is encrypted", file=file, hint="write it again without encryption")
    if magic != MAGIC:
        message = "not a Parquet file, or truncated: it does not end with PAR1"
        raise CorruptError(message, file=file, place="last 4 bytes", found=magic.hex(" "), expected=MAGIC.hex(" "))
    length = int.from_bytes(tail[-TAIL_SIZE:-4], "little")
    if not 0 < length <= size - len(MAGIC) - TAIL_SIZE:
        message = "the footer is larger than the file" if length else "the footer is empty"
        raise CorruptError(message, file=file, place="footer length", found=length, expected=f"below {size}")
    if length > MAX_FOOTER_SIZE - TAIL_SIZE:
        hint = "write files with fewer row groups or columns"
        raise UnsupportedError(
            "the footer is too large", file=file, found=length, expected="at most 256 MiB", hint=hint
        )
    return size - TAIL_SIZE - length


def parse_footer(data: bytes, *, offset: int, file: str) -> Footer:
    """Return the footer in `data`, all bytes of a file from `offset` on. Raise CorruptError or UnsupportedError."""
    metadata = parse_metadata(data[:-TAIL_SIZE], file=file)
    groups = np.flatnonzero(metadata.rows)
    starts, sizes = metadata.chunks[groups, :, START], metadata.chunks[groups, :, STORED]
    inside = (starts >= len(MAGIC)) & (sizes > 0) & (sizes <= offset - starts)
    if not inside.all():
        place, leaf = np.argwhere(~inside)[0].tolist()
        raise CorruptError(
            "the footer places a column chunk outside the data",
            file=file,
            place=f"row group {groups[place]}, column chunk {leaf}",
            found=f"{sizes[place, leaf]} bytes from {starts[place, leaf]} on",
            expected=f"within [{len(MAGIC)}, {offset})",
        )
    with readable(file, "footer"):
        opened = open_file(pa.BufferReader(MAGIC + data), None)
        parsed, schema = opened.metadata, opened.schema_arrow
    if schema.names != [*metadata.leaves] or parsed.num_columns != metadata.chunks.shape[1]:
        raise CorruptError("its columns differ from its schema", file=file, place="footer")
    return Footer(file, offset, parsed, schema, metadata, tuple(groups.tolist()))


def open_file(source: Any, metadata: Any) -> Any:
    """Return a pyarrow.parquet.ParquetFile that checks page checksums and starts no threads."""
    from pyarrow.parquet import ParquetFile

    return ParquetFile(
        source,
        metadata=metadata,
        pre_buffer=False,
        coerce_int96_timestamp_unit="us",  # in nanoseconds, the default, years after 2262 would be wrong
        page_checksum_verification=True,
        thrift_string_size_limit=_STRINGS,
        thrift_container_size_limit=_ITEMS,
    )


@contextmanager
def readable(file: str, place: str) -> Iterator[None]:
    """Convert errors of pyarrow to ours."""
    try:
        yield
    except FormatError:
        raise
    except (pa.ArrowException, OSError, ValueError, LookupError, TypeError, ArithmeticError) as error:
        raise unreadable(error, file, place) from None
    except (MemoryError, RecursionError):
        raise CorruptError("it claims too much memory or depth", file=file, place=place) from None


def unreadable(error: Exception, file: str, place: str) -> FormatError:
    """Convert an error of pyarrow to ours."""
    text = " ".join(str(error).split())[:300]
    if "ncrypt" in text:
        return UnsupportedError("it is encrypted", file=file, place=place, hint="write it again without encryption")
    if isinstance(error, pa.ArrowNotImplementedError):
        return UnsupportedError(f"pyarrow cannot read it: {text}", file=file, place=place)
    return CorruptError(f"it cannot be read: {text}", file=file, place=place)
