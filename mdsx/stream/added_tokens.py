"""The places of tokens that packing adds to samples, and of the stored values around them.

An item is the part of a sample in one row, added tokens included. Everything is computed for a chunk of batches at
once.
"""

from __future__ import annotations

from operator import getitem
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.stream.extras import IGNORED, Extras
from mdsx.stream.rows import Rows
from mdsx.stream.sources import Source


class AddedTokens:
    """The added tokens of a chunk's items."""

    firsts: NDArray[np.int64]  # each item's first stored value, by its index in the sample
    counts: NDArray[np.int64]  # how many stored values it has

    def __init__(self, rows: Rows, firsts: NDArray[np.int64], lengths: NDArray[np.int64], extras: Extras) -> None:
        """`firsts`: the index of each item's first value; `lengths`: of the items' samples. Both count added tokens."""
        some = rows.sizes > 0
        self._begun = some & (firsts == 0) & (extras.begin is not None)
        ended = some & (firsts + rows.sizes == lengths) & (extras.end is not None)
        self.firsts = np.maximum(firsts - (extras.begin is not None), 0)
        self.counts = rows.sizes - self._begun - ended
        self._rows, self._starts = rows, rows.starts[rows.at]
        begins, ends = np.flatnonzero(self._begun), np.flatnonzero(ended)
        self._places = tuple(
            (rows.cuts(items), places)
            for items, places in (
                (begins, self._starts[begins]),
                (ends, self._starts[ends] + rows.sizes[ends] - 1),
            )
        )

    def pieces(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return how many values each piece of the batches has, and which pieces are stored values.

        A batch of n items has 2n + 1 pieces: each item's stored values, and the gaps before, between and after them.
        """
        rows, parts = self._rows, self._rows.parts
        samples = np.array([part.samples.start for part in parts], np.int64)
        batches = np.arange(len(parts))
        items = 2 * np.arange(len(rows.sizes)) + 1
        items += np.repeat(batches, [part.samples.stop - part.samples.start for part in parts])
        edges = np.empty(2 * len(rows.sizes) + len(parts) + 1, np.int64)
        edges[2 * samples + batches] = rows.starts[[part.stretches.start for part in parts]]
        edges[items] = self._starts + self._begun
        edges[items + 1] = edges[items] + self.counts
        edges[-1] = rows.starts[-1]
        return np.diff(edges), items

    def places(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the places of the begin tokens and of the end tokens in a batch's joined values."""
        start = self._rows.starts[self._rows.parts[number].stretches.start]
        begins, ends = (places[cuts[number]] - start for cuts, places in self._places)
        return begins, ends


class Labels:
    """The next value of the same sample at each place of a chunk's batches."""

    def __init__(
        self,
        rows: Rows,
        source: Source,
        dtype: np.dtype[np.generic],
        firsts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        extras: Extras,
    ) -> None:
        """`source`: the stored tokens, of type `dtype`; the rest as in AddedTokens."""
        ends = firsts + rows.sizes
        items = np.flatnonzero(rows.sizes)
        self._cuts, self._places = rows.cuts(items), (rows.starts[rows.at] + rows.sizes - 1)[items]
        self._next = np.full(len(rows.sizes), IGNORED, np.int64)
        follows = (rows.sizes > 0) & (ends < lengths)  # the next value is in another row
        if extras.end is not None:
            self._next[follows & (ends == lengths - 1)] = extras.end
            follows &= ends < lengths - 1
        stored = ends - (extras.begin is not None)
        found = np.flatnonzero(follows & (stored < source.counts))
        sources, begins = np.broadcast_to(source.sources, len(ends))[found], source.begins[found]
        offsets = begins + stored[found] * dtype.itemsize
        heaps = map(source.heaps.__getitem__, sources.tolist())
        cuts = map(slice, offsets.tolist(), (offsets + dtype.itemsize).tolist())
        stored_items: Any = map(getitem, heaps, cuts)
        self._next[found] = np.frombuffer(b"".join(stored_items), dtype).tolist()
        self._next = self._next[items]
        self._rows = rows

    def of(self, tokens: NDArray[np.integer[Any]], number: int) -> NDArray[np.int64]:
        """Return the labels of batch `number`, which has these tokens."""
        part, here = self._rows.parts[number], self._cuts[number]
        found = np.empty(tokens.size, np.int64)
        found[:-1] = tokens.reshape(-1)[1:]
        found[self._places[here] - self._rows.starts[part.stretches.start]] = self._next[here]
        labels: NDArray[np.int64] = found.reshape(tokens.shape)
        self._rows.pad(labels, part, np.array(IGNORED))
        return labels
