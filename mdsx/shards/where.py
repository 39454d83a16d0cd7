"""Chooses samples by a condition on fixed-size columns, lengths and nulls: from the rows of shards, without heaps.

Shards are read many at once, and each is evaluated at once. What a format cannot give so is an error before anything is
read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from mdsx.base.process import REQUESTS, Share
from mdsx.base.progress import StatusLine
from mdsx.errors import UsageError
from mdsx.format import (
    NULL,
    NUMBERS,
    ColumnLength,
    ColumnNull,
    ColumnType,
    ColumnValue,
    Condition,
    Index,
    ProjectsColumns,
    ReadsRows,
    Reference,
    RowLayout,
    Rows,
    Schema,
    Selection,
    Values,
    Vector,
    check_items,
    evaluate,
    given_item,
    length_rule,
    parse_condition,
    read_records,
    references,
)
from mdsx.order import Marks, Subset, select_chosen
from mdsx.shards.changes import Change
from mdsx.shards.excerpt import DatasetSlice
from mdsx.shards.lengths import lengths_of
from mdsx.shards.shards import Shards
from mdsx.shards.view import View

_AT_ONCE = 64  # shards
_BYTES_AT_ONCE = 2**28
_FILTER = "ds.filter(function, input_columns=[{!r}]) reads it"

Vectors = dict[Reference, Vector]


def choose_where(excerpt: DatasetSlice, text: str, *, progress: bool = False) -> Subset:
    """Return the samples of `excerpt` for which the condition `text` is true: see `Dataset.filter`."""
    marks = Marks()
    for found in marks_where(excerpt, parse_condition(text), progress=progress):
        marks.add(found)
    return select_chosen(excerpt.subset, excerpt.shards.index.counts, marks)


def marks_where(excerpt: DatasetSlice, condition: Condition, *, progress: bool = False) -> Iterator[NDArray[np.bool_]]:
    """Yield for which samples of each shard that `excerpt` has samples of, in order, a condition is true."""
    reading = _Reading(excerpt, condition)
    total, done = int(excerpt.subset.counts.sum()), 0
    line = StatusLine(lambda: f"filter: {done:,} of {total:,} samples") if progress else None
    try:
        for block in reading.blocks():
            for found in reading.evaluate(block):
                done += len(found)
                yield found
    finally:
        if line is not None:
            line.close()


class _Reading:
    def __init__(self, excerpt: DatasetSlice, condition: Condition) -> None:
        self._excerpt, self._condition = excerpt, condition
        self._pool = Share(REQUESTS)
        asked = [*dict.fromkeys(references(condition))]
        stored = [(each, *_place(excerpt, each)) for each in asked if not isinstance(each, ColumnLength)]
        self._columns = [_Columns(shards, stored, home) for home, shards in enumerate(excerpt.datasets)]
        view = View([excerpt])
        self._lengths = {
            each: lengths_of(view, _checked_length(excerpt, each)) for each in asked if isinstance(each, ColumnLength)
        }
        self._edges = [np.append(0, np.cumsum(shards.index.counts)) for shards in excerpt.datasets]
        lengths = {each: Vector(np.zeros(0, np.int64)) for each in self._lengths}
        evaluate(condition, lengths | self._nothing())  # raises if the types do not fit

    def _nothing(self) -> Vectors:
        found = Vectors()
        for columns in self._columns:
            found |= columns.nothing
        return found

    def blocks(self) -> Iterator[list[int]]:
        """Yield the shards that are read at once."""
        index, block, size = self._excerpt.shards.index, list[int](), 0
        for shard in np.flatnonzero(self._excerpt.subset.counts).tolist():
            own = int(index.counts[shard]) * max(index.schema.row_size, 16)
            if block and (len(block) == _AT_ONCE or size + own > _BYTES_AT_ONCE):
                yield block
                block, size = [], 0
            block.append(shard)
            size += own
        if block:
            yield block

    def evaluate(self, block: Sequence[int]) -> Iterator[NDArray[np.bool_]]:
        excerpt = self._excerpt
        counts = excerpt.shards.index.counts[block]
        numbers = [np.arange(count) for count in counts.tolist()] if self._lengths else []
        lengths = {
            each: np.split(found.of(np.repeat(block, counts), np.concatenate(numbers)), np.cumsum(counts)[:-1])
            for each, found in self._lengths.items()
        }
        wanted = [(home, shard) for home in range(len(self._columns)) for shard in self._needed(home, block)]
        read = dict(zip(wanted, self._pool.map(lambda each: self._columns[each[0]].read(each[1]), wanted), strict=True))

        def one(place: int) -> NDArray[np.bool_]:
            shard = block[place]
            vectors: Vectors = {each: Vector(found[place]) for each, found in lengths.items()}
            for home, columns in enumerate(self._columns):
                if columns.nothing:
                    vectors |= self._of_shard(home, shard, read)
            true = evaluate(self._condition, vectors).true
            chosen = int(excerpt.subset.counts[shard])
            return true if chosen == len(true) else true[excerpt.subset.samples(shard, np.arange(chosen))]

        yield from self._pool.map(one, range(len(block)))
        read.clear()  # a selection is a lease
        for shards in excerpt.datasets:
            shards.release()

    def _needed(self, home: int, block: Sequence[int]) -> list[int]:
        """Return the shards of a dataset that have the samples of main shards."""
        if not self._columns[home].nothing:
            return []
        if home == 0:
            return [*block]
        edges, found = self._edges[home], set[int]()
        for shard in block:
            start, stop = self._edges[0][shard : shard + 2]
            found.update(
                range(int(np.searchsorted(edges, start, "right")) - 1, int(np.searchsorted(edges, stop, "left")))
            )
        return sorted(found)

    def _of_shard(self, home: int, shard: int, read: Mapping[tuple[int, int], Vectors]) -> Vectors:
        """Return the vectors of a main shard's samples, of a dataset whose shards may be others."""
        if home == 0:
            return read[0, shard]
        (start, stop), edges = self._edges[0][shard : shard + 2], self._edges[home]
        parts = list[Vectors]()
        for own in self._needed(home, [shard]):
            here = slice(max(start - edges[own], 0), stop - edges[own])
            parts.append({each: _cut(vector, here) for each, vector in read[home, own].items()})
        return {each: _joined([part[each] for part in parts]) for each in parts[0]}


def _cut(vector: Vector, here: slice) -> Vector:
    nulls = None if vector.nulls is None else vector.nulls[here]
    return vector._replace(values=vector.values[here], nulls=nulls)


def _joined(parts: Sequence[Vector]) -> Vector:
    nulls = None
    if any(part.nulls is not None for part in parts):
        nulls = np.concatenate(
            [np.zeros(len(part.values), np.bool_) if part.nulls is None else part.nulls for part in parts]
        )
    return parts[0]._replace(values=np.concatenate([part.values for part in parts]), nulls=nulls)


# --- the columns of one dataset


def _place(excerpt: DatasetSlice, reference: ColumnValue | ColumnNull) -> tuple[int, int, Change | None]:
    """Return where a column is stored, the dataset's number and its own, and how it is read. Raise UsageError if its
    values, or its nulls, cannot be read without others."""
    names = [column.name for column in excerpt.schema.columns]
    url = excerpt.shards.storage.url
    if reference.name not in names:
        raise _unknown(reference.name, names, url)
    number = names.index(reference.name)
    home, column, change = excerpt.homes[number], excerpt.columns[number], excerpt.changes[number]
    index = excerpt.datasets[home].index
    kind = index.schema.columns[column].type
    if isinstance(reference, ColumnNull) or (change is not None and change.is_mask):
        if kind.nullable and not isinstance(index, Index | ProjectsColumns):
            raise _apart(index.format, reference.name, kind, url)
        return home, column, change
    place = f"column {reference.name!r}"
    if not kind.scalar or kind.shape is not None:
        count = "items" if kind.scalar else "bytes"
        hint = f"length({reference.name}) is the number of its {count}; " if length_rule(kind) else ""
        hint += _FILTER.format(reference.name)
        message = "a condition compares numbers and bools"
        raise UsageError(message, file=url, place=place, found=f"a column of type '{kind}'", hint=hint)
    if isinstance(index, ProjectsColumns):
        return home, column, change
    if not kind.fixed_size:
        message = "the values of this column are in the heaps of the shards, which a condition does not read"
        why = "nullable" if kind.nullable else "newer than version 1.0 of the format"
        hint = _FILTER.format(reference.name) + ("; `is null` needs no value" if kind.nullable else "")
        raise UsageError(message, file=url, place=place, found=f"type '{kind}', which is {why}", hint=hint)
    if not isinstance(index, ReadsRows):
        raise _apart(index.format, reference.name, kind, url)
    return home, column, change


def _checked_length(excerpt: DatasetSlice, reference: ColumnLength) -> str:
    names = [column.name for column in excerpt.schema.columns]
    if reference.name not in names:
        raise _unknown(reference.name, names, excerpt.shards.storage.url)
    return reference.name  # `lengths_of` refuses columns that give none


def _unknown(name: str, names: Sequence[str], url: str) -> UsageError:
    hint = "the name of a column that is no word stands in double quotes"
    return UsageError(
        "there is no such column", file=url, place=f"column {name!r}", expected=", ".join(names), hint=hint
    )


def _apart(format: str, name: str, kind: ColumnType, url: str) -> UsageError:
    hint = _FILTER.format(name) + "; or convert the dataset, `mdsx convert`"
    return UsageError(
        f"{format} keeps the values of a column among those of the others, so a condition would read whole shards",
        file=url,
        place=f"column {name!r} of type '{kind}'",
        hint=hint,
    )


_Stored = tuple[ColumnValue | ColumnNull, int, int, Change | None]


class _Columns:
    """What a condition needs of one dataset: its columns' values and nulls."""

    def __init__(self, shards: Shards, stored: Sequence[_Stored], home: int) -> None:
        here = [(each, column, change) for each, own, column, change in stored if own == home]
        wanted = [*dict.fromkeys(column for _, column, _ in here)]
        self._shards, numbers = shards.project(wanted) if here else (shards, ())
        places = dict(zip(wanted, numbers, strict=True))
        self._asked = [(each, places[column], change) for each, column, change in here]
        nothing = np.zeros(0, np.int64)
        empty = Selection(
            RowLayout(self._schema), None, nothing, np.zeros(0, self._schema.row_dtype), nothing, memoryview(b"")
        )
        self.nothing: Vectors = self._vectors(empty)
        """The vectors of no sample."""

    @property
    def _schema(self) -> Schema:
        return self._shards.schema

    def read(self, shard: int) -> Vectors:
        """Return the vectors of all samples of a shard."""
        return self._vectors(self._select(shard))

    def _select(self, shard: int) -> Selection:
        shards, index = self._shards, self._shards.index
        rows = shards.rows(shard) if isinstance(index, ReadsRows) else None
        if rows is not None:
            return rows
        if not isinstance(index, Index | ProjectsColumns):
            (reference, number, _), *_ = self._asked
            raise _apart(index.format, reference.name, self._schema.columns[number].type, shards.storage.url)
        shards.open(shard, whole=True)  # its rows are all that it has
        return shards.select(shard, np.arange(int(index.counts[shard])))

    def _vectors(self, selection: Selection) -> Vectors:
        return {each: self._vector(selection, each, number, change) for each, number, change in self._asked}

    def _vector(
        self, selection: Selection, reference: ColumnValue | ColumnNull, number: int, change: Change | None
    ) -> Vector:
        kind = self._schema.columns[number].type
        if isinstance(reference, ColumnNull) or (change is not None and change.is_mask):
            nulls = _nulls(selection, number) if kind.nullable else np.zeros(len(selection.samples), np.bool_)
            if isinstance(reference, ColumnValue):
                return Vector(~nulls)
            return Vector(nulls if change is None or change.casts_only else np.zeros_like(nulls))
        items, nulls = _items(selection, number)
        base = kind.base
        if change is not None:
            place = partial("{}, sample {}".format, selection.file)
            items, base = change.apply(items, reference.name, place), change.target.base
            if change.fill is not None and nulls is not None:
                items[nulls] = given_item(base, change.fill, "fill", reference.name)
                nulls = None
        check_items(NUMBERS[base], items)
        return Vector(NUMBERS[base].numpy(items), nulls, NUMBERS[base])


def _nulls(selection: Selection, number: int) -> NDArray[np.bool_]:
    """Return which values of a variable-size column are null, from rows of ours."""
    place = selection.schema.variable.index(number)
    found: NDArray[np.bool_] = selection.rows["lengths"][:, place] == NULL
    return found


def _items(selection: Selection, number: int) -> tuple[NDArray[np.generic], NDArray[np.bool_] | None]:
    """Return the numbers of all samples of a shard, in storage form, 0 for null; and which are null."""
    kind = selection.schema.columns[number].type
    if kind.fixed_size and isinstance(selection.layout, RowLayout):
        return selection.rows[f"column{number}"], None
    count = len(selection.samples)
    rows = Rows([selection], np.zeros(count, np.int64), selection.samples, selection.addresses)
    found = selection.layout.locate(rows, (number,))[number]
    if not isinstance(found, Values):
        (items,) = read_records(found, kind.item_dtype, [count])
        return items, None
    there = np.ones(count, np.bool_) if found.nulls is None else ~found.nulls
    wrong = there & (found.stops - found.starts != kind.nbytes)
    if wrong.any():
        raise rows.corrupt(int(wrong.argmax()), f"no value of type '{kind}' has as many bytes")
    items = np.zeros(count, kind.item_dtype)
    addresses = (rows.heap_addresses + found.starts)[there]
    (items[there],) = read_records(addresses, kind.item_dtype, [len(addresses)])
    return items, found.nulls
