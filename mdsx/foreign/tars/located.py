"""Locate the values of columns in the bytes of members, for many members of a chunk at once.

The checks are the same as in a conversion, which reads value by value. Here, a ValueError, Refused or CorruptError says
only that some value does not fit. The caller then reads the samples one by one to find it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.foreign.npy import NpyHeader
from mdsx.foreign.tars.values import parse_npy_header, value_reader
from mdsx.format import Beginning, ColumnType, Object, dimensions_encoder, value_encoder

_DIGITS = 18  # of a number that is certainly an int64


class Bytes(NamedTuple):
    """Values whose bytes are in the tar, after `skipped` bytes of each member. `inline` bytes precede them."""

    skipped: NDArray[np.int64] | int
    inline: list[bytes] | None = None


Spans = tuple[Sequence[int], Sequence[int]]
"""Where the bytes of members begin in a chunk, and where they stop."""
Locate = Callable[[bytes, Spans], Bytes]


def value_locator(kind: ColumnType) -> Locate:
    """Return a function that checks and locates the values of a column that are not in rows of pointer shards. It
    raises ValueError, Refused or CorruptError."""
    if kind.scalar:
        return _inline_scalars(kind) if kind.shape is None else _Arrays(kind)
    if kind.stored.kind == "bytes":
        return _files(kind.object)
    return _texts if kind.kind == "text" else _documents(kind.object)


def scalar_reader(kind: ColumnType) -> Callable[[bytes, Spans], NDArray[Any]]:
    """Return a function that reads the members of a scalar column as stored items. It raises the same errors."""
    limits = np.iinfo(kind.item_dtype) if kind.kind == "integer" else None
    read, encode = value_reader(kind), value_encoder(kind)

    def items(data: bytes, spans: Spans) -> NDArray[Any]:
        pieces = _pieces(data, spans)
        if limits is not None and all(map(bytes.isdigit, pieces)) and max(map(len, pieces)) <= _DIGITS:
            numbers = np.array(list(map(int, pieces)), np.int64)
            if limits.max >= numbers.max():
                return numbers.astype(kind.item_dtype)
        return np.frombuffer(b"".join(encode(read(piece)) for piece in pieces), kind.item_dtype)

    return items


def array_problem(kind: ColumnType, header: NpyHeader, data: bytes) -> str | None:
    """Return why the items of the NumPy file `data` cannot be read in place as a column's value; None if they can."""
    if header.fortran and sum(size > 1 for size in header.shape) > 1:
        return "its array is in Fortran order"
    wanted = kind.item_dtype if kind.number.native else np.dtype(np.bool_) if kind.kind == "bool" else None
    if wanted is not None and header.dtype != wanted and header.dtype.newbyteorder("<") == wanted:
        return "its array is big-endian"
    if header.dtype != wanted:  # NumPy has no bfloat16: an array of uint16 has integers, not such bits
        return f"its array has type {header.dtype}, but the column {kind.base}"
    if kind.kind == "bool" and not _are_bools(data[header.start :]):
        return "an item of its array is neither 0 nor 1"
    return None


def _are_bools(items: bytes) -> bool:
    """Return whether all bytes are 0 or 1. NumPy takes all others as True, too."""
    return not items.translate(None, b"\0\1")


class _Arrays:
    """Arrays in NumPy files. Many of them have the same header, which is parsed once."""

    _KEPT = 1000

    def __init__(self, kind: ColumnType) -> None:
        self._kind, self._dimensions = kind, dimensions_encoder(kind)
        self._known: dict[bytes, tuple[int, int, bytes]] = {}
        self._bools = kind.kind == "bool"

    def __call__(self, data: bytes, spans: Spans) -> Bytes:
        skipped, inline = [], []
        for start, stop in zip(*spans, strict=True):
            size = 10 + int.from_bytes(data[start + 8 : start + 10], "little")  # of a header of version 1.0
            head = data[start : min(start + size, stop)]
            known = self._known.get(head)
            found = known or self._parse(head, data[start:stop])  # which checks the items, too
            if found[1] != stop - start or (known and self._bools and not _are_bools(data[start + found[0] : stop])):
                raise ValueError
            skipped.append(found[0])
            inline.append(found[2])
        return Bytes(np.array(skipped, np.int64), inline if self._kind.stars else None)

    def _parse(self, head: bytes, data: bytes) -> tuple[int, int, bytes]:
        header = parse_npy_header(data)
        if array_problem(self._kind, header, data):
            raise ValueError
        found = header.start, len(data), self._dimensions(header.shape)
        if header.start == len(head) and len(self._known) < self._KEPT:
            self._known[head] = found
        return found


def _inline_scalars(kind: ColumnType) -> Locate:
    items = scalar_reader(ColumnType(kind.base))

    def locate(data: bytes, spans: Spans) -> Bytes:
        sizes = np.array(spans[1], np.int64) - np.array(spans[0], np.int64)
        values = items(data, spans)
        return Bytes(sizes, [value.tobytes() for value in values])

    return locate


def _files(base: Object) -> Locate:
    def locate(data: bytes, spans: Spans) -> Bytes:
        if base.magic and not any(_all_begin(each, data, spans) for each in base.magic):
            view = memoryview(data)  # headers differ
            if not all(map(base.matches, map(view.__getitem__, map(slice, *spans)))):
                raise ValueError
        return Bytes(0)

    return locate


def _all_begin(way: Beginning, data: bytes, spans: Spans) -> bool:
    for offset, part in way:
        starts = [start + offset for start in spans[0]] if offset else spans[0]
        if not all(map(data.startswith, repeat(part), starts, spans[1])):
            return False
    return True


def _texts(data: bytes, spans: Spans) -> Bytes:
    if not data.isascii():
        for piece in _pieces(data, spans):
            piece.decode()
    return Bytes(0)


def _documents(base: Object) -> Locate:
    encode = base.encoder()

    def locate(data: bytes, spans: Spans) -> Bytes:
        for piece in _pieces(data, spans):
            encode(base.decode(memoryview(piece)))  # it refuses what no shard can have, such as 1e999
        return Bytes(0)

    return locate


def _pieces(data: bytes, spans: Spans) -> list[bytes]:
    return list(map(data.__getitem__, map(slice, *spans)))
