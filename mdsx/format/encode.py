"""Encode samples and build shards: check and encode samples, column by column, and add them to shards.

An Encoder takes one sample at a time (`sample`; `gather` joins many) or a whole batch of columns (`batch`). Both result
in the same `Encoded`. A value that does not fit raises SampleError before anything is kept, so a batch is encoded as a
whole or not at all. The caller may change a sample as soon as `sample` has returned, but the arrays of a batch only
after they were added to a shard.

A shard ends just before the sample that would make the uncompressed file larger than `shard_size`. A sample that is
larger by itself gets its own shard. So the bytes do not depend on how samples are batched.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.base.pieces import Pieces
from mdsx.errors import SampleError
from mdsx.format.encoded import Block, Encoded, PieceHeap
from mdsx.format.inputs import Refused, as_array, describe, each, has_masked
from mdsx.format.numbers import to_items
from mdsx.format.rows import NULL as NULL_LENGTH
from mdsx.format.rows import row_checksums, row_key
from mdsx.format.schema import Column, Schema
from mdsx.format.shard import ShardView, build_header, raw_size
from mdsx.format.values import NULL, as_sequence, dimensions_encoder, quick_encoder, value_encoder

_AT_ONCE = 2**20  # bytes of rows to fill and then hash at once, while they are in the processor's cache
_FIRST_IMAGE = 2**26


class Encoder:
    """Checks and encodes samples of a schema."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._encoders = [(column.name, quick_encoder(column.type)) for column in schema.columns]
        self._names = tuple(column.name for column in schema.columns)

    def sample(self, sample: Mapping[str, object]) -> tuple[list[bytes], int]:
        """Return the encoded values of one sample, in column order, and the sum of their sizes. Raise SampleError."""
        try:
            values = [encode(sample[name]) for name, encode in self._encoders]
            alike = len(sample) == len(values)
        except (Refused, LookupError, TypeError, ValueError) as error:
            raise self._problem(sample) or error from None
        if not alike:
            self.check_names(sample, "sample")
        size = sum(map(len, values))
        if size >= NULL_LENGTH:
            for column, value in zip(self.schema.columns, values, strict=True):
                check_length(column, len(value))
        return values, size

    def gather(self, values: Sequence[bytes]) -> Encoded:
        """Join the values that `sample` returned for one or more samples, one sample after the other."""
        columns = self.schema.columns
        encoded = [
            _items(column, values[number :: len(columns)]) if column.type.fixed_size else values[number :: len(columns)]
            for number, column in enumerate(columns)
        ]
        return self._encoded(encoded, len(values) // len(columns))

    def batch(self, columns: Mapping[str, object]) -> Encoded:
        """Encode a batch: column name -> an array or tensor [n, ...], or a sequence of n values. Raise SampleError."""
        self.check_names(columns, "batch")
        encoded = [self.column(number, columns[name]) for number, name in enumerate(self._names)]
        self.check_lengths([len(values) for values in encoded])
        return self._encoded(encoded, len(encoded[0]))

    def column(self, number: int, values: object) -> NDArray[Any] | list[bytes]:
        """Encode a column of a batch: as [n, ...] items, or as bytes of each value. Raise SampleError."""
        column = self.schema.columns[number]
        try:
            return _encode_many(column, self._encoders[number][1], values)
        except Refused as refused:
            raise batch_error(column, refused) from None

    def check_lengths(self, lengths: Sequence[int]) -> None:
        """Raise SampleError unless all columns of a batch have the same length."""
        if len(set(lengths)) > 1:
            found = dict(zip(self._names, lengths, strict=True))
            raise SampleError("the columns of a batch have different lengths", found=found)

    def _encoded(self, columns: Sequence[NDArray[Any] | Sequence[bytes]], samples: int) -> Encoded:
        variable = self.schema.variable
        lengths = np.zeros((samples, len(variable)), np.int64)
        nulls = np.zeros((samples, len(variable)), bool)
        for place, number in enumerate(variable):
            lengths[:, place] = np.fromiter(map(len, columns[number]), np.int64, samples)
            if samples:
                check_length(self.schema.columns[number], int(lengths[:, place].max()))
            if self.schema.columns[number].type.nullable:
                nulls[:, place] = [value is NULL for value in columns[number]]
        pieces: Any = [columns[number] for number in variable]
        joined = pieces[0] if len(pieces) == 1 else list(chain.from_iterable(zip(*pieces, strict=True)))
        return Encoded(
            samples=samples,
            fixed=[np.asarray(columns[number]) for number in self.schema.fixed],
            lengths=np.where(nulls, NULL_LENGTH, lengths).astype(np.uint32),
            heap=PieceHeap(joined, len(variable)),
            stops=lengths.sum(axis=1).cumsum(),
        )

    def check_names(self, given: object, what: str) -> None:
        """Raise SampleError unless `given`, a sample or a batch, is a mapping with the names of all columns."""
        if not isinstance(given, Mapping):
            raise SampleError(
                f"a {what} must be a mapping of column names to values",
                found=type(given).__name__,
                hint="write() takes a sample, such as {'x': 1}, and write_batch() columns, such as {'x': [1, 2]}",
            )
        missing = [name for name in self._names if name not in given]
        unknown = [name for name in given if name not in self._names]
        if missing:
            hint = "give None for null" if what == "sample" else None
            if unknown:
                hint = f"{_columns(unknown)} is not a column: check the name"
            raise SampleError(f"the {what} lacks columns", place=_columns(missing), found=_columns(given), hint=hint)
        if unknown:
            raise SampleError(
                f"the {what} has unknown columns",
                place=_columns(unknown),
                expected=_columns(self._names),
            )

    def _problem(self, sample: Mapping[str, object]) -> SampleError | None:
        """Return the error for a sample that does not fit, or None."""
        try:
            self.check_names(sample, "sample")
        except SampleError as error:
            return error
        for column in self.schema.columns:
            try:
                value_encoder(column.type)(sample[column.name])
            except Refused as refused:
                return _error(column, refused, f"column {column.name!r}", refused.at)
        return None


def _encode_many(column: Column, encode: Any, values: object) -> NDArray[Any] | list[bytes]:
    """Encode a column of a batch: as an array of items if it is fixed-size, otherwise as bytes for each sample."""
    kind = column.type
    given = None if kind.nullable and has_masked(values) else as_array(values)
    if given is not None and not given[0].shape:
        raise Refused("one value for each sample", describe(values))
    if kind.scalar and given is not None and given[1] != "object":
        items = to_items(kind.number, values)
        dimensions = dimensions_encoder(kind)(items.shape[1:])
        if kind.fixed_size:
            return items
        return [dimensions + item.tobytes() for item in items]
    values = as_sequence(values if given is None else given[0], "an array or a sequence with one value for each sample")
    try:
        pieces = list(map(encode, values))
    except (Refused, TypeError, ValueError):
        pieces = each(values, value_encoder(kind))  # finds the value that does not fit, and the reason
    return _items(column, pieces) if kind.fixed_size else pieces


def _items(column: Column, pieces: Sequence[bytes]) -> NDArray[Any]:
    shape: Any = column.type.shape or ()
    return np.frombuffer(b"".join(pieces), column.type.item_dtype).reshape(len(pieces), *shape)


def check_length(column: Column, length: int) -> None:
    """Raise SampleError if a value of `length` bytes is too large for the column."""
    if length >= NULL_LENGTH and not column.type.fixed_size:
        raise SampleError(
            "a value is too large",
            place=f"column {column.name!r}",
            expected=f"fewer than {NULL_LENGTH} bytes",
            found=length,
        )


def batch_error(column: Column, refused: Refused) -> SampleError:
    """Return the error for a column of a batch. `refused.at` begins with the number of the sample."""
    place = f"sample {refused.at[0]} of the batch, column" if refused.at else "column"
    return _error(column, refused, f"{place} {column.name!r}", refused.at[1:])


def _error(column: Column, refused: Refused, place: str, at: Sequence[int]) -> SampleError:
    found = f"{refused.found} at {list(at)}" if at else refused.found
    hint = refused.hint
    if refused.found == describe(None) and not at:
        hint = f"declare it as {f'{column.type}?'!r} to allow null"
    return SampleError(f"does not fit {column.type}", place=place, expected=refused.expected, found=found, hint=hint)


def _columns(names: Any) -> str:
    shown = [repr(name)[:80] for name in names]
    return ", ".join(shown[:16] + ["..."] * (len(shown) > 16)) or "none"


# --- shards


class ShardBuilder:
    """Builds one shard after the other: `add` until the shard is full, `finish`, `add` the rest."""

    def __init__(self, schema: Schema, shard_size: int) -> None:
        self.schema = schema
        self.shard_size = shard_size
        fields = (schema.row_dtype.fields or {}).values()
        self._padded = sum(kind.itemsize for kind, *_ in fields) < schema.row_size
        self._spare: list[NDArray[np.uint8]] = []
        self._start_over()

    def _start_over(self) -> None:
        self.samples = 0
        self._heap: list[bytes | memoryview] = []
        self._heap_size = 0
        # The shard without header, row key and heap, which are written last. New memory costs more than copying into
        # it, so the memory of stored shards is reused. Pages that are never touched cost nothing.
        size = min(self.shard_size, _FIRST_IMAGE)
        self._image: NDArray[np.uint8] = self._spare.pop() if self._spare else np.empty(size, np.uint8)

    def add(self, encoded: Encoded, start: int = 0) -> int:
        """Add the samples of `encoded` from number `start` on, as many as fit into this shard.

        Return the number of the first sample that does not fit, if the shard is full, or `encoded.samples` if all fit.
        """
        stop = self._stop(encoded, start)
        step = min(max(_AT_ONCE // self.schema.row_size, 1), 4096)
        for first in range(start, stop, step):
            self._place(encoded, first, min(first + step, stop))
        return stop

    def restore(self, shard: ShardView) -> None:
        """Reopen a finished shard, so that samples can be added to it."""
        offset, rows = self.schema.rows_offset, np.frombuffer(shard.rows.tobytes(), np.uint8)
        self._reserve(offset + len(rows))
        image = self._image[offset : offset + len(rows)]
        image[:] = rows
        image.view(self.schema.row_dtype)["checksum"] ^= np.uint64(shard.row_key)
        self.samples = shard.samples
        self._heap = [bytes(shard.heap)]
        self._heap_size = len(shard.heap)

    def finish(self) -> bytes:
        """Return the bytes of the shard, and begin an empty one."""
        return bytes(self.pieces().joined())

    def pieces(self) -> Pieces:
        """Return the bytes of the shard without joining them, and begin an empty one."""
        size = raw_size(self.schema, self.samples, 0)
        self._reserve(size)
        image = self._image[:size]
        end = self.schema.rows_offset + self.samples * self.schema.row_size
        rows = image[self.schema.rows_offset : end].view(self.schema.row_dtype)
        key = row_key(self.schema, rows["checksum"])
        rows["checksum"] ^= np.uint64(key)
        header = build_header(self.schema, self.samples, self._heap_size, key)
        image[: len(header)] = np.frombuffer(header, np.uint8)
        image[end:] = 0
        found = Pieces(self._image.data[:size], *self._heap)
        self._start_over()
        return found

    def reuse(self, shard: Pieces) -> None:
        """Reuse the memory of a shard that `pieces` returned. Nobody may read it any more."""
        self._spare.append(np.asarray(memoryview(next(iter(shard))).obj))

    def _stop(self, encoded: Encoded, start: int) -> int:
        before = int(encoded.stops[start - 1]) if start else 0

        def size(stop: int) -> int:
            heap_size = self._heap_size + int(encoded.stops[stop - 1]) - before
            return raw_size(self.schema, self.samples + stop - start, heap_size)

        if start == encoded.samples or size(encoded.samples) <= self.shard_size:
            return encoded.samples
        stop = start + bisect_right(range(start + 1, encoded.samples + 1), self.shard_size, key=size)
        return stop if self.samples else max(stop, start + 1)

    def _place(self, encoded: Encoded, start: int, stop: int) -> None:
        """Copy samples [start, stop) of `encoded` into rows and heap."""
        size, width = self.schema.row_size, len(self.schema.variable)
        offset = self.schema.rows_offset + self.samples * size
        end = offset + (stop - start) * size
        self._reserve(end)
        image = self._image[offset:end]
        if self._padded:
            image[:] = 0
        rows: NDArray[Any] = image.view(self.schema.row_dtype)
        for number, items in zip(self.schema.fixed, encoded.fixed, strict=True):
            rows[f"column{number}"] = items[start:stop]
        if not width:
            rows["checksum"] = row_checksums(image, size, None, heap_size=0, first=self.samples)
        else:
            begin = int(encoded.stops[start - 1]) if start else 0
            stops = encoded.stops[start:stop] - begin
            rows["start"][0] = self._heap_size
            rows["start"][1:] = self._heap_size + stops[:-1]
            rows["lengths"] = encoded.lengths[start:stop]
            block = Block(start, self.samples, image.reshape(len(rows), size), begin, stops)
            heap, rows["checksum"] = encoded.heap.add(block)
            self._heap += heap
            self._heap_size += int(stops[-1])
        self.samples += stop - start

    def _reserve(self, size: int) -> None:
        """Grow the image to at least `size` bytes."""
        if size > len(self._image):
            image = np.empty(max(size, min(2 * len(self._image), self.shard_size)), np.uint8)
            image[: len(self._image)] = self._image
            self._image = image
