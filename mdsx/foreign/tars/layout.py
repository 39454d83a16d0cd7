"""The places of values in an indexed tar's samples: a row is a row of its pointer shard, and the heap is the tar.

Values with inline bytes are not contiguous in the tar. Samples with such values are converted: each is copied, followed
by these values, and its row points there. So the rows of a selection never have inline bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mdsx.base.cached import cached_property
from mdsx.errors import CorruptError
from mdsx.foreign.tars.pointers import EXTENTS, SIZE, START, PointerSchema
from mdsx.format import NULL, Rows, Schema, Selection, ShardView, Values, read_records

if TYPE_CHECKING:
    from typing_extensions import Buffer

_START, _SIZE, _EXTENTS = f"column{START}", f"column{SIZE}", f"column{EXTENTS}"


@dataclass(frozen=True, eq=False)
class TarLayout:
    """The layout of all tars of a dataset."""

    pointers: PointerSchema

    @property
    def schema(self) -> Schema:
        return self.pointers.dataset

    @cached_property
    def row_dtype(self) -> np.dtype[np.void]:
        return self.pointers.schema.row_dtype

    @cached_property
    def head(self) -> tuple[int, np.dtype[np.void]]:
        """Return the offset of `start`, `size` and `extents` in a row, and their dtype."""
        fields: Any = self.row_dtype.fields
        names = [_START, _SIZE, _EXTENTS]
        first = fields[_START][1]
        offsets = [fields[name][1] - first for name in names]
        size = offsets[-1] + fields[_EXTENTS][0].itemsize
        formats = [fields[name][0] for name in names]
        return first, np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})

    @cached_property
    def places(self) -> dict[int, int]:
        """Return number of a pointed column in the dataset -> its place in `extents`."""
        return {number: place for place, number in enumerate(self.pointers.pointed)}

    @cached_property
    def value_offsets(self) -> dict[int, int]:
        """Return number of a column whose values are in the rows -> their offset in a row."""
        fields: Any = self.row_dtype.fields
        return {number: fields[f"column{own}"][1] for number, own in self.pointers.values.items()}

    @cached_property
    def _sized(self) -> NDArray[np.int64]:
        """Return int64 [P]: the size of each value of a pointed fixed-size column; -1 for others."""
        kinds = [self.schema.columns[number].type for number in self.pointers.pointed]
        return np.array([kind.nbytes if kind.fixed_size else -1 for kind in kinds], np.int64)

    @cached_property
    def _nullable(self) -> NDArray[np.bool_]:
        return np.array([self.schema.columns[number].type.nullable for number in self.pointers.pointed], np.bool_)

    def locate(self, rows: Rows, columns: Sequence[int]) -> dict[int, NDArray[np.int64] | Values]:
        values, found = self.value_offsets, dict[int, NDArray[np.int64] | Values]()
        pointed = []
        for number in columns:
            if number in values:
                found[number] = rows.addresses + values[number]
            else:
                pointed.append(number)
        if not pointed:
            return found
        at, dtype = self.head
        (heads,) = read_records(rows.addresses + at, dtype, [len(rows.addresses)])
        self._check(heads, rows)
        starts, extents = heads[_START].astype(np.int64), heads[_EXTENTS]
        for number in pointed:
            place = self.places[number]
            sizes = extents[:, place, 1]
            begins = starts + extents[:, place, 0]
            if self.schema.columns[number].type.fixed_size:
                found[number] = rows.heap_addresses + begins
            elif self._nullable[place]:
                nulls = sizes == NULL
                found[number] = Values(begins, begins + np.where(nulls, 0, sizes), nulls if nulls.any() else None)
            else:
                found[number] = Values(begins, begins + sizes, None)
        return found

    def _check(self, heads: NDArray[np.void], rows: Rows) -> None:
        """Raise CorruptError unless all samples are inside their heaps, and all values inside their samples."""
        starts, sizes, heaps = heads[_START], heads[_SIZE], rows.heap_sizes
        outside = (starts > heaps) | (sizes > heaps - np.minimum(starts, heaps))
        if outside.any():
            row = int(outside.argmax())
            found, expected = f"{sizes[row]} bytes from {starts[row]}", f"within {heaps[row]}"
            raise rows.corrupt(row, "its bytes lie outside the tar", found=found, expected=expected)
        wrong = self.wrong(heads)
        if wrong.any():
            row, place = (int(each[0]) for each in np.nonzero(wrong))
            raise self._wrong_value(rows, row, place, heads)

    def wrong(self, heads: NDArray[np.void]) -> NDArray[np.bool_]:
        """Return bool [n, P]: which values are outside their sample, are null although their column is not nullable, or
        do not have the size of their type. `heads` has START, SIZE and EXTENTS as in a row."""
        extents = heads[_EXTENTS].astype(np.int64)
        begins, lengths = extents[:, :, 0], extents[:, :, 1]
        nulls = lengths == NULL
        wrong: NDArray[np.bool_] = begins + np.where(nulls, 0, lengths) > heads[_SIZE].astype(np.int64)[:, None]
        wrong |= nulls & ~self._nullable
        wrong |= (self._sized >= 0) & (lengths != self._sized)
        return wrong

    def _wrong_value(self, rows: Rows, row: int, place: int, heads: NDArray[np.void]) -> CorruptError:
        name = self.schema.columns[self.pointers.pointed[place]].name
        begin, length = heads[_EXTENTS][row, place].tolist()
        found = "null" if length == NULL else f"{length} bytes from {begin}"
        sized = int(self._sized[place])
        expected = f"{'' if sized < 0 else f'{sized} bytes '}within the sample's {heads[_SIZE][row]}"
        return rows.corrupt(row, f"the value of column {name!r} is not in its sample", found=found, expected=expected)

    # --- copies

    def copied(self, selection: Selection) -> Selection:
        rows = selection.rows[selection.take]
        if self.pointers.pointed:
            self.locate(Rows.of(selection), self.pointers.pointed[:1])
        starts = rows[_START].astype(np.int64)
        stops = starts + rows[_SIZE]
        pieces = [selection.heap[low:high] for low, high in zip(starts.tolist(), stops.tolist(), strict=True)]
        return self.joined(selection.file, selection.samples, rows, pieces)

    def joined(
        self, file: str | None, samples: NDArray[np.int64], rows: NDArray[np.void], pieces: Sequence[Buffer]
    ) -> Selection:
        """Return a selection of `samples`, whose bytes are `pieces`. `rows` [n] have no inline bytes, and are changed
        in place."""
        sizes = rows[_SIZE].astype(np.uint64)
        rows[_START] = np.cumsum(sizes) - sizes
        return Selection(self, file, samples, rows, np.arange(len(rows)), memoryview(b"".join(pieces)))

    def converted(
        self,
        file: str | None,
        samples: NDArray[np.int64],
        pointers: ShardView,
        pieces: Sequence[memoryview],
    ) -> Selection:
        """Return a selection of `samples` of a tar with these pointers, whose bytes are `pieces`. Each is followed by
        its values with inline bytes. Raise CorruptError."""
        rows = pointers.rows[samples]
        if not len(pointers.heap) or not len(rows):
            return self.joined(file, samples, rows, pieces)
        parts: list[memoryview] = []
        inline = [self.places[number] for number in self.pointers.inline]
        wrong = self.wrong(rows)  # of any column: the sample grows by the inline bytes below
        for row, (sample, piece) in enumerate(zip(samples.tolist(), pieces, strict=True)):
            parts.append(piece)
            end, at, bad = len(piece), int(rows["start"][row]), bool(wrong[row].any())
            for place, length in zip(inline, rows["lengths"][row].tolist(), strict=True):
                begin, size = rows[_EXTENTS][row, place].tolist()
                if size == NULL or not length:
                    at += length
                    continue
                if bad or length == NULL or at + length > len(pointers.heap) or end + length + size >= NULL:
                    message = "a value with inline bytes is not in its sample, or too large"
                    raise CorruptError(message, file=pointers.file, place=f"sample {sample}")
                parts += (pointers.heap[at : at + length], piece[begin : begin + size])
                rows[_EXTENTS][row, place] = end, length + size
                end, at = end + length + size, at + length
            rows[_SIZE][row] = end
        rows["lengths"] = 0
        return self.joined(file, samples, rows, parts)
