"""Read the values of a condition for the samples of one dataset: numbers, lengths and nulls, from the rows of shards.

Of a format that stores columns separately, only these columns are read. Samples are not checked by their checksums,
which cover their other values too. The row key ensures that the rows are the shard's.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import UsageError
from mdsx.format import (
    NULL,
    NUMBERS,
    ColumnLength,
    ColumnType,
    ColumnValue,
    Index,
    ProjectsColumns,
    ReadsRows,
    Reference,
    RowLayout,
    Rows,
    Selection,
    Values,
    Vector,
    check_items,
    constant_length,
    given_item,
    length_rule,
    read_records,
)
from mdsx.shards.changes import Change
from mdsx.shards.excerpt import DatasetSlice
from mdsx.shards.length_file import LengthFile
from mdsx.shards.lengths import StoredColumn, stored_column
from mdsx.shards.shards import Shards

Vectors = dict[Reference, Vector]


class RowValues:
    """Reads the values of the references `asked` for the samples of dataset number `home` of an excerpt."""

    def __init__(self, excerpt: DatasetSlice, home: int, asked: Sequence[Reference]) -> None:
        """Raise UsageError for references that cannot be read from rows."""
        shards, wanted = excerpt.datasets[home], list[tuple[Reference, int, Change | None]]()
        self._lengths = list[_Lengths]()
        for reference in asked:
            if isinstance(reference, ColumnLength):
                _check_column(excerpt, reference.name)
                if (found := stored_column(excerpt, reference.name)).home == home:
                    self._lengths.append(_Lengths(shards, reference, found))
            elif (place := _check_column(excerpt, reference.name)) is not None and excerpt.homes[place] == home:
                _check_readable(excerpt, reference, place)
                wanted.append((reference, excerpt.columns[place], excerpt.changes[place]))
        columns = [*dict.fromkeys(column for _, column, _ in wanted)]
        self._shards, numbers = shards.project(columns) if columns else (shards, ())
        places = dict(zip(columns, numbers, strict=True))
        self._asked = [(reference, places[column], change) for reference, column, change in wanted]
        schema, none = self._shards.schema, np.zeros(0, np.int64)
        empty = Selection(RowLayout(schema), None, none, np.zeros(0, schema.row_dtype), none, memoryview(b""))
        self.nothing: Vectors = {
            **{lengths.reference: Vector(none) for lengths in self._lengths},
            **self._vectors(empty),
        }
        """Vectors without samples."""

    def prepare(self, shards: Sequence[int]) -> None:
        """Fetch the stored lengths, if any, of the shards to read next."""
        for lengths in self._lengths:
            lengths.prepare(shards)

    def read(self, shard: int) -> Vectors:
        """Return the vectors of all samples of a shard. Threads may call this."""
        found: Vectors = {lengths.reference: Vector(lengths.read(shard)) for lengths in self._lengths}
        return found | self._vectors(self._select(shard)) if self._asked else found

    def _select(self, shard: int) -> Selection:
        shards, index = self._shards, self._shards.index
        rows = shards.rows(shard) if isinstance(index, ReadsRows) else None
        if rows is not None:
            return rows
        if not isinstance(index, Index | ProjectsColumns):
            (reference, number, _), *_ = self._asked
            raise _mixed(index.format, reference.name, shards.schema.columns[number].type, shards.storage.url)
        return shards.select_whole(shard)  # it has only rows, or only these columns

    def _vectors(self, selection: Selection) -> Vectors:
        return {each: self._vector(selection, each, number, change) for each, number, change in self._asked}

    def _vector(self, selection: Selection, reference: Reference, number: int, change: Change | None) -> Vector:
        kind = self._shards.schema.columns[number].type
        if not isinstance(reference, ColumnValue) or (change is not None and change.is_mask):
            nulls = _nulls(selection, number) if kind.nullable else np.zeros(len(selection.samples), np.bool_)
            if isinstance(reference, ColumnValue):
                return Vector(~nulls)
            return Vector(nulls if change is None or change.casts_only else np.zeros_like(nulls))
        items, missing = _items(selection, number)
        base = kind.base
        if change is not None:
            items = change.apply(items, reference.name, lambda sample: f"{selection.file}, sample {sample}")
            base = change.target.base
            if change.fill is not None and missing is not None:
                items[missing] = given_item(base, change.fill, "fill", reference.name)
                missing = None
        check_items(NUMBERS[base], items)
        return Vector(NUMBERS[base].numpy(items), missing, NUMBERS[base])


class _Lengths:
    """The lengths of samples by a column: from the file next to the index, else from the rows."""

    def __init__(self, shards: Shards, reference: ColumnLength, found: StoredColumn) -> None:
        self.reference = reference
        self._constant = constant_length(found.items or found.type)
        self._size = 1 if found.items is None else found.items.item_dtype.itemsize
        self._counts = shards.index.counts
        self._file: LengthFile | None = None
        self._stored: dict[int, NDArray[np.uint32]] = {}
        self._shards: Shards = shards
        if self._constant is None:
            warns = not shards.is_snapshot  # the file is of the dataset's present state
            self._file = LengthFile.open(shards.beside, found.identity, self._counts, warns=warns)
            self._shards, (self._column,) = shards.project([found.number])

    def prepare(self, shards: Sequence[int]) -> None:
        self._stored = {} if self._file is None else dict(chain.from_iterable(self._file.read(shards)))

    def read(self, shard: int) -> NDArray[np.generic]:
        if self._constant is not None:
            return np.full(int(self._counts[shard]), self._constant)
        stored = self._stored.get(shard)
        found: NDArray[np.generic] = self._shards.lengths(shard, self._column) if stored is None else stored
        return found if self._size == 1 else found // self._size


# --- which references can be read


def _check_column(excerpt: DatasetSlice, name: str) -> int:
    """Return the number of a column in an excerpt. Raise UsageError if it does not exist."""
    names = [column.name for column in excerpt.schema.columns]
    if name not in names:
        hint = "put names with characters other than letters, digits, . and _ in double quotes"
        place, expected = f"column {name!r}", ", ".join(names)
        message = "there is no such column"
        raise UsageError(message, file=excerpt.shards.storage.url, place=place, expected=expected, hint=hint)
    return names.index(name)


def _check_readable(excerpt: DatasetSlice, reference: Reference, place: int) -> None:
    """Raise UsageError if the values or nulls of a column cannot be read without those of other columns."""
    name, url, change = reference.name, excerpt.shards.storage.url, excerpt.changes[place]
    index = excerpt.datasets[excerpt.homes[place]].index
    kind = index.schema.columns[excerpt.columns[place]].type
    if not isinstance(reference, ColumnValue) or (change is not None and change.is_mask):
        if kind.nullable and not isinstance(index, Index | ProjectsColumns):
            raise _mixed(index.format, name, kind, url)
        return
    at, found, way = f"column {name!r}", f"a column of type '{kind}'", _way(name)
    if not kind.scalar or kind.shape is not None:
        if length_rule(kind):
            way = f"length({name}) is the number of its {'items' if kind.scalar else 'bytes'}; {way}"
        raise UsageError("a condition can compare only numbers and bools", file=url, place=at, found=found, hint=way)
    if isinstance(index, ProjectsColumns):
        return
    if not kind.fixed_size:
        message = "the values of this column are in the heaps of the shards, which conditions do not read"
        found += ", which is nullable" if kind.nullable else ", which is newer than version 1.0"
        raise UsageError(message, file=url, place=at, found=found, hint=f"{way}; `is null` needs no value")
    if not isinstance(index, ReadsRows):
        raise _mixed(index.format, name, kind, url)


def _mixed(format: str, name: str, kind: ColumnType, url: str) -> UsageError:
    return UsageError(
        f"{format} stores the values of all columns together, so a condition would read whole shards",
        file=url,
        place=f"column {name!r}",
        found=f"a column of type '{kind}'",
        hint=f"{_way(name)}; or convert the dataset: `mdsx convert`",
    )


def _way(name: str) -> str:
    return f"ds.filter(function, input_columns=[{name!r}]) reads them"


# --- values


def _nulls(selection: Selection, number: int) -> NDArray[np.bool_]:
    """Return which values of a variable-size column are null, from rows of our own format."""
    place = selection.schema.variable.index(number)
    found: NDArray[np.bool_] = selection.rows["lengths"][:, place] == NULL
    return found


def _items(selection: Selection, number: int) -> tuple[NDArray[np.generic], NDArray[np.bool_] | None]:
    """Return a column's numbers for all samples of a shard, in storage form, 0 for null; and which are null."""
    kind = selection.schema.columns[number].type
    if kind.fixed_size and isinstance(selection.layout, RowLayout):
        return selection.rows[f"column{number}"], None
    count = len(selection.samples)
    if not count:
        return np.zeros(0, kind.item_dtype), None
    rows = Rows.of(selection)
    found = selection.layout.locate(rows, (number,))[number]
    if not isinstance(found, Values):
        (items,) = read_records(found, kind.item_dtype, [count])
        return items, None
    there = np.ones(count, np.bool_) if found.nulls is None else ~found.nulls
    wrong = there & (found.stops - found.starts != kind.nbytes)
    if wrong.any():
        raise rows.corrupt(int(wrong.argmax()), f"the value's size is wrong for type '{kind}'")
    items = np.zeros(count, kind.item_dtype)
    addresses = (rows.heap_addresses + found.starts)[there]
    (items[there],) = read_records(addresses, kind.item_dtype, [len(addresses)])
    return items, found.nulls
