"""Decode single samples of a shard, for random access. Arrays of one item would cost more than the sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from struct import Struct
from typing import Any, NoReturn

import numpy as np

from mdsx.errors import CorruptError
from mdsx.format.protocol import OpenedShard
from mdsx.format.rows import NULL, check_row, heap_extents, row_checksum
from mdsx.format.schema import Schema
from mdsx.format.shard import ShardView
from mdsx.format.values import field_decoder, value_decoder

_LENGTHS = 2  # index in a row's head of the lengths of variable-size values, after its checksum and `start`
_NOWHERE = 2**64  # beyond any heap

Read = Callable[[int, bool], dict[str, Any]]
"""Reads the sample with this number from one shard; with True, checks it first."""


class SampleDecoder:
    """Decodes single samples of shards of `schema`. `columns`: new name of each wanted column -> its number."""

    def __init__(self, schema: Schema, columns: Mapping[str, int]) -> None:
        self._schema, self._columns = schema, dict(columns)
        self._key = f"{self._columns} of {schema.json.decode()}"  # the same for equal decoders
        self._head = Struct(f"<QQ{len(schema.variable)}I" if schema.variable else "<Q")
        self._may_be_null = [schema.columns[number].type.nullable for number in schema.variable]
        kinds = {name: schema.columns[number].type for name, number in columns.items()}
        self._decoders: dict[str, Any] = {  # None: the fixed-size value needs no conversion
            name: field_decoder(kind) if kind.fixed_size else value_decoder(kind, name) for name, kind in kinds.items()
        }

    def __reduce__(self) -> tuple[object, ...]:
        return SampleDecoder, (self._schema, self._columns)

    def decode(self, view: ShardView, sample: int, *, verify: bool) -> dict[str, Any]:
        """Return the values of sample number `sample`. With `verify`, check it first. Raise CorruptError."""
        read: Read = view.readers.get(self._key) or view.readers.setdefault(self._key, self._reader(view))
        return read(sample, verify)

    def _reader(self, view: ShardView) -> Read:
        """Return a reader of one shard's samples. It must not refer to the view, which keeps it."""
        schema, buffer, rows, heap, file, key = self._schema, view.buffer, view.rows, view.heap, view.file, view.row_key
        first, size, heap_size, unpack = view.rows_offset, schema.row_size, len(heap), self._head.unpack_from
        varying, alone = len(schema.variable) > 0, len(schema.variable) == 1
        places = {number: place for place, number in enumerate(schema.variable, _LENGTHS)}
        columns = [
            (name, places.get(number, 0), None if number in places else rows[f"column{number}"], self._decoders[name])
            for name, number in self._columns.items()
        ]

        def read(sample: int, verify: bool) -> dict[str, Any]:
            at = first + sample * size
            head = unpack(buffer, at)
            piece: bytes | memoryview = b""
            if varying:
                one = alone and head[_LENGTHS] != NULL
                edges = (head[1], head[1] + head[_LENGTHS]) if one else self._edges(*head[1:])
                if edges[-1] > heap_size:
                    refuse(sample)
                piece = heap[edges[0] : edges[-1]]
            if verify and row_checksum(buffer[at + 8 : at + size], piece, sample) ^ key != head[0]:
                check_row(buffer[at : at + size], piece, sample, key, file)
            values: dict[str, Any] = {}
            for name, place, field, decode in columns:
                if field is not None:
                    values[name] = field[sample] if decode is None else decode(field[sample])
                elif head[place] == NULL:
                    values[name] = None
                else:
                    try:
                        values[name] = decode(piece if alone else heap[edges[place - 2] : edges[place - 1]])
                    except CorruptError as error:
                        where = f"sample {sample}, column {name!r}"
                        raise CorruptError(str(error), file=file, place=where) from error
            return values

        def refuse(sample: int) -> NoReturn:
            samples = np.array([sample])
            heap_extents(schema, rows[samples], heap_size, file=file, samples=samples)
            raise AssertionError("unreachable")

        return read

    def _edges(self, start: int, *lengths: int) -> Sequence[int]:
        """Return where each value begins in the heap, and where the last one ends; offsets outside of the heap if there
        is a null that is not allowed."""
        if NULL in lengths:
            if not all(may for may, length in zip(self._may_be_null, lengths, strict=True) if length == NULL):
                return (_NOWHERE,)
            lengths = tuple(0 if length == NULL else length for length in lengths)
        return list(accumulate(lengths, initial=start))


class RowDecoder:
    """A decoder for formats whose selections have our rows (`RowLayout`). It selects each sample and decodes its
    row."""

    def __init__(self, schema: Schema, columns: Mapping[str, int]) -> None:
        self._rows = SampleDecoder(schema, columns)

    def decode(self, shard: OpenedShard, sample: int, *, verify: bool) -> dict[str, Any]:
        found = shard.select(np.array([sample]), verify=verify)
        rows = found.rows[found.take]
        buffer = rows.view(np.uint8).data.toreadonly()
        return self._rows.decode(ShardView(buffer, found.file, found.schema, 0, 0, rows, found.heap), 0, verify=False)
