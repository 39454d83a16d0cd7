"""The raw bytes of an MDS shard, in place or from the cache.

    shard = u32 count; u32 offset of each sample and of the end; the columns as JSON, which readers ignore; samples

In the cache, these bytes are followed by an XXH3-128 of the shard's name there and of the bytes. So damage in the
cache, and the file of another shard, are detected even if the index has no hashes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import CorruptError, UnsupportedError
from mdsx.foreign.checks import TRAILER, blocks, damaged
from mdsx.foreign.mds.layout import OFFSET, MdsLayout
from mdsx.format import Rows, Selection, Values, lengths_of_selection, value_decoder

if TYPE_CHECKING:
    from typing_extensions import Buffer


@dataclass(frozen=True, slots=True, eq=False)
class MdsShard:
    """A shard whose count and size match the index. `table`: its offsets, uint32 [samples + 1]."""

    layout: MdsLayout
    file: str
    buffer: memoryview
    table: NDArray[np.uint32]
    trailer: bytes | None
    hashed: bool
    """Whether the index has hashes of it."""

    @classmethod
    def parse(cls, raw: Buffer, layout: MdsLayout, *, count: int, size: int, hashed: bool, file: str) -> MdsShard:
        """Parse a shard of `count` samples and `size` bytes. Raise CorruptError."""
        view = memoryview(raw).cast("B").toreadonly()
        if len(view) not in (size, size + TRAILER):
            message = "the shard's size differs from the index"
            raise CorruptError(message, file=file, place="size", found=len(view), expected=size)
        trailer = bytes(view[size:]) or None
        table = np.frombuffer(view, OFFSET, count + 1, 4)  # the index was checked: there is room for them
        check_table(view[:4], int(table[0]), int(table[-1]), count=count, size=size, file=file)
        return cls(layout, file, view[:size], table, trailer, hashed)

    @property
    def samples(self) -> int:
        return len(self.table) - 1

    @property
    def checks_samples(self) -> bool:
        """Return whether only the structure of each sample can be checked."""
        return self.trailer is None and not self.hashed

    checks_cheaply: ClassVar[bool] = True

    def select(self, samples: NDArray[np.int64], *, verify: bool) -> Selection:
        selection = Selection(self.layout, self.file, samples, self.table[:-1], samples, self.buffer)
        if verify:
            self.layout.check(selection)
        return selection

    def lengths(self, column: int) -> NDArray[np.int64]:
        return lengths_of_selection(self.select(np.arange(self.samples), verify=False), column)

    def problems(self) -> Iterator[CorruptError]:
        """Yield problems in the structure of the samples."""
        decreasing = np.flatnonzero(self.table[1:] < self.table[:-1])
        for place in decreasing.tolist():
            low, high = int(self.table[place]), int(self.table[place + 1])
            where = f"offset {place + 1}"
            message, expected = "the offsets decrease", f"{low} or more"
            yield CorruptError(message, file=self.file, place=where, found=high, expected=expected)
        if len(decreasing):
            return
        for block in blocks(self.samples):
            yield from damaged(block, lambda samples: self.select(samples, verify=True))

    def wrong_values(self) -> Iterator[CorruptError]:
        """Yield the values that cannot be decoded, in samples with a valid structure, except in columns that are never
        decoded."""
        columns = [number for number, column in enumerate(self.layout.schema.columns) if not column.type.fixed_size]
        for block in blocks(self.samples):
            located = self.layout.locate(Rows.of(self.select(block, verify=False)), columns)
            for number in columns:
                column, extents = self.layout.schema.columns[number], located[number]
                decode = value_decoder(column.type, column.name)
                assert isinstance(extents, Values)
                cuts = map(slice, extents.starts.tolist(), extents.stops.tolist())
                for sample, value in zip(block.tolist(), map(self.buffer.__getitem__, cuts), strict=True):
                    try:
                        decode(value)
                    except CorruptError as error:
                        place = f"sample {sample}, column {column.name!r}"
                        yield CorruptError(str(error), file=self.file, place=place)
                    except UnsupportedError:
                        columns = [other for other in columns if other != number]
                        break


def check_table(count_bytes: Buffer, first: int, last: int, *, count: int, size: int, file: str) -> None:
    """Check the first 4 bytes of a shard, its first and last offset. Raise CorruptError."""
    (found,) = struct.unpack("<I", count_bytes)
    if found != count:
        message = "the shard's number of samples differs from the index"
        raise CorruptError(message, file=file, place="count", found=found, expected=count)
    least = 4 * (count + 2)
    if not least <= first <= size:
        message, expected = "the first sample does not follow the table of offsets", f"{least} to {size}"
        raise CorruptError(message, file=file, place="offset 0", found=first, expected=expected)
    if last != size:
        message = "the last sample does not end at the file's end"
        raise CorruptError(message, file=file, place=f"offset {count}", found=last, expected=size)
