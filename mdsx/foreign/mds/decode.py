"""Decode single samples, for random access: one pass over a sample's sizes, without one-item arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any, NoReturn

import numpy as np

from mdsx.errors import CorruptError
from mdsx.foreign.mds.layout import MdsLayout
from mdsx.foreign.mds.shard import MdsShard
from mdsx.format import ColumnType, value_decoder

_EDGES = Struct("<II")


class MdsDecoder:
    """Decodes samples of shards with this layout. `columns`: new name -> number of each wanted column."""

    def __init__(self, layout: MdsLayout, columns: Mapping[str, int]) -> None:
        self._layout, self._columns = layout, dict(columns)
        sizes = Struct(f"<{layout.varying}I")
        self._sizes, self._head, self._least = sizes.unpack_from, sizes.size, layout.least
        self._steps: list[tuple[str, int, int, int | None, bool, Any]] = []
        for name, number in columns.items():
            kind, place = layout.schema.columns[number].type, layout.places[number]
            decode: Any = _reader(kind) if kind.fixed_size else value_decoder(kind, name)
            self._steps.append((name, *place, kind.fixed_size, decode))

    def __reduce__(self) -> tuple[object, ...]:
        return MdsDecoder, (self._layout, self._columns)

    def decode(self, shard: MdsShard, sample: int, *, verify: bool) -> dict[str, Any]:
        """Return the values of sample number `sample`, whose form is always checked. Raise CorruptError."""
        buffer = shard.buffer
        begin, end = _EDGES.unpack_from(buffer, 4 * sample + 4)
        if not begin + self._least <= end <= len(buffer):
            self._refuse(shard, sample)
        sizes, reached = self._sizes(buffer, begin), begin + self._head
        edges = [reached]
        for size in sizes:
            reached += size
            edges.append(reached)
        if end - reached != self._least - self._head:
            self._refuse(shard, sample)
        values: dict[str, Any] = {}
        for name, fixed, varying, width, here, decode in self._steps:
            start = edges[varying] + fixed
            if here:
                values[name] = decode(buffer, start)
                continue
            try:
                values[name] = decode(buffer[start : start + (sizes[varying] if width is None else width)])
            except CorruptError as error:
                raise CorruptError(str(error), file=shard.file, place=f"sample {sample}, column {name!r}") from error
        return values

    def _refuse(self, shard: MdsShard, sample: int) -> NoReturn:
        shard.select(np.array([sample]), verify=True)
        raise AssertionError("unreachable")


def _reader(kind: ColumnType) -> Callable[[memoryview, int], Any]:
    """Return a function that reads a number, or a new array, from a buffer at an offset."""
    dtype = kind.item_dtype
    if kind.shape is not None:
        shape = [dim or 0 for dim in kind.shape]
        return lambda buffer, at: np.ndarray(shape, dtype, buffer, at).copy()
    if dtype.kind == "f":  # struct would change some NaNs
        return lambda buffer, at: np.ndarray((), dtype, buffer, at)[()]
    number, letter = dtype.type, {1: "b", 2: "h", 4: "i", 8: "q"}[dtype.itemsize]
    unpack = Struct("<" + (letter if dtype.kind == "i" else letter.upper())).unpack_from
    return lambda buffer, at: number(unpack(buffer, at)[0])
