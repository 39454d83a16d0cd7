"""A Parquet file's columns and row groups, parsed from the Thrift of its footer."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import CorruptError, FormatError, UnsupportedError
from mdsx.foreign.parquet.text import MAX_ROWS
from mdsx.foreign.parquet.thrift import MAX_DEPTH, Thrift, ThriftError

START, STORED, UNCOMPRESSED, NULLS, DICTIONARY = range(5)
"""The facts about a column chunk: its first byte, its stored and uncompressed bytes, its nulls (-1: unknown), and
whether it has a dictionary."""

_UNKNOWN = -1
_MOST = 2**62


@dataclass(frozen=True, slots=True, eq=False)
class Metadata:
    """The columns and all row groups of a file."""

    leaves: dict[str, range]
    """Column -> the numbers of its column chunks: one, or several for a nested column."""
    rows: NDArray[np.int64]
    """[groups]"""
    chunks: NDArray[np.int64]
    """[groups, leaves, 5]: START, STORED, ..."""


def parse_metadata(data: bytes, *, file: str) -> Metadata:
    """Parse the Thrift in `data`.

    Raise CorruptError, or UnsupportedError for encrypted columns, columns in other files, and two columns of the same
    name.
    """
    try:
        return _Parser(file).parse(Thrift(data))
    except (ThriftError, IndexError, UnicodeDecodeError) as error:
        raise CorruptError(f"it cannot be read: {error}", file=file, place="footer") from None


_ELEMENT = {1: Thrift.present, 4: Thrift.text, 5: Thrift.integer}  # type, name, number of children
_STATISTICS = {3: Thrift.integer}  # nulls
_CHUNK_DATA = {
    6: Thrift.integer,  # total_uncompressed_size
    7: Thrift.integer,  # total_compressed_size
    9: Thrift.integer,  # data_page_offset
    11: Thrift.integer,  # dictionary_page_offset
    12: lambda thrift, kind: thrift.struct(_STATISTICS, kind),
}
_CHUNK = {
    1: Thrift.text,  # file_path
    3: lambda thrift, kind: thrift.struct(_CHUNK_DATA, kind),
    8: Thrift.present,  # crypto_metadata
    9: Thrift.present,  # encrypted_column_metadata
}


class _Parser:
    def __init__(self, file: str) -> None:
        self._file = file
        self._groups = array("q")
        self._chunks = array("q")
        self._counts: list[int] = []  # of chunks, by row group

    def parse(self, thrift: Thrift) -> Metadata:
        wanted = {2: self._schema, 3: Thrift.integer, 4: self._row_groups}
        root = thrift.struct(wanted)
        if not root.keys() >= wanted.keys():
            raise ThriftError("it lacks its schema, its number of rows, or its row groups")
        if len(self._counts) != len(self._groups):
            raise ThriftError("a row group lists its column chunks twice")
        leaves = _top_level(root[2], self._file)
        count = max(column.stop for column in leaves.values())
        for group, found in enumerate(self._counts):
            if found != count:
                place = f"row group {group}"
                raise self._error("it has another number of column chunks than the schema", place, found, count)
        rows = np.array(self._groups, np.int64)
        if sum(self._groups) != root[3]:
            raise self._error("wrong numbers of rows", "footer", f"{sum(self._groups)} in row groups", root[3])
        return Metadata(leaves, rows, np.array(self._chunks, np.int64).reshape(-1, count, 5))

    def _schema(self, thrift: Thrift, kind: int) -> list[dict[int, Any]]:
        return [thrift.struct(_ELEMENT, item) for item in thrift.items(kind)]

    def _row_groups(self, thrift: Thrift, kind: int) -> None:
        for item in thrift.items(kind):
            group = len(self._groups)
            found = thrift.struct({1: partial(self._column_chunks, group), 3: Thrift.integer}, item)
            rows = found.get(3, _UNKNOWN)
            if not 0 <= rows <= MAX_ROWS or 1 not in found:
                place, expected = f"row group {group}", f"from 0 to {MAX_ROWS}"
                raise self._error("wrong number of rows, or no column chunks", place, rows, expected)
            self._groups.append(rows)

    def _column_chunks(self, group: int, thrift: Thrift, kind: int) -> None:
        count = 0
        for count, item in enumerate(thrift.items(kind), 1):
            self._add(thrift.struct(_CHUNK, item), f"row group {group}, column chunk {count - 1}")
        self._counts.append(count)

    def _add(self, chunk: dict[int, Any], place: str) -> None:
        if 8 in chunk or 9 in chunk:
            hint = "write it again without encryption"
            raise UnsupportedError("it is encrypted", file=self._file, place=place, hint=hint)
        if chunk.get(1):
            message = "its data is in another file"
            raise UnsupportedError(message, file=self._file, place=place, found=repr(chunk[1][:200]))
        data = chunk.get(3, {})
        dictionary = data.get(11) or 0  # some writers use 0 for none
        first = data.get(9, _UNKNOWN)
        known = (min(first, dictionary or first), data.get(7, _UNKNOWN), data.get(6, _UNKNOWN))
        nulls = data.get(12, {}).get(3, _UNKNOWN)
        if not all(0 <= number <= _MOST for number in known):
            raise self._error("a negative, huge or missing offset or size", place, known, None)
        self._chunks.extend((*known, nulls if 0 <= nulls <= _MOST else _UNKNOWN, dictionary > 0))

    def _error(self, message: str, place: str, found: object, expected: object) -> FormatError:
        return CorruptError(message, file=self._file, place=place, found=found, expected=expected)


def _top_level(elements: list[dict[int, Any]], file: str) -> dict[str, range]:
    """Return the columns and their leaves. `elements` is the tree of the schema, depth first."""
    if not elements:
        raise ThriftError("it has no schema")
    found: dict[str, range] = {}
    at, leaf = 1, 0
    for _ in range(elements[0].get(5, 0)):
        name, first, open_ = elements[at].get(4, ""), leaf, [1]  # open_: missing children of each open group
        while open_:
            open_[-1] -= 1
            children = elements[at].get(5, 0)
            at += 1
            if children > 0:
                open_.append(children)
            else:
                leaf += 1
            if len(open_) > MAX_DEPTH:
                raise ThriftError("its schema is nested too deeply")
            while open_ and not open_[-1]:
                open_.pop()
        if name in found:
            message = f"two columns have the name {name[:80]!r}"
            raise UnsupportedError(message, file=file, place="schema", hint="rename one of them")
        found[name] = range(first, leaf)
    if at != len(elements):
        raise ThriftError("its schema has elements outside of its tree")
    if not found:
        raise UnsupportedError("the file has no columns", file=file, place="schema")
    return found
