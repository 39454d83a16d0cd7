"""Decode single samples of tars, for random access, without one-item arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from mdsx.errors import CorruptError
from mdsx.foreign.tars.layout import TarLayout
from mdsx.foreign.tars.pointers import START
from mdsx.foreign.tars.shard import TarShard
from mdsx.format import NULL, ColumnType, ShardView, field_decoder, value_decoder

_Field = tuple[str, NDArray[Any] | None, int, Callable[[Any], Any] | None]
"""A column's name; its values in all samples, if they are in the rows; its place in `extents`, if it is pointed; and
the conversion of its values or bytes."""


class TarDecoder:
    """Decodes samples of tars with this layout. `columns`: new name -> number of each wanted column."""

    def __init__(self, layout: TarLayout, columns: Mapping[str, int]) -> None:
        self._layout, self._columns = layout, dict(columns)
        fields: Any = layout.row_dtype.fields
        self._at, self._row_size = fields[f"column{START}"][1], layout.row_dtype.itemsize
        self._head = Struct(f"<QQI{2 * len(layout.pointers.pointed)}I").unpack_from
        self._lengths = Struct(f"<Q{len(layout.pointers.inline)}I").unpack_from
        self._inline = [2 * layout.places[number] for number in layout.pointers.inline]
        self._decoders = {name: _decoder(layout.schema.columns[number].type, name) for name, number in columns.items()}

    def __reduce__(self) -> tuple[object, ...]:
        return TarDecoder, (self._layout, self._columns)

    def decode(self, shard: TarShard, sample: int, *, verify: bool) -> dict[str, Any]:
        """Return the values of sample number `sample`; with `verify`, check it first. Raise CorruptError."""
        view, buffer = shard.pointers.view, shard.buffer
        at = view.rows_offset + sample * self._row_size
        start, checksum, size, *extents = self._head(view.buffer, at + self._at)
        piece = buffer[start : start + size]
        if len(piece) != size or not shard.pointers.checksums or (verify and xxh3_64_intdigest(piece) != checksum):
            shard.pointers.check(sample, piece)
        inline = self._inline_bytes(view, at) if len(view.heap) else {}
        values: dict[str, Any] = {}
        for name, field, place, decode in shard.readers.get(self) or self._bind(shard):
            if field is not None:
                values[name] = field[sample] if decode is None else decode(field[sample])
                continue
            begin, size = extents[place : place + 2]
            if begin + size > len(piece):
                if size != NULL or not self._layout.schema.columns[self._columns[name]].type.nullable:
                    self._refuse(shard, sample)
                values[name] = None
                continue
            data = piece[begin : begin + size]
            if place in inline:
                data = memoryview(b"".join((inline[place], data)))
            try:
                values[name] = decode(data)  # type: ignore[misc]
            except CorruptError as error:
                raise CorruptError(str(error), file=shard.file, place=f"sample {sample}, column {name!r}") from error
        return values

    def _inline_bytes(self, view: ShardView, at: int) -> dict[int, memoryview]:
        """Return the inline bytes of a sample's values, by their place in `extents`. Its pointers begin at `at`."""
        reached, *lengths = self._lengths(view.buffer, at + 8)
        found = {}
        for place, length in zip(self._inline, lengths, strict=True):
            if length:
                found[place] = view.heap[reached : reached + length]
                reached += length
        return found

    def _bind(self, shard: TarShard) -> list[_Field]:
        """Return the columns, and keep them in the shard."""
        layout, rows, fields = self._layout, shard.pointers.view.rows, list[_Field]()
        for name, number in self._columns.items():
            if (own := layout.pointers.values.get(number)) is not None:
                fields.append((name, rows[f"column{own}"], -1, self._decoders[name]))
            else:
                fields.append((name, None, 2 * layout.places[number], self._decoders[name]))
        shard.readers[self] = fields
        return fields

    def _refuse(self, shard: TarShard, sample: int) -> NoReturn:
        shard.select(np.array([sample]), verify=False).copied()
        raise AssertionError("unreachable")


def _decoder(kind: ColumnType, name: str) -> Callable[[Any], Any] | None:
    """Return the conversion from a stored item, or stored bytes, to the user's value; None if there is none."""
    return field_decoder(kind) if kind.fixed_size and kind.shape is None else value_decoder(kind, name)
