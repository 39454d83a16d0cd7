"""A tar with its pointer shard, in place or from the cache.

Each sample is checked by the checksum in its pointers. An index made without reading the tars has no checksums: the
headers of a sample's members are then compared with the pointers (`headers`) whenever it is read. In the cache, such a
tar is followed by an XXH3-128 of its name there and of its bytes, because nothing else would show damage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.errors import ChangedError, CorruptError, UnsupportedError
from mdsx.foreign.checks import TRAILER
from mdsx.foreign.tars.headers import Expected, find_problem
from mdsx.foreign.tars.layout import TarLayout
from mdsx.foreign.tars.names import KEY
from mdsx.foreign.tars.pointers import CHECKSUM, EXTENTS, SIZE, START
from mdsx.foreign.tars.text import AGAIN
from mdsx.format import (
    NULL,
    Selection,
    ShardView,
    constant_length,
    lengths_of_selection,
    lengths_of_sizes,
    value_decoder,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

CHANGED = "the tar is damaged, or was changed after it was indexed: restore it, or " + AGAIN

_SMALL = 4096  # bytes of a sample whose check takes less than 2 us
_NO_SAMPLES = memoryview(b"")


@dataclass(frozen=True, slots=True, eq=False)
class Pointers:
    """The parsed pointer shard of the tar `file`, which has `size` bytes. `checksums`: whether it has checksums."""

    layout: TarLayout
    view: ShardView
    file: str
    size: int
    checksums: bool

    @classmethod
    def parse(
        cls, data: Buffer, layout: TarLayout, *, count: int, size: int, checksums: bool, file: str, tar: str
    ) -> Pointers:
        """Parse the pointer shard `file` of a tar with `count` samples. Raise CorruptError."""
        view = ShardView.parse(data, file=file, schema=layout.pointers.schema)
        if view.samples != count:
            message = "the pointers' number of samples differs from the index"
            raise CorruptError(message, file=file, found=view.samples, expected=count, hint=AGAIN)
        starts, sizes = view.rows[f"column{START}"], view.rows[f"column{SIZE}"].astype(np.uint64)
        before = np.concatenate((np.zeros(1, np.uint64), (starts + sizes)[:-1]))
        wrong = (starts > size) | (sizes > np.uint64(size) - np.minimum(starts, np.uint64(size))) | (starts < before)
        if wrong.any():
            sample = int(wrong.argmax())
            found, place = f"{sizes[sample]} bytes from {starts[sample]}", f"sample {sample}"
            expected = f"after {before[sample]}, within the tar's {size} bytes"
            message = "the sample is not in the tar, or overlaps the previous one"
            raise CorruptError(message, file=file, place=place, found=found, expected=expected, hint=AGAIN)
        return cls(layout, view, tar, size, checksums)

    @property
    def samples(self) -> int:
        return self.view.samples

    def extents(self, samples: NDArray[np.int64]) -> list[tuple[int, int]]:
        """Return the byte range of each of `samples` in the tar."""
        starts = self.view.rows[f"column{START}"][samples].astype(np.int64)
        stops = starts + self.view.rows[f"column{SIZE}"][samples]
        return list(zip(starts.tolist(), stops.tolist(), strict=True))

    def check(self, sample: int, data: memoryview) -> None:
        """Raise CorruptError if the index shows that `data` are not the bytes of a sample."""
        if not self.checksums:
            expected_members, key = self._members(sample, data)
            if (problem := find_problem(data, expected_members, key)) is not None:
                raise self.error(sample, f"this is not the sample that was indexed: {problem}")
            return
        found, expected = xxhash.xxh3_64_intdigest(data), int(self.view.rows[f"column{CHECKSUM}"][sample])
        if found != expected:
            message = "the sample's checksum does not match its bytes in the tar"
            raise self.error(sample, message, found=f"{found:016x}", expected=f"{expected:016x}")

    def _members(self, sample: int, data: memoryview) -> tuple[list[Expected], bytes | None]:
        """Return the places of a sample's values in the tar, and its key, for a check by headers."""
        pointers, row, key = self.layout.pointers, self.view.rows[sample], None
        inline, at, found = {}, int(row["start"]) if pointers.inline else 0, []
        for place, number in enumerate(pointers.inline):
            length = int(row["lengths"][place])
            inline[number] = self.view.heap[at : at + length]
            at += length
        for place, number in enumerate(pointers.pointed):
            column, (begin, size) = pointers.dataset.columns[number], row[f"column{EXTENTS}"][place].tolist()
            if column.name == KEY:
                key = bytes(inline[number]) or bytes(data[begin : begin + size])
            elif size != NULL and (column.type.shape is not None or not column.type.scalar):
                found.append(Expected(begin, begin + size, column.type.scalar))
        return found, key

    def error(self, sample: int, message: str, *, found: object = None, expected: object = None) -> CorruptError:
        ((start, stop),) = self.extents(np.array([sample]))
        place, hint = f"sample {sample}, bytes {start} to {stop}", CHANGED
        return CorruptError(message, file=self.file, place=place, found=found, expected=expected, hint=hint)

    def check_size(self, size: int) -> None:
        """Raise ChangedError unless the tar has the size that it had when it was indexed."""
        if size != self.size:
            message = "the tar is not the one that was indexed: it was replaced, has grown or was cut"
            raise ChangedError(message, file=self.file, place="size", found=size, expected=self.size, hint=AGAIN)

    def select(self, samples: NDArray[np.int64], pieces: list[memoryview]) -> Selection:
        """Return a copied selection of `samples`, whose bytes are `pieces`."""
        return self.layout.converted(self.file, samples, self.view, pieces)

    def lengths(self, column: int) -> NDArray[np.int64]:
        """Return the length of each sample by a column, int64 [n], without reading the tar. Raise CorruptError."""
        layout, rows, kind = self.layout, self.view.rows, self.layout.schema.columns[column].type
        if column not in layout.places or constant_length(kind) is not None:
            samples = np.arange(len(rows))
            return lengths_of_selection(Selection(layout, self.file, samples, rows, samples, _NO_SAMPLES), column)
        sizes = rows[f"column{EXTENTS}"][:, layout.places[column], 1].astype(np.int64)
        nulls = sizes == NULL
        if column in layout.pointers.inline:
            sizes += rows["lengths"][:, list(layout.pointers.inline).index(column)]
        found = np.zeros(len(rows), np.int64)
        found[~nulls] = lengths_of_sizes(kind, sizes[~nulls], file=self.view.file)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class TarShard:
    """A tar whose size matches the index, with its pointers."""

    pointers: Pointers
    buffer: memoryview
    trailer: bytes | None
    readers: dict[Any, Any] = field(default_factory=dict)
    """A cache for what decoders of single samples prepare for this shard."""

    @classmethod
    def parse(cls, raw: Buffer, pointers: Pointers) -> TarShard:
        """Raise ChangedError if the tar's size shows that it is not the one that was indexed."""
        view, size = memoryview(raw).cast("B").toreadonly(), pointers.size
        if pointers.checksums or len(view) != size + TRAILER:
            pointers.check_size(len(view))
        return cls(pointers, view[:size], bytes(view[size:]) or None)

    @property
    def file(self) -> str:
        return self.pointers.file

    @property
    def layout(self) -> TarLayout:
        return self.pointers.layout

    @property
    def samples(self) -> int:
        return self.pointers.samples

    @property
    def checks_samples(self) -> bool:
        return self.trailer is None

    @property
    def checks_cheaply(self) -> bool:
        return self.pointers.checksums and len(self.buffer) < _SMALL * self.samples

    def piece(self, sample: int) -> memoryview:
        """Return the bytes of a sample."""
        ((start, stop),) = self.pointers.extents(np.array([sample]))
        return self.buffer[start:stop]

    def select(self, samples: NDArray[np.int64], *, verify: bool) -> Selection:
        view = self.pointers.view
        verify = verify or not self.pointers.checksums
        inline = len(view.heap) and view.rows["lengths"][samples].any()
        if not verify and not inline:
            return Selection(self.layout, self.file, samples, view.rows, samples, self.buffer)
        pieces = [self.buffer[start:stop] for start, stop in self.pointers.extents(samples)]
        if verify:
            for sample, piece in zip(samples.tolist(), pieces, strict=True):
                self.pointers.check(sample, piece)
        if inline:
            return self.pointers.select(samples, pieces)
        return Selection(self.layout, self.file, samples, view.rows, samples, self.buffer)

    def lengths(self, column: int) -> NDArray[np.int64]:
        return self.pointers.lengths(column)

    def problems(self) -> Iterator[CorruptError]:
        """Yield an error for each sample whose bytes differ from the indexed ones."""
        for sample in range(self.samples):
            try:
                self.pointers.check(sample, self.piece(sample))
            except CorruptError as error:
                yield error

    def wrong_values(self) -> Iterator[CorruptError]:
        """Yield the values that cannot be decoded, in samples with correct bytes."""
        schema = self.layout.schema
        decoders = {
            number: value_decoder(schema.columns[number].type, schema.columns[number].name)
            for number in self.layout.pointers.pointed
            if not schema.columns[number].type.fixed_size
        }
        for sample in range(self.samples):
            try:
                selected = self.select(np.array([sample]), verify=False).copied()
            except CorruptError as error:
                yield error
                continue
            extents = selected.rows[f"column{EXTENTS}"][0].tolist() if decoders else []
            for number, decode in list(decoders.items()):
                begin, size = extents[self.layout.places[number]]
                if size == NULL:
                    continue
                try:
                    decode(selected.heap[begin : begin + size])
                except CorruptError as error:
                    place = f"sample {sample}, column {schema.columns[number].name!r}"
                    yield CorruptError(str(error), file=self.file, place=place)
                except UnsupportedError:
                    del decoders[number]
