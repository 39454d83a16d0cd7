"""One sample of a shard -> its values: for random access, where arrays of one item would cost more than the sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from struct import Struct
from typing import Any, NoReturn

import numpy as np

from mdsx.errors import CorruptError
from mdsx.format.rows import NULL, check_row, heap_extents
from mdsx.format.schema import Schema
from mdsx.format.shard import ShardView
from mdsx.format.types import ColumnType
from mdsx.format.values import Decoder, numpy_values, value_decoder


class SampleDecoder:
    """Decodes samples of shards of `schema`; `columns`: the number of each column wanted, by the name it gets."""

    def __init__(self, schema: Schema, columns: Mapping[str, int]) -> None:
        self._schema, self._columns, self._row_size = schema, dict(columns), schema.row_size
        self._extents = Struct(f"<Q{len(schema.variable)}I")
        self._may_be_null = [schema.columns[number].type.nullable for number in schema.variable]
        kinds = {name: schema.columns[number].type for name, number in columns.items()}
        self._fixed = {
            name: _field_reader(kinds[name], schema.row_dtype.fields[f"column{number}"][1])  # type: ignore[index]
            for name, number in columns.items()
            if kinds[name].fixed_size
        }
        places = {number: place for place, number in enumerate(schema.variable)}
        self._variable: dict[str, tuple[int, Decoder]] = {
            name: (places[number], value_decoder(kinds[name], name))
            for name, number in columns.items()
            if not kinds[name].fixed_size
        }

    def __reduce__(self) -> tuple[object, ...]:
        return SampleDecoder, (self._schema, self._columns)

    def decode(self, view: ShardView, sample: int, *, verify: bool) -> dict[str, Any]:
        """The values of a sample that the shard has; with `verify` after its checksum. Raises CorruptError."""
        at = view.rows_offset + sample * self._row_size
        row, heap = view.buffer[at : at + self._row_size], view.heap
        edges: Sequence[int] = (0, 0)
        lengths: Sequence[int] = ()
        if self._may_be_null:
            start, *lengths = self._extents.unpack_from(row, 8)
            if NULL in lengths:
                if not all(may for may, length in zip(self._may_be_null, lengths, strict=True) if length == NULL):
                    self._refuse(view, sample)
                edges = list(accumulate((0 if length == NULL else length for length in lengths), initial=start))
            elif len(lengths) == 1:
                edges = start, start + lengths[0]
            else:
                edges = list(accumulate(lengths, initial=start))
            if edges[-1] > len(heap):
                self._refuse(view, sample)
        if verify:
            check_row(
                row, heap[edges[0] : edges[-1]], sample, int.from_bytes(row[:8], "little"), view.row_key, view.file
            )
        values: dict[str, Any] = {}
        for name in self._columns:
            read = self._fixed.get(name)
            if read is not None:
                values[name] = read(row)
                continue
            place, decode = self._variable[name]
            try:
                null = lengths[place] == NULL
                values[name] = None if null else decode(heap[edges[place] : edges[place + 1]])
            except CorruptError as error:
                raise CorruptError(str(error), file=view.file, place=f"sample {sample}, column {name!r}") from error
        return values

    def _refuse(self, view: ShardView, sample: int) -> NoReturn:
        samples = np.array([sample])
        heap_extents(self._schema, view.rows[samples], len(view.heap), file=view.file, samples=samples)
        raise AssertionError("unreachable")


def _field_reader(kind: ColumnType, offset: int) -> Callable[[memoryview], Any]:
    dtype, shape = kind.item_dtype, kind.shape
    count = kind.nbytes // dtype.itemsize
    public = kind.base in ("bool", "bfloat16")

    def read(row: memoryview) -> Any:
        items = np.frombuffer(row, dtype, count, offset) if count else np.empty(0, dtype)
        value = items[0] if shape is None else items.reshape(shape).copy()  # type: ignore[arg-type]  # no stars
        return numpy_values(kind, value) if public else value

    return read
