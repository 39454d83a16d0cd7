"""Flat batches: all values of a rank's rows in one array, one sample after the other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import UsageError
from mdsx.shards import Columns
from mdsx.stream.rows import Joined, Part, Rows

_MAX_VALUES = 2**31 - 1  # positions are int32


class Flat(NamedTuple):
    """The layout "flat" of rows of at most `capacity` values.

    If it is static, a batch has `capacity` values for each row, with the padding at the end, in segments of at most
    `capacity`. So no segment is longer than `max_seqlen`, and no position exceeds a row.
    """

    capacity: int
    static: bool
    max_segments: int | None
    row_segments: int  # the default of max_segments, for each row
    max_seqlen: str | None

    def rows_of(self, chunk: Joined, sizes: NDArray[np.int64]) -> Rows:
        """Return where the values of successive batches lie."""
        samples = chunk.samples
        if not self.static:
            return Rows(samples, sizes, chunk.edges, chunk.groups, None)
        widths = (np.diff(chunk.groups) * self.capacity).tolist()  # each batch as one row
        found = Rows(samples, sizes, np.array(samples), range(len(samples)), widths)
        found.parts = [part._replace(shape=(width,)) for part, width in zip(found.parts, widths, strict=True)]
        return found

    def keys(self, rows: Rows, part: Part) -> Columns:
        """Return the keys of a batch that map values to samples."""
        if part.shape[0] > _MAX_VALUES:
            hint = "give fewer rows by batch_size="
            expected = f"at most {_MAX_VALUES}"
            raise UsageError("a flat batch is too large", found=part.shape[0], expected=expected, hint=hint)
        bounds = rows.ends[part.samples.start : part.samples.stop + 1]
        ends = (bounds - bounds[0]).astype(np.int32)
        longest, positions = int(rows.sizes[part.samples].max(initial=0)), rows.positions(part)
        if self.static:
            gap = rows.gap(part)
            if gap > self.capacity:
                positions %= self.capacity
            longest = max(longest, min(gap, self.capacity))
            ends = self._padded(ends, part.shape[0])
        capacity = self.max_seqlen == "capacity" or (self.static and self.max_seqlen is None)
        return {
            "position_ids": positions,
            "cu_seqlens": ends,
            "max_seqlen": self.capacity if capacity else longest,
        }

    def _padded(self, ends: NDArray[np.int32], total: int) -> NDArray[np.int32]:
        """Return where segments end, without empty segments and with those of the padding, filled up to a fixed length.

        Raise UsageError if there are more than `max_segments`.
        """
        most = self.max_segments
        if most is None:
            most = total // self.capacity * self.row_segments
        padding = np.arange(int(ends[-1]), total, self.capacity) + self.capacity
        bounds = np.concatenate((ends[:1], ends[1:][np.diff(ends) > 0], np.minimum(padding, total)))
        if len(bounds) - 1 > most:
            raise UsageError(
                "a static batch has more samples than max_segments",
                found=len(bounds) - 1,
                expected=f"at most {most}",
                hint=f"give a larger number, such as max_segments={2 ** (2 * len(bounds)).bit_length()}",
            )
        found = np.full(most + 1, total, np.int32)
        found[: len(bounds)] = bounds
        return found
