"""A packed column: copy its values once, from where they are stored into batches.

Python slices and joins memory views, two cheap operations per sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from operator import getitem
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import UsageError
from mdsx.format import ColumnType, always_fits, cast, first_outside
from mdsx.stream.added_tokens import AddedTokens
from mdsx.stream.casts import How
from mdsx.stream.rows import Part, Rows
from mdsx.stream.sources import PlaceOf, Source


class PackedColumn:
    """A packed column of a chunk of batches: the stored items of each piece, to be joined."""

    def __init__(
        self,
        name: str,
        how: How,
        source: Source,
        firsts: NDArray[np.int64],
        rows: Rows,
        place_of: PlaceOf,
        added: AddedTokens | None = None,
        tokens: Sequence[NDArray[Any] | None] = (),
    ) -> None:
        """`added`: the places of added tokens, if any. `tokens` are then the begin and end tokens; without them, added
        places get the column's pad value."""
        self._name, self._how, self._rows, self._place_of, self._check = name, how, rows, place_of, source.check
        self._kind, self._cast = ColumnType(how.source), how.source != how.target
        self._fits, self._pads = always_fits(how.source, how.target), bool(np.any(how.pad))
        self._dtype, size, self._highest = self._kind.item_dtype, self._kind.nbytes, self._kind.number.highest
        self._added, self._tokens = added, [how.pad if token is None else token for token in tokens]
        counts, at, gap = rows.counts, rows.at, rows.longest_gap
        if added is not None:
            (counts, at), firsts = added.pieces(), added.firsts
            gaps = counts.copy()
            gaps[at] = 0
            gap = int(gaps.max(initial=0))
        padding = (bytes(size) if self._cast else how.pad.tobytes()) * gap
        heaps = [*source.heaps, memoryview(padding)]
        which, starts = np.full(len(counts), len(source.heaps)), np.zeros(len(counts), np.int64)
        which[at], starts[at] = source.sources, source.begins + firsts * size
        cuts = map(slice, starts.tolist(), (starts + counts * size).tolist())
        self._pieces: Any = map(getitem, map(heaps.__getitem__, which.tolist()), cuts)

    def next(self, number: int) -> NDArray[Any]:
        """Return the rows of the next batch, number `number`."""
        part = self._rows.parts[number]
        pieces = part.pieces if self._added is None else 2 * (part.samples.stop - part.samples.start) + 1
        items = np.ndarray(part.shape, self._dtype, bytearray().join(islice(self._pieces, pieces)))
        if self._highest is not None and items.size and int(items.max()) > self._highest:
            self._check()
        if self._cast:
            items = self._as_target(items, part)
        if self._added is not None:
            for places, token in zip(self._added.places(number), self._tokens, strict=True):
                items.reshape(-1)[places] = token
        return items

    def _as_target(self, items: NDArray[Any], part: Part) -> NDArray[Any]:
        """Return a batch's items in the batch's type."""
        how = self._how
        if not self._fits and (wrong := first_outside(items, how.target)) is not None:
            raise UsageError(
                "a value does not fit the column's type in the batch",
                place=f"{self._place_of(self._rows.sample_at(part, wrong))}, column {self._name!r}",
                found=int(items.flat[wrong]),
                expected=how.target,
                hint="give a wider type by dtypes=",
            )
        found = cast(items, how.source, how.target)
        if self._pads:
            self._rows.pad(found, part, how.pad)
        return found
