"""Decode single samples of a shard, for random access: arrays of one item would cost more than the sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from struct import Struct
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from mdsx.errors import CorruptError
from mdsx.format.rows import NULL, check_row, heap_extents, row_checksum
from mdsx.format.schema import Schema
from mdsx.format.shard import ShardView
from mdsx.format.values import ValueDecoder, field_decoder, value_decoder

Field = tuple[str, NDArray[Any] | None, Callable[[Any], Any] | None]
"""A column's name; for a fixed-size one, its stored values in all samples of a shard; and their conversion, if any."""


class SampleDecoder:
    """Decodes single samples of shards of `schema`. `columns`: the name that each wanted column gets -> its number."""

    def __init__(self, schema: Schema, columns: Mapping[str, int]) -> None:
        self._schema, self._columns, self._row_size = schema, dict(columns), schema.row_size
        self._head = Struct(f"<QQ{len(schema.variable)}I" if schema.variable else "<Q")
        self._may_be_null = [schema.columns[number].type.nullable for number in schema.variable]
        kinds = {name: schema.columns[number].type for name, number in columns.items()}
        self._fixed = {name: field_decoder(kinds[name]) for name in columns if kinds[name].fixed_size}
        places = {number: place for place, number in enumerate(schema.variable)}
        self._variable: dict[str, tuple[int, ValueDecoder]] = {
            name: (places[number], value_decoder(kinds[name], name))
            for name, number in columns.items()
            if not kinds[name].fixed_size
        }

    def __reduce__(self) -> tuple[object, ...]:
        return SampleDecoder, (self._schema, self._columns)

    def decode(self, view: ShardView, sample: int, *, verify: bool) -> dict[str, Any]:
        """Return the values of sample number `sample`; with `verify`, check it first. Raise CorruptError."""
        at = view.rows_offset + sample * self._row_size
        stored, *extent = self._head.unpack_from(view.buffer, at)
        heap = view.heap
        edges: Sequence[int] = (0, 0)
        lengths: Sequence[int] = ()
        if self._may_be_null:
            start, *lengths = extent
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
            if edges[0] == edges[-1]:
                computed = xxh3_64_intdigest(view.buffer[at + 8 : at + self._row_size], sample)
            else:
                row = view.buffer[at : at + self._row_size]
                computed = row_checksum(row, heap[edges[0] : edges[-1]], sample)
            if computed ^ view.row_key != stored:
                row = view.buffer[at : at + self._row_size]
                check_row(row, heap[edges[0] : edges[-1]], sample, view.row_key, view.file)
        values: dict[str, Any] = {}
        for name, field, read in view.fields.get(self) or self._bind(view):
            if field is not None:
                value = field[sample]
                values[name] = value if read is None else read(value)
                continue
            place, decode = self._variable[name]
            try:
                null = lengths[place] == NULL
                values[name] = None if null else decode(heap[edges[place] : edges[place + 1]])
            except CorruptError as error:
                raise CorruptError(str(error), file=view.file, place=f"sample {sample}, column {name!r}") from error
        return values

    def _bind(self, view: ShardView) -> list[Field]:
        """Return the columns, each fixed-size one as an array over all rows of the shard, and keep them in the view."""
        fields: list[Field] = [
            (name, view.rows[f"column{number}"], self._fixed[name]) if name in self._fixed else (name, None, None)
            for name, number in self._columns.items()
        ]
        view.fields[self] = fields
        return fields

    def _refuse(self, view: ShardView, sample: int) -> NoReturn:
        samples = np.array([sample])
        heap_extents(self._schema, view.rows[samples], len(view.heap), file=view.file, samples=samples)
        raise AssertionError("unreachable")
