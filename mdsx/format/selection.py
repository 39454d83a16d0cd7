"""Samples that were located and checked, but not yet copied: their rows, and the values in rows and heaps.

A batch has samples of dozens of shards. So a `SampleLayout` locates the values in the rows of all of them at once. One
object serves all shards of a dataset. `RowLayout` is the layout of our own format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mdsx.base.cached import cached_property
from mdsx.errors import CorruptError
from mdsx.format.encoded import Encoded
from mdsx.format.records import read_records
from mdsx.format.rows import NULL, Extents, heap_extents
from mdsx.format.schema import Schema

_EXTENTS = 8  # offset of `start` and `lengths` in a row of our own format


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """Samples of one shard that were located and checked, but not yet copied.

    `samples` (int64 [n]): their numbers in the shard. The row of sample i is `rows[take[i]]`. `layout` defines what a
    row is, and how to find values in it or in `heap`.
    """

    layout: SampleLayout
    file: str | None
    samples: NDArray[np.int64]
    rows: NDArray[Any]
    take: NDArray[np.int64]
    heap: memoryview

    @classmethod
    def of(cls, schema: Schema, file: str, samples: NDArray[np.int64], encoded: Encoded) -> Selection:
        """Return a selection of `samples` from their encoded values, for formats that convert what they read."""
        rows = np.zeros(encoded.samples, schema.row_dtype)
        for number, items in zip(schema.fixed, encoded.fixed, strict=True):
            rows[f"column{number}"] = items
        if schema.variable:
            rows["start"][1:] = encoded.stops[:-1]
            rows["lengths"] = encoded.lengths
        return cls(RowLayout(schema), file, samples, rows, np.arange(encoded.samples), encoded.heap.data)

    @property
    def schema(self) -> Schema:
        return self.layout.schema

    @property
    def addresses(self) -> NDArray[np.int64]:
        """Return the addresses of the rows in memory, int64 [n], which are valid as long as this object lives."""
        if len(self.take) and int(self.take.view(np.uint64).max()) >= len(
            self.rows
        ):  # as uint64, a negative number is large
            raise IndexError(f"sample {self.take.max()} of {len(self.rows)} in {self.file}")
        return self.take * self.rows.itemsize + self.rows.ctypes.data

    def each(self) -> list[Selection]:
        """Return a selection for each sample."""
        cuts = [slice(place, place + 1) for place in range(len(self.take))]
        return [replace(self, samples=self.samples[cut], take=self.take[cut]) for cut in cuts]

    def copied(self) -> Selection:
        """Return a copy of the samples that does not need their shard."""
        return self.layout.copied(self)


@dataclass(eq=False)
class Rows:
    """Rows of `selections` with the same layout, of one shard or of many, in any order.

    `source` (int64 [n]): the number of each row's selection; `samples` (int64 [n]): the number of its sample in its
    shard; `addresses` (int64 [n]): its address in memory.
    """

    selections: Sequence[Selection]
    source: NDArray[np.int64]
    samples: NDArray[np.int64]
    addresses: NDArray[np.int64]

    @classmethod
    def of(cls, selection: Selection) -> Rows:
        """Return the rows of one selection."""
        return cls([selection], np.zeros(len(selection.take), np.int64), selection.samples, selection.addresses)

    @cached_property
    def heap_sizes(self) -> NDArray[np.uint64]:
        """uint64 [n]: the size of each row's heap."""
        sizes = np.array([len(heap) for heap in self.heaps], np.uint64)
        return sizes[self.source]

    @cached_property
    def heap_addresses(self) -> NDArray[np.int64]:
        """int64 [n]: the address of each row's heap."""
        found = [np.frombuffer(heap, np.uint8).ctypes.data for heap in self.heaps]
        return np.array(found, np.int64)[self.source]

    @cached_property
    def heaps(self) -> list[memoryview]:
        """The heap of each selection."""
        return [selection.heap for selection in self.selections]

    def file(self, row: int) -> str | None:
        return self.selections[int(self.source[row])].file

    def corrupt(self, row: int, message: str, *, found: object = None, expected: object = None) -> CorruptError:
        """Return an error that names the sample of a row."""
        return CorruptError(
            message, file=self.file(row), place=f"sample {self.samples[row]}", found=found, expected=expected
        )

    def __getitem__(self, here: NDArray[np.bool_]) -> Rows:
        return Rows(self.selections, self.source[here], self.samples[here], self.addresses[here])


class Values(NamedTuple):
    """The extents of one column's values in the samples' heaps, int64 [n], and which values are null (None: none).

    `bare`: which values are one-dimensional arrays that are stored without their dimension, bool [n] or one bool for
    all.
    """

    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    nulls: NDArray[np.bool_] | None
    bare: NDArray[np.bool_] | bool = False


class JoinedValues(NamedTuple):
    """The stored values of one variable-size column, back to back. Null has no bytes."""

    data: bytes | memoryview
    edges: NDArray[np.int64]
    """[n + 1]: where each value begins, and where the last one ends."""
    nulls: NDArray[np.bool_] | None


class SampleLayout(Protocol):
    """Locates the values of rows. One object serves all shards of a dataset."""

    @property
    def schema(self) -> Schema: ...

    def locate(self, rows: Rows, columns: Sequence[int]) -> dict[int, NDArray[np.int64] | Values]:
        """Return for each column number the addresses (int64 [n]) of a fixed-size column's values, or the extents of a
        variable-size column's values within the heaps. Raise CorruptError that names a sample."""

    def copied(self, selection: Selection) -> Selection:
        """Return a copy of the samples that does not need their shard. Raise CorruptError."""


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The layout of our own format. A row has the fixed-size values, and `start` and `lengths` of the others in the
    heap."""

    schema: Schema

    def locate(self, rows: Rows, columns: Sequence[int]) -> dict[int, NDArray[np.int64] | Values]:
        schema = self.schema
        found: dict[int, NDArray[np.int64] | Values] = {}
        fields: Any = schema.row_dtype.fields
        varying = [number for number in columns if not schema.columns[number].type.fixed_size]
        for number in columns:
            if number not in varying:
                found[number] = rows.addresses + fields[f"column{number}"][1]
        if not varying:
            return found
        (claimed,) = read_records(rows.addresses + _EXTENTS, schema.extents_dtype, [len(rows.addresses)])
        extents = Extents.of(schema, claimed, rows.heap_sizes)
        if (wrong := extents.wrong).any():
            first = int(wrong.argmax())
            raise extents.problem(first, file=rows.file(first), sample=int(rows.samples[first]))
        starts = extents.starts.astype(np.int64)
        for place, number in enumerate(schema.variable):
            stops = starts + extents.sizes[:, place]
            if number in varying:
                nulls = extents.lengths[:, place] == NULL
                found[number] = Values(starts, stops, nulls if nulls.any() else None)
            starts = stops
        return found

    def copied(self, selection: Selection) -> Selection:
        rows, heap = selection.rows[selection.take], b""
        if self.schema.variable:
            low, high, _ = heap_extents(
                self.schema, rows, len(selection.heap), file=selection.file, samples=selection.samples
            )
            rows["start"] = np.cumsum(high - low) - (high - low)
            heap = b"".join(map(selection.heap.__getitem__, map(slice, low.tolist(), high.tolist())))
        return Selection(self, selection.file, selection.samples, rows, np.arange(len(rows)), memoryview(heap))
