"""Selections of many shards -> columns, batch by batch: the only place where samples are copied.

One NumPy call a batch copies the rows of a fixed-size column; the values of a variable-size one are cut from the heaps
and decoded one by one. Columns are in *storage form*: `bool` as uint8, `bfloat16` as uint16; `present` turns them into
the types that NumPy users expect.

NumPy gathers from one array, but the samples of a batch lie in dozens of mapped shards. So `read_records` lays an array
over all of them, with a record at each byte from the first one wanted to the last; only the wanted items are touched.
Only this function reads memory by address. Its caller guarantees every address (`Selection.addresses` checks
them against the rows that it holds) and keeps the memory alive until the call returns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import CorruptError
from mdsx.format import NULL, Column, Extents, Schema, Selection, ValuesDecoder, numpy_values, values_decoder

Columns = dict[str, Any]  # name -> array [n, ...] of a fixed-size column, list of n values of a variable-size one

Source = tuple[Selection, tuple[int, ...]]
"""Samples, and the number of each result column in their schema."""

_EXTENTS = 8  # where in a row `start` and `lengths` are


def gather(
    schema: Schema, sources: Sequence[Source], places: NDArray[np.int64], sizes: Sequence[int], *, views: bool = False
) -> Iterator[Columns]:
    """Yield columns, in storage form, of the first `sizes[0]` samples of a result, of the next `sizes[1]`, and so on.

    `places[i]` is the place in the result of sample i of all sources, concatenated. With `views`, values of `bytes`,
    `jpeg` and `png` columns are memory views of the shards, not copies. Raise CorruptError that names the sample.
    """
    rows = _Rows.find(sources, places)
    fixed = {
        number: read_records(rows.fields(number), schema.columns[number].type.field_dtype, sizes)
        for number in schema.fixed
    }
    extents = rows.extents(schema.variable)
    varying = {
        number: (extents[number], values_decoder(_stored(schema.columns[number]), views=views))
        for number in schema.variable
    }
    for start, stop in pairwise(accumulate(sizes, initial=0)):
        yield {
            column.name: next(fixed[number])
            if number in fixed
            else rows.values(*varying[number], start, stop, column.name)
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


def _stored(column: Column) -> Column:
    """Return the column with bfloat16 as uint16, since NumPy has no such type."""
    return replace(column, type=replace(column.type, base="uint16")) if column.type.base == "bfloat16" else column


@dataclass(frozen=True, slots=True, eq=False)
class _Values:
    """The extents of one column's values in the samples' heaps, and which are null."""

    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    nulls: NDArray[np.bool_] | None


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """The rows of a result's samples, in order of the result."""

    sources: Sequence[Source]
    source: NDArray[np.int64]  # [n], the number of the sample's source
    samples: NDArray[np.int64]  # [n], the sample's number in its shard
    addresses: NDArray[np.int64]  # [n]

    @classmethod
    def find(cls, sources: Sequence[Source], places: NDArray[np.int64]) -> _Rows:
        found = [np.empty_like(places) for _ in range(3)]
        if len(places):
            found[0][places] = np.repeat(np.arange(len(sources)), [len(selection.take) for selection, _ in sources])
            found[1][places] = np.concatenate([selection.samples for selection, _ in sources])
            found[2][places] = np.concatenate([selection.addresses for selection, _ in sources])
        return cls(sources, *found)

    def layouts(self) -> Iterator[tuple[Schema, tuple[int, ...], Any]]:
        """Yield each kind of row, its wanted columns, and which samples have it. Usually there is one kind."""
        kinds = {(id(selection.schema), columns): selection.schema for selection, columns in self.sources}
        numbers = {kind: number for number, kind in enumerate(kinds)}
        kind_of = np.array([numbers[id(selection.schema), columns] for selection, columns in self.sources], np.int64)
        for number, ((_, columns), schema) in enumerate(kinds.items()):
            yield schema, columns, slice(None) if len(kinds) == 1 else kind_of[self.source] == number

    def fields(self, number: int) -> NDArray[np.int64]:
        """Return the addresses of the values of fixed-size column `number`."""
        found = self.addresses.copy()
        for schema, columns, here in self.layouts():
            found[here] += schema.row_dtype.fields[f"column{columns[number]}"][1]  # type: ignore[index]  # has fields
        return found

    def extents(self, numbers: Sequence[int]) -> dict[int, _Values]:
        """Return the extents of variable-size columns. Raise CorruptError for a sample whose bytes leave the heap."""
        if not numbers:
            return {}
        starts, sizes = ({number: np.empty_like(self.addresses) for number in numbers} for _ in range(2))
        nulls = {number: np.zeros(len(self.addresses), np.bool_) for number in numbers}
        heap_sizes = np.array([len(selection.heap) for selection, _ in self.sources], np.uint64)
        for schema, columns, here in self.layouts():
            at, source = self.addresses[here] + _EXTENTS, self.source[here]
            (claimed,) = read_records(at, schema.extents_dtype, [len(at)])
            extents = Extents.of(schema, claimed, heap_sizes[source])
            if (wrong := extents.wrong).any():
                first = int(wrong.argmax())
                file = self.sources[source[first]][0].file
                raise extents.problem(first, file=file, sample=int(self.samples[here][first]))
            for number in numbers:
                place = schema.variable.index(columns[number])
                starts[number][here] = extents.starts.astype(np.int64) + extents.sizes[:, :place].sum(axis=1)
                sizes[number][here] = extents.sizes[:, place]
                nulls[number][here] = extents.lengths[:, place] == NULL
        return {
            number: _Values(
                starts[number], starts[number] + sizes[number], nulls[number] if nulls[number].any() else None
            )
            for number in numbers
        }

    def values(self, extents: _Values, decode: ValuesDecoder, start: int, stop: int, name: str) -> list[object]:
        """Return the values of a column in samples [start, stop)."""
        wanted: Any = slice(start, stop)
        if extents.nulls is not None:
            wanted = start + np.flatnonzero(~extents.nulls[wanted])
        try:
            values = decode(self._pieces(extents, wanted))
        except CorruptError:
            self._blame(extents, decode, wanted, name)
            raise
        if extents.nulls is None:
            return values
        found: list[object] = [None] * (stop - start)
        for place, value in zip((wanted - start).tolist(), values, strict=True):
            found[place] = value
        return found

    def _pieces(self, extents: _Values, wanted: Any) -> Iterator[memoryview]:
        cuts = map(slice, extents.starts[wanted].tolist(), extents.stops[wanted].tolist())
        heaps = [selection.heap for selection, _ in self.sources]
        if len(heaps) == 1:
            return map(heaps[0].__getitem__, cuts)
        return map(memoryview.__getitem__, map(heaps.__getitem__, self.source[wanted].tolist()), cuts)

    def _blame(self, extents: _Values, decode: ValuesDecoder, wanted: Any, name: str) -> None:
        """Raise the decoder's error again, with the sample and column."""
        for place, piece in zip(
            np.arange(len(self.source))[wanted].tolist(), self._pieces(extents, wanted), strict=True
        ):
            try:
                decode([piece])
            except CorruptError as error:
                file = self.sources[self.source[place]][0].file
                at = f"sample {self.samples[place]}, column {name!r}"
                raise CorruptError(str(error), file=file, place=at) from error


def present(schema: Schema, columns: Mapping[str, Any]) -> Columns:
    """Convert columns from storage form to NumPy's: bool to bool_, bfloat16 to float32 (exactly)."""
    return {
        column.name: numpy_values(column.type, columns[column.name])
        for column in schema.columns
        if column.name in columns
    }


class _Span:
    """`count` overlapping records of `size` bytes, one at each byte from address `start` on, as NumPy's protocol."""

    def __init__(self, start: int, count: int, size: int) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (start, True),
            "shape": (count,),
            "strides": (1,),
            "typestr": f"|V{size}",
        }


def read_records(addresses: NDArray[np.int64], dtype: np.dtype[Any], sizes: Sequence[int]) -> Iterator[NDArray[Any]]:
    """Yield the values of `dtype` (maybe a subarray or structured) at `addresses`, [n, ...]: the first `sizes[0]`, the
    next `sizes[1]` and so on, each as an array of its own. Addresses need not be aligned."""
    start, size = 0, dtype.itemsize
    if len(addresses) and size:
        low = int(addresses.min())
        span = np.asarray(_Span(low, int(addresses.max()) - low + 1, size))
        addresses = addresses - low
    for count in sizes:
        shape = (count, *dtype.shape)
        if count and size:
            yield span[addresses[start : start + count]].view(dtype.base).reshape(shape)
        else:
            yield np.empty(shape, dtype.base)
        start += count
