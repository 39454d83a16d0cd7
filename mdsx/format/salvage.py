"""Find the undamaged samples of a damaged shard, each by its own checksum.

The layout of a shard, from the index or from its own header, locates all of its content. So a damaged header, frame or
seek table costs only the samples in it, and a truncated shard loses only the samples that are cut off. The layout's row
key decides which samples belong to the shard, whatever its header says. The undamaged samples make a new shard.

Without an index, a damaged header is only a claim, which the samples must prove. Either the row key that follows from
all samples and the claimed columns also makes a stored checksum right, or two or more samples agree on a row key that
makes the header's checksum right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.errors import CorruptError, UnsupportedError
from mdsx.format.check import bounded, find_problems, stored_votes
from mdsx.format.gaps import Gap, check_table, first_frame, framed_bytes, plain_bytes
from mdsx.format.rows import NULL, Extents, cut, row_checksums, row_key
from mdsx.format.schema import MAX_SCHEMA_SIZE
from mdsx.format.shard import MAGIC, MAJOR, MAX_HEADER_SIZE, Layout, ShardView, build_header, parse_header

if TYPE_CHECKING:
    from typing_extensions import Buffer

Ranges = Sequence[tuple[int, int]]
"""Half-open ranges of numbers, in order, none adjacent to another."""


@dataclass(frozen=True, slots=True, eq=False)
class Salvage:
    """The readable part of a shard.

    `view`: its rows and the beginning of its heap, with zeros for damaged frames. `undamaged`: which of these rows'
    samples are undamaged. `problems`: all damage, by place. `other`: the row key in an undamaged header of another
    shard, if no sample is undamaged.
    """

    layout: Layout
    view: ShardView
    undamaged: NDArray[np.bool_]
    problems: list[CorruptError]
    other: int | None = None

    @property
    def lost(self) -> Ranges:
        """Return the numbers in the shard of all other samples."""
        return _joined(ranges_of(~self.undamaged), len(self.undamaged), self.layout.samples)

    def rebuild(self) -> memoryview:
        """Return the uncompressed shard of the undamaged samples, in order. There must be at least one."""
        schema, size = self.layout.schema, self.layout.schema.row_size
        rows = self.view.rows.view(np.uint8).reshape(-1, size)[self.undamaged].reshape(-1)
        fields: NDArray[Any] = rows.view(schema.row_dtype)
        heaps, heap = None, b""
        if schema.variable:
            lengths = fields["lengths"]
            sizes = np.where(lengths == NULL, 0, lengths).sum(axis=1, dtype=np.int64)
            starts, stops = fields["start"].tolist(), sizes.cumsum()
            pieces = zip(starts, sizes.tolist(), strict=True)
            heap = b"".join(self.view.heap[start : start + length] for start, length in pieces)
            fields["start"] = stops - sizes
            heaps = cut(heap, stops)
        checksums = row_checksums(rows, size, heaps, heap_size=len(heap), first=0)
        key = row_key(schema, checksums)
        fields["checksum"] = checksums ^ np.uint64(key)
        head = build_header(schema, len(fields), len(heap), key)
        padding = bytes(-(len(head) + len(rows)) % 64)
        return memoryview(b"".join((head, rows.data, padding, heap)))


def ranges_of(mask: NDArray[np.bool_]) -> Ranges:
    """Return the ranges of numbers at which `mask` is true."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])))).tolist()
    return tuple(zip(edges[::2], edges[1::2], strict=True))


def format_ranges(ranges: Ranges, shift: int = 0, *, most: int = 5) -> str:
    """Return ranges as text, such as `3, 7-9, 12`. Only the first `most` are listed."""
    texts = [f"{a + shift}" if b - a == 1 else f"{a + shift}-{b + shift - 1}" for a, b in ranges[:most]]
    if len(ranges) > most:
        texts.append(f"and {sum(b - a for a, b in ranges[most:])} more")
    return ", ".join(texts)


def own_layout(stored: Buffer, *, compressed: bool, file: str | None = None) -> Layout:
    """Return the layout in a shard's header; without a row key if the header is damaged but consistent.

    Raise CorruptError or UnsupportedError.
    """
    view = memoryview(stored).cast("B")
    head = memoryview(first_frame(view, file=file)) if compressed else _head(view)
    size = _claimed_size(head)
    try:
        return Layout.of(parse_header(head, size=size, file=file))
    except UnsupportedError as error:
        try:  # maybe only the version is damaged
            return Layout.of(parse_header(b"".join((head[:8], MAJOR.to_bytes(2, "little"), head[10:])), size=size))
        except CorruptError:
            raise error from None
    except CorruptError as error:
        try:
            return replace(Layout.of(parse_header(_sealed(head), size=size)), row_key=None)
        except (CorruptError, UnsupportedError):
            raise error from None


def _sealed(head: memoryview, row_key: int | None = None) -> bytes:
    """Return the header with the right magic and checksum, and maybe another row key."""
    fields = b"".join(
        (MAGIC, head[8:24], head[24:32] if row_key is None else row_key.to_bytes(8, "little"), head[32:56])
    )
    end = int.from_bytes(head[12:16], "little") + int.from_bytes(head[36:40], "little")
    checksum = xxhash.xxh3_64_intdigest(fields + head[64:end])
    return fields + checksum.to_bytes(8, "little") + head[64:]


def _claimed_size(head: memoryview) -> int:
    return int.from_bytes(head[48:56], "little")


def salvage(
    stored: Buffer, layout: Layout, *, compressed: bool, size: int, file: str | None = None, first: int | None = None
) -> Salvage:
    """Find the undamaged samples in `stored`, a shard's file of `size` bytes that may be truncated.

    `first`: the number in the dataset of the shard's first sample, for messages.
    """
    stored = memoryview(stored).cast("B")[:size]
    raw, gaps = (
        framed_bytes(stored, layout.raw_size, file) if compressed else plain_bytes(stored, layout.raw_size, file)
    )
    view = _view(raw, layout, file)
    known = np.ones(view.samples, np.bool_)
    problems, other = list[CorruptError](), None
    for gap in gaps:
        rows, heaps = _rows_in(gap, layout), _heaps_in(gap, view, layout)
        known[rows[0] : rows[1]] = False
        known &= ~heaps
        problems.append(_gap_error(gap, rows, heaps, first))
    if compressed:
        problems += check_table(stored, layout.raw_size, size, file)
    heap_size = layout.heap_size
    if layout.row_key is None:
        key = _prove(raw, view, known, layout)
        if key is None:
            header, _ = _check_header(raw, layout, file)
            return Salvage(layout, view, np.zeros(view.samples, np.bool_), header + problems)
        layout, view = replace(layout, row_key=key), replace(view, row_key=key)
    if not any(gap.start < layout.rows_offset for gap in gaps):
        header, other = _check_header(raw, layout, file)
        problems += header
    if any(raw[layout.rows_offset + layout.samples * layout.schema.row_size : layout.heap_offset]):
        problems.append(CorruptError("it is not zero", file=file, place="padding between rows and heap"))
    undamaged = known.copy()

    def of_samples() -> Iterator[CorruptError]:
        for problem in find_problems(view, known=known, samples=layout.samples, heap_size=heap_size, first=first):
            if problem.sample is not None and not problem.proven:
                undamaged[problem.sample] = False
            yield problem.error

    found = of_samples()
    damage = bounded(found, file)
    for _ in found:  # also mark the samples whose problems are not listed
        pass
    if other is not None and not undamaged.any():
        return Salvage(layout, view, undamaged, header, other)
    return Salvage(layout, view, undamaged, problems + damage)


def surplus(size: int, expected: int, file: str) -> list[CorruptError]:
    """Return the error for an object with more bytes than expected, if it has."""
    if size <= expected:
        return []
    message = "bytes follow the shard"
    return [CorruptError(message, file=file, place=f"byte {expected}", found=f"{size} bytes", expected=expected)]


def _prove(raw: memoryview, view: ShardView, known: NDArray[np.bool_], layout: Layout) -> int | None:
    """Return the row key of a shard whose header is only a claim, if the samples prove it."""
    votes, of_all = stored_votes(view, known, layout.samples, layout.heap_size)
    if of_all is not None and (votes == np.uint64(of_all)).any():
        return of_all
    keys, counts = np.unique(votes, return_counts=True)
    if not len(keys) or counts.max() < 2:
        return None
    key, head = int(keys[counts.argmax()]), _head(raw)
    return key if _sealed(head, key)[56:64] == head[56:64] else None


def _view(raw: memoryview, layout: Layout, file: str | None) -> ShardView:
    """Return a view of the readable rows and heap."""
    size = layout.schema.row_size
    count = min(layout.samples, max(0, (len(raw) - layout.rows_offset) // size))
    rows = np.frombuffer(raw, np.uint8)[layout.rows_offset : layout.rows_offset + count * size]
    fields = rows.view(layout.schema.row_dtype)
    key, heap = layout.row_key or 0, raw[layout.heap_offset :]
    return ShardView(raw.toreadonly(), file, layout.schema, key, layout.rows_offset, fields, heap)


def _rows_in(gap: Gap, layout: Layout) -> tuple[int, int]:
    """Return the samples whose rows a gap touches."""
    size = layout.schema.row_size
    start, stop = (gap.start - layout.rows_offset) // size, -((layout.rows_offset - gap.stop) // size)
    return min(max(start, 0), layout.samples), min(max(stop, 0), layout.samples)


def _heaps_in(gap: Gap, view: ShardView, layout: Layout) -> NDArray[np.bool_]:
    """Return the samples whose heap bytes a gap touches, if their rows locate them."""
    if not layout.schema.variable:
        return np.zeros(view.samples, np.bool_)
    start, stop = max(gap.start - layout.heap_offset, 0), gap.stop - layout.heap_offset
    extents = Extents.of(layout.schema, view.rows, layout.heap_size)
    starts = np.minimum(extents.starts, np.uint64(2**62)).astype(np.int64)
    touched: NDArray[np.bool_] = (starts < stop) & (starts + extents.sums > start) & (extents.sums > 0)
    return touched


def _gap_error(gap: Gap, rows: tuple[int, int], heaps: NDArray[np.bool_], first: int | None) -> CorruptError:
    """Return the error for a gap, which names the samples in it."""
    mask = heaps.copy()
    mask[rows[0] : rows[1]] = True
    ranges = _joined(
        ranges_of(mask), max(rows[0], len(mask)), rows[1]
    )  # the rows of the last samples could not be read
    message = f"it holds samples {format_ranges(ranges)}" if ranges else "it holds no sample"
    if ranges and first is not None:
        message += f" ({format_ranges(ranges, first)} of the dataset)"
    error = gap.error
    message = f"{error.message}; {message}"
    return CorruptError(message, file=error.file, place=error.place, found=error.found, expected=error.expected)


def _head(raw: memoryview) -> memoryview:
    return raw[: MAX_HEADER_SIZE + MAX_SCHEMA_SIZE]


def _check_header(raw: memoryview, layout: Layout, file: str | None) -> tuple[list[CorruptError], int | None]:
    """Return the problems of the header, and its row key if it is another shard's undamaged header."""
    head = _head(raw)
    try:
        own = Layout.of(parse_header(head, size=_claimed_size(head), file=file))
        if own != layout:
            message = "is not the shard that the index names"
            found, expected = _describe(own), _describe(layout)
            return [CorruptError(message, file=file, place="header", found=found, expected=expected)], own.row_key
    except CorruptError as error:
        return [error], None
    except UnsupportedError as error:  # the rest of the shard shows that no later version wrote it
        return [CorruptError("it is damaged", file=file, place=error.place, found=error.found, expected=MAJOR)], None
    return [], None


def _describe(layout: Layout) -> str:
    key, columns = f"{layout.row_key or 0:016x}", layout.schema.json.decode()[:200]
    return f"row key {key}, {layout.samples} samples, {layout.raw_size} bytes, columns {columns}"


def _joined(ranges: Ranges, start: int, stop: int) -> Ranges:
    """Return `ranges`, followed by [start, stop)."""
    if start >= stop:
        return ranges
    if ranges and ranges[-1][1] == start:
        return (*ranges[:-1], (ranges[-1][0], stop))
    return (*ranges, (start, stop))
