"""Decode single documents, for random access, without one-item arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mdsx.foreign.tokens.layout import MODE, TokensLayout
from mdsx.foreign.tokens.shard import TokensShard


class TokensDecoder:
    """Decodes documents of shards with this layout. `columns`: new name -> number of each wanted column."""

    def __init__(self, layout: TokensLayout, columns: Mapping[str, int]) -> None:
        self._layout, self._columns = layout, dict(columns)
        found = ((name, layout.schema.columns[number]) for name, number in columns.items())
        self._steps = [(name, column.name, column.type.item_dtype) for name, column in found]

    def __reduce__(self) -> tuple[object, ...]:
        return TokensDecoder, (self._layout, self._columns)

    def decode(self, shard: TokensShard, sample: int, *, verify: bool) -> dict[str, Any]:
        """Return the values of document number `sample`, whose edges are always checked. Raise CorruptError."""
        layout, edges = self._layout, shard.table["edge"]
        begin, end, tokens = int(edges[sample]), int(edges[sample + 1]), len(shard.buffer) // layout.stride
        wrong = not begin <= end <= tokens or layout.every not in (None, end - begin)
        if wrong or (verify and shard.hashed):
            shard.select(np.array([sample]), verify=True).copied()  # raises an error if it is damaged
        values: dict[str, Any] = {}
        for name, column, dtype in self._steps:
            if column == MODE:
                values[name] = shard.table[MODE][sample]
                continue
            first, width = tokens * layout.before[column], dtype.itemsize
            values[name] = np.ndarray((end - begin,), dtype, shard.buffer, first + begin * width).copy()
        return values
