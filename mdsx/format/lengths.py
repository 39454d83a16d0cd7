"""The length of a sample by one of its columns.

| rule | columns | the length |
|---|---|---|
| `values` | one-dimensional arrays, such as `uint16[*]` | the number of values; 0 for null |
| `bytes` | types other than numbers | the bytes of the stored value; 0 for null |
| `number` | integers that are not nullable | the value |
| `height`, `width` | encoded images | those of the image, as displayed; 0 for null and unreadable headers |

Heights and widths are known only if they were written to a file. Other columns define no length. Lengths are read
without any value of variable size, so the checksums of samples cannot be compared. But the row key shows whose rows
they are, and the heap has no gaps, so the extents of all samples must be consecutive, which reveals a damaged one.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import CorruptError, UsageError
from mdsx.format.bases import IMAGES
from mdsx.format.records import read_records
from mdsx.format.rows import NULL, heap_extents
from mdsx.format.schema import Schema
from mdsx.format.selection import Rows, Selection, Values
from mdsx.format.types import ColumnType

LengthRule = Literal["values", "bytes", "number", "height", "width"]
SIDES: tuple[LengthRule, LengthRule] = ("height", "width")

MAX_LENGTH = 2**32 - 1


@runtime_checkable
class MeasuredDecoder(Protocol):
    """A decoder of another format's arrays (`ColumnType.foreign`) that finds their lengths without decoding them."""

    def lengths(self, addresses: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of values of each array, which are at `addresses` in memory and have `sizes` bytes; -1 for
        one that is damaged or not one-dimensional."""


def length_rule(kind: ColumnType) -> LengthRule | None:
    """Return the default rule for lengths by a column of this type; None if it has none."""
    if kind.scalar and kind.shape is None:
        return "number" if kind.kind == "integer" and not kind.nullable else None
    if kind.scalar:
        return "values" if len(kind.shape or ()) == 1 else None
    if kind.kind is not None:
        return None if kind.is_list else "bytes"
    return "values" if isinstance(kind.foreign, MeasuredDecoder) else None


def has_sides(kind: ColumnType) -> bool:
    """Return whether the values of a column of this type may be encoded images."""
    return kind.base in IMAGES and not kind.is_list


def length_rules(kind: ColumnType) -> tuple[LengthRule, ...]:
    """Return all rules for lengths by a column of this type."""
    rule = length_rule(kind)
    return ((rule,) if rule is not None else ()) + (SIDES if has_sides(kind) else ())


def constant_length(kind: ColumnType) -> int | None:
    """Return the length of every sample if the type determines it; else None."""
    return None if kind.nullable or kind.stars or kind.shape is None or not kind.scalar else kind.shape[0]


def estimated_mean(kind: ColumnType, samples: int, size: int) -> Fraction | None:
    """Return the mean length of `samples` samples by a column of this type, whose values together have `size` bytes. It
    is exact if the type determines each length. Return None if a length is not a number of items of known size."""
    if (constant := constant_length(kind)) is not None:
        return Fraction(constant)
    rule = length_rule(kind)
    if rule == "bytes" or (rule == "values" and kind.scalar):
        return Fraction(size, max(samples, 1) * (kind.item_dtype.itemsize if kind.scalar else 1))
    return None


def lengths_of_rows(
    schema: Schema, rows: NDArray[Any], heap_size: int, column: int, *, file: str | None
) -> NDArray[np.int64]:
    """Return the lengths of all samples of a shard of our own format, int64 [n], from the rows. Raise CorruptError."""
    kind = schema.columns[column].type
    if kind.fixed_size:
        constant = constant_length(kind)
        return (
            _numbers(rows[f"column{column}"], file)
            if constant is None
            else np.full(len(rows), constant, dtype=np.int64)
        )
    starts, stops, lengths = heap_extents(schema, rows, heap_size, file=file, samples=np.arange(len(rows)))
    if len(rows):
        edges = np.append(0, stops)
        wrong = np.append(starts, heap_size) != edges
        if wrong.any():
            sample = int(wrong.argmax())
            found, expected = int(starts[sample]) if sample < len(rows) else heap_size, int(edges[sample])
            message = "the heap bytes of the samples are not consecutive"
            raise CorruptError(message, file=file, place=f"sample {sample}", found=found, expected=expected)
    claimed = lengths[:, schema.variable.index(column)]
    nulls = claimed == NULL
    return _of_sizes(kind, np.where(nulls, 0, claimed).astype(np.int64), nulls, file)


def lengths_of_selection(selection: Selection, column: int) -> NDArray[np.int64]:
    """Return the lengths of all samples of a shard, selected in order, int64 [n]. Raise CorruptError.

    For formats without a faster way."""
    kind, file = selection.schema.columns[column].type, selection.file
    constant = constant_length(kind)
    if constant is not None:
        return np.full(len(selection.samples), constant, dtype=np.int64)
    count = len(selection.samples)
    rows = Rows.of(selection)
    found = selection.layout.locate(rows, (column,))[column]
    if not isinstance(found, Values):
        (values,) = read_records(found, kind.field_dtype, [count])
        return _numbers(values, file)
    sizes = found.stops - found.starts
    if isinstance(kind.foreign, MeasuredDecoder):
        measured = kind.foreign.lengths(rows.heap_addresses + found.starts, sizes)
        return _refuse(measured, measured < 0, file, "its array is damaged, or not one-dimensional")
    return _of_sizes(kind, sizes + np.where(found.bare, 4 * kind.stars, 0), found.nulls, file)


def values_of_selection(selection: Selection, column: int) -> Iterator[memoryview | None]:
    """Yield the stored bytes of a variable-size column for the selected samples; None for null. Raise CorruptError."""
    count = len(selection.samples)
    found = selection.layout.locate(Rows.of(selection), (column,))[column]
    assert isinstance(found, Values), "a column of variable size"
    nulls = [False] * count if found.nulls is None else found.nulls.tolist()
    for start, stop, null in zip(found.starts.tolist(), found.stops.tolist(), nulls, strict=True):
        yield None if null else selection.heap[start:stop]


def lengths_of_sizes(kind: ColumnType, sizes: NDArray[np.int64], *, file: str | None) -> NDArray[np.int64]:
    """Return the lengths of non-null values of this type from their sizes in bytes. Raise CorruptError."""
    return _of_sizes(kind, sizes, None, file)


def _of_sizes(
    kind: ColumnType, sizes: NDArray[np.int64], nulls: NDArray[np.bool_] | None, file: str | None
) -> NDArray[np.int64]:
    if not kind.scalar:
        return sizes
    if kind.stars:
        counts, rest = np.divmod(sizes - 4, kind.item_dtype.itemsize)
        wrong = (rest != 0) | (counts < 0)
    else:
        counts, wrong = np.full_like(sizes, (kind.shape or (1,))[0] or 0), sizes != kind.nbytes
    if nulls is not None:
        counts, wrong = np.where(nulls, 0, counts), wrong & ~nulls
    return _refuse(counts, wrong, file, f"the value's size is wrong for type '{kind}'")


def _numbers(values: NDArray[Any], file: str | None) -> NDArray[np.int64]:
    lengths = values.astype(np.int64)  # a larger uint64 becomes negative
    wrong = (lengths < 0) | (lengths > MAX_LENGTH)
    if wrong.any():
        sample = int(wrong.argmax())
        message, expected = "a length is out of range", f"0 to {MAX_LENGTH}"
        raise UsageError(message, file=file, place=f"sample {sample}", found=int(values[sample]), expected=expected)
    return lengths


def _refuse(lengths: NDArray[np.int64], wrong: NDArray[np.bool_], file: str | None, message: str) -> NDArray[np.int64]:
    if wrong.any():
        raise CorruptError(message, file=file, place=f"sample {int(wrong.argmax())}")
    return lengths
