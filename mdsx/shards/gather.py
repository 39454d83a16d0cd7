"""Selections of many shards -> columns, batch by batch: the only place where samples are copied.

One NumPy call a batch copies the values of a fixed-size column; those of a variable-size one are cut from the heaps and
decoded one by one. Columns are in *storage form*: `bool` as uint8, types that NumPy lacks as their bits. `present`
turns them into the types that NumPy users expect.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.base.cached import cached_property
from mdsx.errors import CorruptError
from mdsx.format import (
    Column,
    JoinedValues,
    Rows,
    SampleLayout,
    Schema,
    Selection,
    ValueDecoder,
    Values,
    ValuesDecoder,
    bare_decoder,
    numpy_values,
    read_joined,
    read_records,
    values_decoder,
)

Columns = dict[str, Any]  # name -> array [n, ...] of a fixed-size column, list of n values of a variable-size one

Source = tuple[Selection, tuple[int, ...]]
"""Samples, and the number of each result column in their schema."""


def gather(
    schema: Schema,
    sources: Sequence[Source],
    places: NDArray[np.int64],
    sizes: Sequence[int],
    *,
    views: bool = False,
    join: bool = False,
    stored: bool = False,
) -> Iterator[Columns]:
    """Yield columns, in storage form, of the first `sizes[0]` samples of a result, of the next `sizes[1]`, and so on.

    `places[i]` is the place in the result of sample i of all sources, concatenated. With `views`, values of `bytes`
    and pictures are memory views of the shards, not copies. With `join`, variable-size columns are not
    decoded: they are JoinedValues. With `stored`, they are StoredValues, neither decoded nor copied. Raise CorruptError
    that names the sample.
    """
    rows = _rows(sources, places)
    located = _locate(schema, sources, rows) if sources else [_nowhere(column) for column in schema.columns]
    fixed = {
        number: read_records(addresses, schema.columns[number].type.field_dtype, sizes)
        for number, addresses in enumerate(located)
        if isinstance(addresses, np.ndarray)
    }
    varying = {
        number: _Values(rows, values, column, views)
        for number, (column, values) in enumerate(zip(schema.columns, located, strict=True))
        if isinstance(values, Values)
    }
    for start, stop in pairwise(accumulate(sizes, initial=0)):
        yield {
            column.name: next(fixed[number])
            if number in fixed
            else varying[number].join(start, stop)
            if join
            else StoredValues(varying[number], start, stop)
            if stored
            else varying[number].decode(start, stop)
            for number, column in enumerate(schema.columns)
        }


def joined(parts: Sequence[Columns]) -> Columns:
    """Concatenate the columns of several results, at least one."""
    first = parts[0]
    return {
        name: np.concatenate([part[name] for part in parts])
        if isinstance(values, np.ndarray)
        else [value for part in parts for value in part[name]]
        for name, values in first.items()
    }


def _rows(sources: Sequence[Source], places: NDArray[np.int64]) -> Rows:
    """Return the rows of a result's samples, in order of the result."""
    found = [np.empty_like(places) for _ in range(3)]
    if len(places):
        found[0][places] = np.repeat(np.arange(len(sources)), [len(selection.take) for selection, _ in sources])
        found[1][places] = np.concatenate([selection.samples for selection, _ in sources])
        found[2][places] = np.concatenate([selection.addresses for selection, _ in sources])
    return Rows([selection for selection, _ in sources], *found)


def _locate(schema: Schema, sources: Sequence[Source], rows: Rows) -> list[NDArray[np.int64] | Values]:
    """Return where the values of each result column are. Raise CorruptError for values that are not within a heap."""
    kinds = {(id(selection.schema), columns): selection.layout for selection, columns in sources}
    if len(kinds) == 1:
        (((_, columns), layout),) = kinds.items()
        return _located(schema, layout, columns, rows)
    numbers = {kind: number for number, kind in enumerate(kinds)}
    kind_of = np.array([numbers[id(selection.schema), columns] for selection, columns in sources], np.int64)
    joined: list[NDArray[np.int64] | Values] = []
    for number, ((_, columns), layout) in enumerate(kinds.items()):
        here = kind_of[rows.source] == number
        parts = _located(schema, layout, columns, rows[here])
        joined = joined or [_empty(part, len(here)) for part in parts]
        for whole, part in zip(joined, parts, strict=True):
            _place(whole, part, here)
    return joined


def _located(
    schema: Schema, layout: SampleLayout, columns: tuple[int, ...], rows: Rows
) -> list[NDArray[np.int64] | Values]:
    """Return where the values of each column of `schema` are, in rows of one layout. Bytes that are read as an array
    have no dimension before its items."""
    found, stored = layout.locate(rows, columns), layout.schema.columns
    return [
        _as_array(column, found[number], rows)
        if column.type.scalar and not stored[number].type.scalar
        else found[number]
        for column, number in zip(schema.columns, columns, strict=True)
    ]


def _as_array(column: Column, found: NDArray[np.int64] | Values, rows: Rows) -> NDArray[np.int64] | Values:
    if not isinstance(found, Values):
        return found
    if not column.type.fixed_size:
        return found._replace(bare=True)
    wrong = found.stops - found.starts != column.type.nbytes
    if wrong.any():
        row = int(wrong.argmax())
        size, expected = int(found.stops[row] - found.starts[row]), f"{column.type.nbytes} bytes"
        message = f"the bytes of column {column.name!r} are no array of type '{column.type}'"
        raise rows.corrupt(row, message, found=size, expected=expected)
    return rows.heap_addresses + found.starts


def _nowhere(column: Column) -> NDArray[np.int64] | Values:
    """Return where the values of a column are if there is no sample."""
    nothing = np.zeros(0, np.int64)
    return nothing if column.type.fixed_size else Values(nothing, nothing, None)


def _empty(part: NDArray[np.int64] | Values, count: int) -> NDArray[np.int64] | Values:
    starts = np.empty(count, np.int64)
    if isinstance(part, np.ndarray):
        return starts
    return Values(starts, starts.copy(), np.zeros(count, np.bool_), np.zeros(count, np.bool_))


def _place(whole: NDArray[np.int64] | Values, part: NDArray[np.int64] | Values, here: NDArray[np.bool_]) -> None:
    if isinstance(whole, Values) and isinstance(part, Values):
        whole.starts[here], whole.stops[here] = part.starts, part.stops
        if whole.nulls is not None and part.nulls is not None:
            whole.nulls[here] = part.nulls
        if isinstance(whole.bare, np.ndarray):
            whole.bare[here] = part.bare
    else:
        whole[here] = part  # type: ignore[index, assignment]  # excerpts of a view have columns of the same types


@dataclass(frozen=True, eq=False)
class _Values:
    """The values of a variable-size column, and how to decode them."""

    rows: Rows
    extents: Values
    column: Column
    views: bool

    def decode(self, start: int, stop: int) -> list[object] | NDArray[Any]:
        """Return the values of samples [start, stop): [n, ...] in storage form if they have one size."""
        if self.column.type.one_size:
            return self._stacked(start, stop)
        wanted, nulls = np.arange(start, stop), self.extents.nulls
        if nulls is not None:
            wanted = wanted[~nulls[start:stop]]
        try:
            values = self._decoded(wanted)
        except CorruptError:
            self._blame(wanted)
            raise
        if len(wanted) == stop - start:
            return values
        found: list[object] = [None] * (stop - start)
        for place, value in zip((wanted - start).tolist(), values, strict=True):
            found[place] = value
        return found

    def join(self, start: int, stop: int) -> JoinedValues:
        """Return the values of samples [start, stop) as they are stored."""
        here, nulls = slice(start, stop), self.extents.nulls
        sizes = (self.extents.stops - self.extents.starts)[here]
        if nulls is not None:
            nulls = nulls[here]
            sizes = np.where(nulls, 0, sizes)
        addresses, bare = (self.rows.heap_addresses + self.extents.starts)[here], self.extents.bare
        if np.any(bare) and self.column.type.stars:
            return _with_dimensions(addresses, sizes, nulls, bare[here] if isinstance(bare, np.ndarray) else bare,
                                    self.column.type.item_dtype.itemsize)  # fmt: skip
        return JoinedValues(read_joined(addresses, sizes), _edges(sizes), nulls)

    @cached_property
    def _decoder(self) -> ValuesDecoder:
        return values_decoder(self.column.type, self.column.name, views=self.views, stored=True)

    @cached_property
    def _bare_decoder(self) -> ValueDecoder:
        return bare_decoder(self.column.type, stored=True)

    def _decoded(self, wanted: NDArray[np.int64]) -> list[object]:
        """Return the values of the rows `wanted`, which are not null."""
        pieces, bare = self._pieces(wanted), self.extents.bare
        if bare is False or not np.any(bare):
            return self._decoder(pieces)
        each = bare[wanted].tolist() if isinstance(bare, np.ndarray) else repeat(bare)
        return [
            self._bare_decoder(piece) if alone else self._decoder([piece])[0]
            for piece, alone in zip(pieces, each, strict=False)
        ]

    def _stacked(self, start: int, stop: int) -> NDArray[Any]:
        kind = self.column.type
        wrong = (self.extents.stops - self.extents.starts)[start:stop] != kind.nbytes
        if wrong.any():
            self._blame(start + np.flatnonzero(wrong))
        addresses = (self.rows.heap_addresses + self.extents.starts)[start:stop]
        (items,) = read_records(addresses, kind.field_dtype, [stop - start])
        return items

    @cached_property
    def items(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        """Of a column of one-dimensional arrays: where the items of each value begin in its heap, how many there are
        (0 of null), and which values are damaged."""
        kind, (starts, stops, nulls, alone) = self.column.type, self.extents
        head, bare = 4 * kind.stars, np.broadcast_to(alone, len(starts))
        begins = starts + np.where(bare, 0, head)
        counts, rest = np.divmod(stops - begins, kind.item_dtype.itemsize)
        wrong = (rest != 0) | (counts < 0)
        there = ~wrong if nulls is None else ~(wrong | nulls)
        if head:
            there &= ~bare
            (claimed,) = read_records((self.rows.heap_addresses + starts)[there], np.dtype("<u4"), [int(there.sum())])
            wrong[there] = claimed != counts[there]
        else:
            wrong |= counts != (kind.shape or (0,))[0]
        if nulls is not None:
            counts[nulls], wrong[nulls] = 0, False
        return begins, counts, wrong

    def _pieces(self, wanted: NDArray[np.int64]) -> Iterator[memoryview]:
        cuts = map(slice, self.extents.starts[wanted].tolist(), self.extents.stops[wanted].tolist())
        heaps = self.rows.heaps
        if len(heaps) == 1:
            return map(heaps[0].__getitem__, cuts)
        return map(memoryview.__getitem__, map(heaps.__getitem__, self.rows.source[wanted].tolist()), cuts)

    def _blame(self, wanted: NDArray[np.int64]) -> None:
        """Raise the decoder's error again, with the sample and column."""
        for row in wanted.tolist():
            try:
                self._decoded(np.array([row]))
            except CorruptError as error:
                place = f"sample {self.rows.samples[row]}, column {self.column.name!r}"
                raise CorruptError(str(error), file=self.rows.file(row), place=place) from error


def _edges(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate((np.zeros(1, np.int64), sizes.cumsum()))


def _with_dimensions(
    addresses: NDArray[np.int64],
    sizes: NDArray[np.int64],
    nulls: NDArray[np.bool_] | None,
    bare: NDArray[np.bool_] | bool,
    item_size: int,
) -> JoinedValues:
    """Return arrays of one dimension as our own format stores them: a u32, the dimension, before the items of each of
    those that are `bare`."""
    heads = np.broadcast_to(bare, len(sizes)) if nulls is None else bare & ~nulls
    dimensions = (sizes // item_size).astype("<u4")
    pairs = np.stack((dimensions.ctypes.data + 4 * np.arange(len(sizes)), addresses), axis=1)
    lengths = np.stack((4 * heads.astype(np.int64), sizes), axis=1)
    data = read_joined(pairs.reshape(-1), lengths.reshape(-1))
    return JoinedValues(data, _edges(lengths.sum(axis=1)), nulls)


@dataclass(frozen=True, slots=True, eq=False)
class StoredValues:
    """Values of a variable-size column where they are stored: neither decoded nor copied."""

    _column: _Values
    _start: int
    _stop: int

    def decode(self) -> list[object] | NDArray[Any]:
        """Return the values, as `gather` does. Raise CorruptError that names the sample."""
        return self._column.decode(self._start, self._stop)

    def items(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where the items of each value begin in its heap, and how many there are (0 of null), int64 [n].

        The column has one-dimensional arrays of numbers. Raise CorruptError that names the sample.
        """
        here = slice(self._start, self._stop)
        begins, counts, wrong = self._column.items
        if wrong[here].any():
            first = self._start + int(wrong[here].argmax())
            self._column.decode(first, first + 1)
        return begins[here], counts[here]

    def __len__(self) -> int:
        return self._stop - self._start

    @property
    def nulls(self) -> NDArray[np.bool_] | None:
        """Return which of the values are null; None if none can be."""
        nulls = self._column.extents.nulls
        return None if nulls is None else nulls[self._start : self._stop]

    @property
    def heaps(self) -> list[memoryview]:
        """Return the heaps that these values are in, and maybe others."""
        return self._column.rows.heaps

    @property
    def sources(self) -> NDArray[np.int64]:
        """Return which of the heaps each value is in, int64 [n]."""
        return self._column.rows.source[self._start : self._stop]


def present(schema: Schema, columns: Mapping[str, Any]) -> Columns:
    """Convert columns from storage form to NumPy's: bool to bool_, types that it lacks to float32 (exactly)."""
    return {
        column.name: numpy_values(column.type, columns[column.name])
        for column in schema.columns
        if column.name in columns
    }


def as_samples(columns: Columns, count: int) -> list[dict[str, Any]]:
    """Return `count` samples from columns. Their arrays are views, so one of them keeps all columns in memory."""
    samples: list[dict[str, Any]] = [{} for _ in range(count)]
    for name, column in columns.items():
        for sample, value in zip(samples, values_of(column), strict=True):
            sample[name] = value
    return samples


def values_of(column: Any) -> Iterable[Any]:
    """Return a column's values as samples have them."""
    if isinstance(column, np.ndarray) and column.dtype == np.bool_ and column.ndim == 1:
        column = column.tolist()  # as Python's bool
    values: Iterable[Any] = column
    return values
