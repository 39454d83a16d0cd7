"""The places of values in the samples of MDS shards.

    sample = u32 size of each variable-size column, in column order; then the values of all columns, in column order

A row is an item of the shard's table of offsets (`<u4`). It and the next item are the sample's start and stop in the
shard, which is the heap. Offsets and sizes are checked whenever they are used: a sample must be inside the shard, and
the sizes of its values must add up exactly to its own size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.base.cached import cached_property
from mdsx.format import Rows, Schema, Selection, Values, read_records

OFFSET = np.dtype("<u4")
EDGES = np.dtype((OFFSET, 2))


class Place(NamedTuple):
    """Where a column's value begins: `fixed` bytes after the sizes, and after `varying` variable-size values. `width`:
    its bytes; None if it has the sample's size number `varying`."""

    fixed: int
    varying: int
    width: int | None


@dataclass(frozen=True, eq=False)
class MdsLayout:
    """The columns of a dataset, and the width of each in a sample; None for variable-size ones."""

    schema: Schema
    widths: tuple[int | None, ...]

    @cached_property
    def varying(self) -> int:
        """Return the number of variable-size columns."""
        return self.widths.count(None)

    @cached_property
    def least(self) -> int:
        """Return the bytes of a sample whose variable-size values are empty."""
        return 4 * self.varying + sum(width or 0 for width in self.widths)

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """Return the place of each column."""
        found, fixed, varying = [], 0, 0
        for width in self.widths:
            found.append(Place(fixed, varying, width))
            fixed, varying = fixed + (width or 0), varying + (width is None)
        return tuple(found)

    def locate(self, rows: Rows, columns: Sequence[int]) -> dict[int, NDArray[np.int64] | Values]:
        reached, found = self._reached(rows), dict[int, NDArray[np.int64] | Values]()
        for number in columns:
            fixed, varying, width = self.places[number]
            starts = reached[varying] + fixed
            if self.schema.columns[number].type.fixed_size:
                found[number] = rows.heap_addresses + starts
            else:
                stops = reached[varying + 1] + fixed if width is None else starts + width
                found[number] = Values(starts, stops, None)
        return found

    def copied(self, selection: Selection) -> Selection:
        self.check(selection)
        take, places = np.unique(selection.take, return_inverse=True)
        edges = selection.rows.ctypes.data + take * OFFSET.itemsize
        (edges,) = read_records(edges, EDGES, [len(take)])
        pieces = map(selection.heap.__getitem__, map(slice, *edges.T.tolist()))
        return self.of(selection.file, selection.samples, places, np.diff(edges)[:, 0], b"".join(pieces))

    def of(
        self,
        file: str | None,
        samples: NDArray[np.int64],
        take: NDArray[np.int64],
        sizes: NDArray[np.uint32],
        heap: bytes,
    ) -> Selection:
        """Return a selection of `samples`: the i-th is number `take[i]` in `heap`, which has contiguous samples of
        these `sizes`."""
        offsets = np.zeros(len(sizes) + 1, OFFSET)
        np.cumsum(sizes, out=offsets[1:], dtype=OFFSET)
        return Selection(self, file, samples, offsets[:-1], take, memoryview(heap))

    def check(self, selection: Selection) -> None:
        """Raise CorruptError, which names the sample, unless all samples are well formed."""
        self._reached(Rows.of(selection))

    def _reached(self, rows: Rows) -> NDArray[np.int64]:
        """Return the start of each sample's values plus the sizes of its first v variable-size values, for v from 0 to
        V: int64 [V + 1, n]. Raise CorruptError."""
        count, varying = len(rows.addresses), self.varying
        (edges,) = read_records(rows.addresses, EDGES, [count])
        begins, ends = edges[:, 0].astype(np.int64), edges[:, 1].astype(np.int64)
        sizes = ends - begins
        wrong = (ends > rows.heap_sizes.astype(np.int64)) | (sizes < self.least)
        if wrong.any():
            row = int(wrong.argmax())
            found = f"bytes {begins[row]} to {ends[row]}"
            expected = f"{self.least} or more, within {rows.heap_sizes[row]}"
            raise rows.corrupt(row, "the sample's offsets are wrong", found=found, expected=expected)
        reached = np.empty((varying + 1, count), np.int64)
        reached[0] = begins + 4 * varying
        if varying:
            (claimed,) = read_records(rows.heap_addresses + begins, np.dtype((OFFSET, (varying,))), [count])
            for number in range(varying):
                np.add(reached[number], claimed[:, number], out=reached[number + 1])
        wrong = reached[-1] - reached[0] != sizes - self.least
        if wrong.any():
            row = int(wrong.argmax())
            total = int(reached[-1, row] - reached[0, row]) + self.least
            message = "the sizes of the sample's values do not add up to its own"
            raise rows.corrupt(row, message, found=total, expected=int(sizes[row]))
        return reached
