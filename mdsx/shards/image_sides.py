"""The heights and widths of encoded images, read from their headers without decoding pixels.

Rules:
- Sizes are those of the image as displayed: an EXIF orientation that turns it by 90 degrees swaps height and width.
- Null, and a value whose header cannot be read, have height and width 0. An error is raised only when a run reads such
  a value.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from mdsx.base.process import REQUESTS, Share
from mdsx.decoding import SizeOf, header_reader
from mdsx.errors import UsageError
from mdsx.format import BYTES, STORED_LENGTH, StoredIndex, has_sides, values_of_selection
from mdsx.shards.row_lengths import shards_of_column
from mdsx.shards.stored import StoredShards
from mdsx.storage import Storage

_AT_ONCE = 8  # shards
_BYTES_AT_ONCE = 2**28

Sides = tuple[NDArray[np.uint32], NDArray[np.uint32]]
"""Heights and widths."""


def image_column(index: StoredIndex, name: str | None, *, url: str) -> int:
    """Return the number of a column of encoded images; without a name, of the only one. Raise UsageError."""
    columns = index.schema.columns
    good = [column.name for column in columns if has_sides(column.type) and (name or column.type.base != BYTES.name)]
    if name is None and len(good) == 1:
        (name,) = good
    if name in good:
        return next(number for number, column in enumerate(columns) if column.name == name)
    message = "there is no column of images" if name is None else "this column does not have encoded images"
    if name is None and good:
        message = "there are several columns of images"
    place = None if name is None else f"column {str(name)[:80]!r}"
    hint = "name the column" if name is None else None
    expected = ", ".join(good) or "a column of type jpeg, png, webp or bytes"
    raise UsageError(message, file=url, place=place, expected=expected, hint=hint)


def stored_sides(
    storage: Storage,
    index: StoredIndex,
    column: int,
    numbers: Sequence[int],
    *,
    beside: Storage | None = None,
    watch: Callable[[int, int], object] = lambda shards, samples: None,
) -> list[Sides]:
    """Return the heights and widths of a column's images in each of the shards `numbers`. `beside`: the index's
    storage, if not `storage`. `watch`: called with the numbers of shards and samples read. Raise CorruptError for a
    damaged shard, and UsageError without Pillow."""
    size_of = header_reader()
    shards, projected, place = shards_of_column(storage, index, column, beside)
    pool = Share(REQUESTS)
    most = max(int(projected.raw_sizes.max(initial=0)), 1)
    width = max(1, min(_AT_ONCE, _BYTES_AT_ONCE // most))
    found, samples = list[Sides](), 0
    of_shard = partial(_of_shard, shards, place, index.counts, size_of)
    with warnings.catch_warnings():  # not in the pool's threads: all threads have the same filters
        warnings.filterwarnings("ignore", module=r"PIL\.")  # about large sizes and damage: nothing is decoded
        for start in range(0, len(numbers), width):
            for each in pool.map(of_shard, numbers[start : start + width]):
                found.append(each)
                samples += len(each[0])
            watch(len(found), samples)
    return found


def _of_shard(
    shards: StoredShards, column: int, counts: NDArray[np.int64], size_of: SizeOf, shard: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    selection = shards.select(shard, np.arange(int(counts[shard])))
    sizes = [(0, 0) if value is None else size_of(value) for value in values_of_selection(selection, column)]
    heights, widths = np.array(sizes, STORED_LENGTH).reshape(-1, 2).T
    return np.ascontiguousarray(heights), np.ascontiguousarray(widths)
