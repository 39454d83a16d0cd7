"""The full check of a shard: every rule that can be tested without the index, every damage by its place."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import CorruptError
from mdsx.format.rows import NULL, Extents, row_checksum
from mdsx.format.schema import Schema
from mdsx.format.shard import ShardView
from mdsx.format.values import value_decoder

if TYPE_CHECKING:
    from typing_extensions import Buffer

MAX_PROBLEMS = 1000
"""So many are listed of one shard, then a last one says that there are more."""
_BLOCK = 4096


def check_shard(
    buffer: Buffer, *, file: str | None = None, schema: Schema | None = None, checksums: bool = True
) -> list[CorruptError]:
    """Every damage of the whole uncompressed shard in `buffer`, naming sample and column; empty if it is sound.

    With `schema`, the shard's must be the same. `checksums=False` leaves out what goes sample by sample: the row
    checksums, and whether the values decode. Raises UnsupportedError for a shard of a later version.
    """
    try:
        view = ShardView.parse(buffer, file=file, schema=schema)
    except CorruptError as error:
        return [error]
    found = list(islice(_problems(view, checksums), MAX_PROBLEMS + 1))
    if len(found) > MAX_PROBLEMS:
        found[-1] = CorruptError(f"there are more than {MAX_PROBLEMS} problems", file=file)
    return found


def _problems(view: ShardView, checksums: bool) -> Iterator[CorruptError]:
    lost = np.zeros(view.samples, np.bool_)  # samples whose values are not where they should be
    if view.schema.variable and view.samples:
        extents = Extents.of(view.schema, view.rows, len(view.heap))
        lost = extents.wrong
        for sample in _where(lost):
            yield extents.problem(sample, file=view.file, sample=sample)
        yield from _order(view, extents)
    yield from _padding(view)
    yield from _bools(view)
    if checksums:
        yield from _samples(view, lost)


def _order(view: ShardView, extents: Extents) -> Iterator[CorruptError]:
    """The samples' heap bytes follow each other without gaps and fill the heap."""
    stops = extents.starts + extents.sums.astype(np.uint64)
    expected = np.concatenate((np.zeros(1, np.uint64), stops[:-1]))
    said = extents.outside.copy()  # what lies outside the heap says nothing about its neighbours
    said[1:] |= extents.outside[:-1]
    for sample in _where((extents.starts != expected) & ~said):
        place = f"sample {sample}"
        found, wanted = int(extents.starts[sample]), int(expected[sample])
        message = "its heap bytes do not begin where those before end"
        yield CorruptError(message, file=view.file, place=place, found=found, expected=wanted)
    if stops[-1] != extents.heap_size and not extents.outside[-1]:
        message = "the samples do not fill it"
        yield CorruptError(message, file=view.file, place="heap", found=int(stops[-1]), expected=extents.heap_size)


def _padding(view: ShardView) -> Iterator[CorruptError]:
    """Bytes of a row that belong to no field are zero."""
    dtype = view.schema.row_dtype
    unused = np.ones(dtype.itemsize, np.bool_)
    for kind, offset, *_ in (dtype.fields or {}).values():
        unused[offset : offset + kind.itemsize] = False
    if unused.any():
        rows = view.rows.view(np.uint8).reshape(view.samples, dtype.itemsize)
        for sample in _where((rows[:, unused] != 0).any(axis=1)):
            yield CorruptError("it is not zero", file=view.file, place=f"sample {sample}, padding of the row")


def _bools(view: ShardView) -> Iterator[CorruptError]:
    """Bools in rows are 0 or 1; those in the heap are decoded."""
    for number in view.schema.fixed:
        column = view.schema.columns[number]
        if column.type.base == "bool":
            values: NDArray[np.uint8] = view.rows[f"column{number}"].reshape(view.samples, column.type.nbytes)
            for sample in _where((values > 1).any(axis=1)):
                yield CorruptError("a bool is neither 0 nor 1", file=view.file, place=_place(sample, column.name))


def _samples(view: ShardView, lost: NDArray[np.bool_]) -> Iterator[CorruptError]:
    """Row checksums; and of the samples that pass, whether their values decode."""
    columns = [view.schema.columns[number] for number in view.schema.variable]
    decoders = [value_decoder(column.type, column.name) if column.type.known else None for column in columns]
    for sample, stored, start, lengths in _rows(view):
        if lost[sample]:
            continue
        at = view.rows_offset + sample * view.schema.row_size
        stop = start + sum(length for length in lengths if length != NULL)
        computed = row_checksum(view.buffer[at : at + view.schema.row_size], view.heap[start:stop], sample)
        if computed != stored:
            message, place = "its checksum does not match its bytes", f"sample {sample}"
            found, expected = f"{computed:016x}", f"{stored:016x}"
            yield CorruptError(message, file=view.file, place=place, found=found, expected=expected)
            continue
        for column, decode, length in zip(columns, decoders, lengths, strict=True):
            if length == NULL:
                continue
            try:
                if decode:
                    decode(view.heap[start : start + length])
            except CorruptError as error:
                yield CorruptError(str(error), file=view.file, place=_place(sample, column.name))
            start += length


def _rows(view: ShardView) -> Iterator[tuple[int, int, int, list[int]]]:
    """Of each sample: its number, checksum, start and lengths."""
    for first in range(0, view.samples, _BLOCK):
        rows = view.rows[first : first + _BLOCK]
        checksums = rows["checksum"].tolist()
        starts = rows["start"].tolist() if view.schema.variable else [0] * len(rows)
        lengths = rows["lengths"].tolist() if view.schema.variable else [[]] * len(rows)
        yield from zip(range(first, first + len(rows)), checksums, starts, lengths, strict=True)


def _place(sample: int, column: str) -> str:
    return f"sample {sample}, column {column!r}"


def _where(mask: Any) -> list[int]:
    numbers: list[int] = np.flatnonzero(mask)[: MAX_PROBLEMS + 1].tolist()
    return numbers
