"""The text of `_mdsx-parquet.json`: the facts about a set of Parquet files that need not be read from the files.

It begins with `{"format":"mdsx-parquet","version":1,` and ends with `,"checksum":"<16 digits>"}` and a line feed. The
checksum is XXH3-64 of all bytes before it, and is checked before anything is parsed. Files are in the order of the
samples, and so are the row groups that have rows; other row groups are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from mdsx.errors import UnsupportedError, UsageError
from mdsx.format import MAX_SHARDS, FileIndexParser, Schema, seal_file_index

INDEX_KEY = "_mdsx-parquet.json"
"""The underscore makes Spark, pyarrow, Polars and DuckDB ignore it."""
VERSION = 1
AGAIN = "run `mdsx index parquet` again"
MAX_FOOTER_SIZE = 2**28
MAX_ROWS = 2**31
"""The most rows of a row group."""
MAX_HEAP = 2**40
"""The largest estimate of a row group's heap: far more than can be decoded, but sums do not overflow."""

_Number = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
_Rows = Annotated[int, msgspec.Meta(ge=1, le=MAX_ROWS)]
_Heap = Annotated[int, msgspec.Meta(ge=0, le=MAX_HEAP)]


@dataclass(frozen=True, slots=True)
class IndexedColumn:
    """A column's name and type, the text of its Arrow type in the first file, and its bytes in all files: `stored`
    bytes, and estimated bytes in the `heap` of decoded shards (0 for a fixed-size type). `classes`: the class names for
    its numbers; omitted from the text if there are none."""

    name: str
    type: str
    arrow: str
    stored: int
    heap: int
    classes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexedGroup:
    """A row group: its rows, its byte range [start, stop) in the file, the bytes of its column chunks, and the
    estimated bytes of their variable-size values in the heap of a decoded shard."""

    rows: int
    start: int
    stop: int
    stored: int
    heap: int


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A Parquet file: its key, size and ETag ("" if its storage is a disk), the offset and the XXH3-128 of its footer
    (all bytes from the offset on), and its row groups that have rows."""

    name: str
    size: int
    etag: str
    footer: int
    hash: str
    groups: tuple[IndexedGroup, ...]


def build_text(columns: Sequence[IndexedColumn], files: Sequence[IndexedFile]) -> bytes:
    """Return the text of an index. Raise UsageError if there are too many row groups."""
    groups = list(chain.from_iterable(file.groups for file in files))
    if len(groups) > MAX_SHARDS:
        hint = "write larger row groups, or index fewer files at a time"
        raise UsageError("too many row groups", found=len(groups), expected=f"at most {MAX_SHARDS} (2^22)", hint=hint)
    members = {
        "format": "mdsx-parquet",
        "version": VERSION,
        "columns": [
            {name: getattr(each, name) for name in each.__slots__ if name != "classes" or each.classes}
            for each in columns
        ],
        "samples": sum(group.rows for group in groups),
        "files": {
            "name": [file.name for file in files],
            "size": [file.size for file in files],
            "etag": [file.etag for file in files],
            "footer": [file.footer for file in files],
            "xxh3_128": "".join(file.hash for file in files),
            "groups": [len(file.groups) for file in files],
        },
        "groups": {name: [getattr(each, name) for each in groups] for name in IndexedGroup.__slots__},
    }
    return seal_file_index(members)


class _Column(msgspec.Struct):
    name: str
    type: str
    arrow: str
    stored: _Number
    heap: _Number
    classes: list[str] = []


class _Files(msgspec.Struct):
    name: list[str]
    size: list[_Number]
    etag: list[str]
    footer: list[_Number]
    xxh3_128: str
    groups: list[_Number]


class _Groups(msgspec.Struct):
    rows: list[_Rows]
    start: list[_Number]
    stop: list[_Number]
    stored: list[_Number]
    heap: list[_Heap]


class _Root(msgspec.Struct):
    columns: list[_Column]
    samples: _Number
    files: _Files
    groups: _Groups


_ROOT = msgspec.json.Decoder(_Root)  # prepared here, because msgspec crashes if two threads do so at once


@dataclass(frozen=True, slots=True, eq=False)
class Parsed:
    """A parsed index: its schema, columns, and arrays of its F files and G row groups that have rows."""

    schema: Schema
    types: tuple[str, ...]
    """For each column, as the following two: see `IndexedColumn`."""
    stored: tuple[int, ...]
    heap: tuple[int, ...]
    classes: dict[str, list[str]]
    """Column -> its class names, if it has any."""
    names: tuple[str, ...]
    etags: tuple[str, ...]
    sizes: NDArray[np.int64]
    """int64 [F]"""
    footers: NDArray[np.int64]
    """int64 [F]"""
    hashes: NDArray[np.uint8]
    """uint8 [F, 16]"""
    firsts: NDArray[np.int64]
    """int64 [F + 1]: the number of each file's first row group that has rows, and of all."""
    groups: dict[str, NDArray[np.int64]]
    """Attribute of `IndexedGroup` -> int64 [G]."""


def recognizes(data: bytes) -> bool:
    """Return whether this is an index of Parquet files, even a damaged one."""
    return data.startswith(b'{"format":"mdsx-parquet"')


def parse_text(data: bytes, *, file: str | None = None) -> Parsed:
    """Parse the text of an index. Raise CorruptError or UnsupportedError."""
    return _Parser(file).parse(data)


class _Parser(FileIndexParser):
    FORMAT, VERSION, FILES, AGAIN = "mdsx-parquet", VERSION, "Parquet files", AGAIN

    def parse(self, data: bytes) -> Parsed:
        root = self._decode(data, _ROOT)
        schema = Schema.from_pairs(((column.name, column.type) for column in root.columns), file=self._file)
        for column in schema.columns:
            if not column.type.known and not column.type.packaged:
                place, hint = f"column {column.name!r}", f"upgrade mdsx, or {AGAIN}"
                message = f"type '{column.type}' is not known to this version"
                raise UnsupportedError(message, file=self._file, place=place, hint=hint)
        files, groups = root.files, root.groups
        count = len(files.name)
        for name in ("size", "etag", "footer", "groups"):
            self._expect(len(getattr(files, name)) == count, f"files.{name}", len(getattr(files, name)), count)
        hashes = self._hashes(files.xxh3_128, count, "files.xxh3_128")
        of_groups = sum(files.groups)
        self._expect(of_groups <= MAX_SHARDS, "files.groups", of_groups, f"at most {MAX_SHARDS}")
        for name in IndexedGroup.__slots__:
            self._expect(
                len(getattr(groups, name)) == of_groups, f"groups.{name}", len(getattr(groups, name)), of_groups
            )
        self._check_names(files.name, "files.name")
        self._expect(sum(groups.rows) == root.samples, "samples", root.samples, sum(groups.rows))
        self._expect(sum(groups.stored) <= 2**62, "groups.stored", sum(groups.stored), "at most 2^62")
        arrays = {name: np.array(getattr(groups, name), np.int64) for name in IndexedGroup.__slots__}
        sizes, footers = np.array(files.size, np.int64), np.array(files.footer, np.int64)
        wrong = (footers >= sizes) | (sizes - footers > MAX_FOOTER_SIZE)
        self._expect(not wrong.any(), "files.footer", "a footer outside of its file, or of more than 256 MiB", None)
        firsts = np.cumsum([0, *files.groups], dtype=np.int64)
        ends = np.repeat(footers, np.diff(firsts))
        inside = (arrays["start"] < arrays["stop"]) & (arrays["stop"] <= ends)
        inside &= arrays["stored"] <= arrays["stop"] - arrays["start"]
        self._expect(bool(inside.all()), "groups", "a row group outside of its file", None)
        for numbers in (*arrays.values(), sizes, footers, firsts):
            numbers.setflags(write=False)
        return Parsed(
            schema=schema,
            types=tuple(column.arrow for column in root.columns),
            stored=tuple(column.stored for column in root.columns),
            heap=tuple(column.heap for column in root.columns),
            classes={column.name: column.classes for column in root.columns if column.classes},
            names=tuple(files.name),
            etags=tuple(files.etag),
            sizes=sizes,
            footers=footers,
            hashes=hashes,
            firsts=firsts,
            groups=arrays,
        )
