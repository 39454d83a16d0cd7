"""Pointer shards: the places of samples in an indexed tar.

A pointer shard is an uncompressed shard of mdsx's own format (format-spec.md) with a row for each sample of one tar, in
order. The dataset's columns determine its columns (`PointerSchema.schema`):

| column | type | holds |
|---|---|---|
| `start` | `uint64` | where the sample begins in the tar: at the first header of its first member |
| `checksum` | `uint64` | XXH3-64 of the sample's bytes in the tar; 0 in an index without checksums |
| `size` | `uint32` | the sample's bytes in the tar: from `start` to the last byte of its last member, without padding |
| `extents` | `uint32[P,2]` | for each of the P pointed columns, in the dataset's order: where its bytes begin, |
| | | counted from `start`, and how many there are; 2^32 - 1 is null |
| `value<k>` | the column's | for each scalar that is not nullable: the value; k is the column's number in the dataset |
| `inline<k>` | `bytes` | for some pointed columns: bytes that come before those in the tar |

A sample's bytes include the headers of its members, and any dropped members between them. So the checksum also covers
keys and the text of numbers, and one range has the whole sample. Samples do not overlap, and are in the order of the
tar.

The pointed columns are all except `value<k>`. A value's stored bytes, as defined by mdsx's own format, are its inline
bytes, if the column has any, followed by its bytes in the tar:

- Types that are not numbers: the member's bytes.
- Arrays: the bytes of the `.npy` member after its header, which must be in C order and little-endian. Starred
  dimensions are inline, as u32.
- Nullable scalars: the value is inline, and no bytes are in the tar.
- `__key__`: the bytes of the key in the name of the first member, in its header; inline if they are not contiguous
  there, as in long names of ustar.

Lists (`str[*]`) cannot be pointed to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.base.cached import cached_property
from mdsx.errors import UsageError
from mdsx.foreign.tars.names import KEY
from mdsx.format import (
    BYTES,
    ENCODED_NULL,
    NULL,
    UINT32,
    UINT64,
    Column,
    ColumnType,
    Encoder,
    Refused,
    Schema,
    ShardBuilder,
    dimensions_encoder,
    numpy_values,
    value_encoder,
)

START, CHECKSUM, SIZE, EXTENTS = range(4)
"""Numbers of the columns that all pointer shards have, except that EXTENTS needs pointed columns."""
MAX_SAMPLE = NULL - 1
"""The most bytes of a sample in its tar."""


def is_value(kind: ColumnType) -> bool:
    """Return whether the values of a column are in the rows of pointer shards."""
    return kind.fixed_size and kind.shape is None


def has_inline(column: Column) -> bool:
    """Return whether pointer shards may hold bytes of a pointed column's values."""
    kind = column.type
    return column.name == KEY or (kind.scalar and (kind.stars > 0 or kind.shape is None))


def check_pointable(column: Column) -> None:
    """Raise UsageError if the values of a column cannot be pointed to."""
    kind = column.type
    if kind.is_list or not (kind.known or kind.packaged) or kind.foreign is not None:
        message, place = f"values of type {str(kind)!r} cannot be read in place", f"column {column.name!r}"
        raise UsageError(message, place=place, hint="declare it as json or bytes, or convert the tars")


@dataclass(frozen=True)
class PointerSchema:
    """The layout of a dataset's columns in pointer shards."""

    dataset: Schema

    @cached_property
    def pointed(self) -> tuple[int, ...]:
        """Return the numbers of the pointed columns in the dataset."""
        return tuple(k for k, column in enumerate(self.dataset.columns) if not is_value(column.type))

    @cached_property
    def values(self) -> dict[int, int]:
        """Return number in the dataset -> number in the pointer shard, for columns whose values are in its rows."""
        first = EXTENTS + bool(self.pointed)
        found = (k for k, column in enumerate(self.dataset.columns) if is_value(column.type))
        return {k: first + place for place, k in enumerate(found)}

    @cached_property
    def inline(self) -> dict[int, int]:
        """Return number in the dataset -> number of the inline bytes in the pointer shard, for columns that may have
        some."""
        first = EXTENTS + bool(self.pointed) + len(self.values)
        found = (k for k in self.pointed if has_inline(self.dataset.columns[k]))
        return {k: first + place for place, k in enumerate(found)}

    @cached_property
    def schema(self) -> Schema:
        """Return the schema of the pointer shards."""
        columns = {"start": UINT64.name, "checksum": UINT64.name, "size": UINT32.name}
        if self.pointed:
            columns["extents"] = f"{UINT32.name}[{len(self.pointed)},2]"
        columns |= {f"value{k}": str(self.dataset.columns[k].type) for k in self.values}
        columns |= {f"inline{k}": BYTES.name for k in self.inline}
        return Schema.from_columns(columns)


class Pointer(NamedTuple):
    """Where the bytes of a value are in the tar: [start, stop). `shape`: the shape of an array."""

    start: int
    stop: int
    shape: tuple[int, ...] | None = None


Rows = dict[str, NDArray[Any] | list[bytes]]
"""Rows of a pointer shard: for each column, the items [n, ...], or the bytes of each value."""


def batch_of(kind: ColumnType, items: NDArray[Any]) -> Any:
    """Return the stored items of a scalar column in a form that the encoder accepts; it does not accept bits."""
    values = numpy_values(kind, items)
    return values.tolist() if kind.kind == "float" and not kind.number.native else values


@dataclass
class PointerBuilder:
    """Builds the pointer shard of one tar: `add` or `extend` its samples in order, then `build`."""

    schema: PointerSchema
    samples: int = 0
    _columns: dict[str, list[Any]] = field(init=False)
    _blocks: list[Rows] = field(default_factory=list)
    _end: int = 0

    def __post_init__(self) -> None:
        for column in self.schema.dataset.columns:
            check_pointable(column)
        self._columns = {column.name: [] for column in self.schema.schema.columns}
        kinds = {k: column.type for k, column in enumerate(self.schema.dataset.columns)}
        self._encoders = {k: value_encoder(kind) for k, kind in kinds.items() if kind.scalar and kind.shape is None}

    def add(self, start: int, stop: int, checksum: int, values: Mapping[str, object]) -> None:
        """Add the sample in bytes [start, stop) of the tar, with the XXH3-64 of these bytes.

        `values`: for each column of the dataset a Pointer; the value itself for scalars, nullable or not; a str for a
        key that is not contiguous in the tar; None for null. Raise Refused for an array whose shape differs from the
        column's, and for a scalar that does not fit; UsageError for values that cannot be indexed.
        """
        if not self._end <= start <= stop <= start + MAX_SAMPLE:
            message = "a sample overlaps the previous one, or has 4 GiB or more"
            raise UsageError(message, found=f"bytes {start} to {stop}", hint="convert the tar")
        row: dict[str, Any] = {"start": start, "checksum": checksum, "size": stop - start}
        extents = []
        for k, column in enumerate(self.schema.dataset.columns):
            value, name = values[column.name], column.name
            if k in self.schema.values:
                row[f"value{k}"] = self._encoders[k](value)
                continue
            inline, at, size = self._located(k, value, start)
            if at + (0 if size == NULL else size) > stop - start or at < 0:
                raise UsageError("a value lies outside its sample", place=f"column {name!r}", found=value)
            extents.append((at, size))
            if k in self.schema.inline:
                row[f"inline{k}"] = inline
        if extents:
            row["extents"] = extents
        for name, kept in self._columns.items():
            kept.append(row[name])
        self._end, self.samples = stop, self.samples + 1

    def extend(self, rows: Rows) -> None:
        """Add many samples whose rows are complete and checked: each begins after the previous one, and contains its
        values."""
        starts, sizes = rows["start"], rows["size"]
        self._flush()
        self._blocks.append(rows)
        self._end = int(starts[-1]) + int(sizes[-1])
        self.samples += len(starts)

    def build(self) -> bytes:
        """Return the pointer shard."""
        pointers = self.schema.schema
        self._flush()
        builder = ShardBuilder(pointers, 2**62)
        encoder = Encoder(pointers)
        for rows in self._blocks:
            builder.add(encoder.batch(rows))
        return bytes(builder.finish())

    def _flush(self) -> None:
        """Make a block from the samples that were added one by one."""
        if not self._columns["start"]:
            return
        rows: Rows = {}
        for column in self.schema.schema.columns:
            kept, kind = self._columns[column.name], column.type
            if not kind.fixed_size:
                rows[column.name] = kept
            elif column.name.startswith("value"):
                rows[column.name] = batch_of(kind, np.frombuffer(b"".join(kept), kind.item_dtype))
            else:
                rows[column.name] = np.array(kept, kind.item_dtype).reshape(len(kept), *(kind.shape or ()))
            self._columns[column.name] = []
        self._blocks.append(rows)

    def _located(self, k: int, value: object, start: int) -> tuple[bytes, int, int]:
        """Return a pointed value's inline bytes, and the start and size of its other bytes in the sample."""
        column = self.schema.dataset.columns[k]
        kind = column.type
        if value is None:
            if not kind.nullable:
                raise Refused(f"a value of type {kind}", "null")
            return b"", 0, NULL
        if kind.scalar and kind.shape is None:
            encoded = self._encoders[k](value)
            return (b"", 0, NULL) if encoded is ENCODED_NULL else (encoded, 0, 0)
        if column.name == KEY and isinstance(value, str):
            return value.encode(), 0, 0
        if not isinstance(value, Pointer):
            raise UsageError("this is not a Pointer", place=f"column {column.name!r}", found=type(value).__name__)
        inline = b""
        if kind.scalar:
            shape = value.shape or ()
            inline = dimensions_encoder(kind)(shape)
            size = kind.item_dtype.itemsize * int(np.prod(shape, dtype=object))
            if size != value.stop - value.start:
                raise Refused(f"{size} bytes for shape {list(shape)}", value.stop - value.start)
        return inline, value.start - start, value.stop - value.start
