"""Check samples and encode them, column by column.

An Encoder takes one sample at a time (`sample`; `gather` joins many) or a whole batch of columns (`batch`). Both give
the same `Encoded`. A value that does not fit raises SampleError before anything is kept, so a batch is encoded as a
whole or not at all. The caller may change a sample as soon as `sample` has returned, but the arrays of a batch only
after they were added to a shard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import SampleError
from mdsx.format.inputs import Refused, as_array, describe, each, has_masked
from mdsx.format.numbers import to_items
from mdsx.format.rows import NULL as NULL_LENGTH
from mdsx.format.schema import Column, Schema
from mdsx.format.values import NULL, as_sequence, dimensions_encoder, value_encoder


@dataclass(frozen=True, slots=True)
class Encoded:
    """Encoded samples, in order. V is the number of variable-size columns."""

    samples: int
    fixed: list[NDArray[Any]]
    """The stored items of each fixed-size column, [samples, *shape]."""
    lengths: NDArray[np.uint32]
    """[samples, V]: the size of each variable-size value in bytes, or NULL_LENGTH."""
    pieces: Sequence[bytes]
    """The variable-size values, V for each sample; b"" for null."""
    stops: NDArray[np.int64]
    """[samples]: where each sample's heap bytes end; the first sample's start at 0."""


class Encoder:
    """Checks and encodes samples of a schema."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._encoders = [(column.name, value_encoder(column.type)) for column in schema.columns]
        self._names = tuple(column.name for column in schema.columns)

    def sample(self, sample: Mapping[str, object]) -> tuple[list[bytes], int]:
        """Return the encoded values of one sample, in column order, and the sum of their sizes. Raise SampleError."""
        try:
            values = [encode(sample[name]) for name, encode in self._encoders]
            alike = len(sample) == len(values)
        except (Refused, LookupError, TypeError) as error:
            raise self._problem(sample) or error from None
        if not alike:
            self._check_names(sample, "sample")
        size = sum(map(len, values))
        if size >= NULL_LENGTH:
            for column, value in zip(self.schema.columns, values, strict=True):
                _check_length(column, len(value))
        return values, size

    def gather(self, samples: Sequence[Sequence[bytes]]) -> Encoded:
        """Join the values that `sample` returned for one or more samples."""
        columns = self.schema.columns
        encoded = [
            _items(column, values) if column.type.fixed_size else values
            for column, values in zip(columns, zip(*samples, strict=True), strict=True)
        ]
        return self._encoded(encoded, len(samples))

    def batch(self, columns: Mapping[str, object]) -> Encoded:
        """Encode a batch: column name -> an array or tensor [n, ...], or a sequence of n values. Raise SampleError."""
        self._check_names(columns, "batch")
        encoded = []
        for column, (name, encode) in zip(self.schema.columns, self._encoders, strict=True):
            try:
                encoded.append(_encode_many(column, encode, columns[name]))
            except Refused as refused:
                place = f"sample {refused.at[0]} of the batch, column" if refused.at else "column"
                raise _error(column, refused, f"{place} {name!r}", refused.at[1:]) from None
        sizes = {column.name: len(values) for column, values in zip(self.schema.columns, encoded, strict=True)}
        if len(set(sizes.values())) > 1:
            raise SampleError("the columns of a batch have different lengths", found=sizes)
        return self._encoded(encoded, len(encoded[0]))

    def _encoded(self, columns: Sequence[NDArray[Any] | Sequence[bytes]], samples: int) -> Encoded:
        variable = self.schema.variable
        lengths = np.zeros((samples, len(variable)), np.int64)
        nulls = np.zeros((samples, len(variable)), bool)
        for place, number in enumerate(variable):
            lengths[:, place] = np.fromiter(map(len, columns[number]), np.int64, samples)
            if samples:
                _check_length(self.schema.columns[number], int(lengths[:, place].max()))
            if self.schema.columns[number].type.nullable:
                nulls[:, place] = [value is NULL for value in columns[number]]
        pieces: Any = [columns[number] for number in variable]
        return Encoded(
            samples=samples,
            fixed=[np.asarray(columns[number]) for number in self.schema.fixed],
            lengths=np.where(nulls, NULL_LENGTH, lengths).astype(np.uint32),
            pieces=pieces[0] if len(pieces) == 1 else list(chain.from_iterable(zip(*pieces, strict=True))),
            stops=lengths.sum(axis=1).cumsum(),
        )

    def _check_names(self, given: object, what: str) -> None:
        if not isinstance(given, Mapping):
            raise SampleError(f"a {what} is a mapping of column names to values", found=type(given).__name__)
        missing = [name for name in self._names if name not in given]
        unknown = [name for name in given if name not in self._names]
        if missing:
            hint = "give None where it is null" if what == "sample" else None
            raise SampleError(f"the {what} lacks columns", place=_columns(missing), found=_columns(given), hint=hint)
        if unknown:
            raise SampleError(
                f"the {what} has unknown columns",
                place=_columns(unknown),
                expected=_columns(self._names),
            )

    def _problem(self, sample: Mapping[str, object]) -> SampleError | None:
        """Return the error for a sample that does not fit."""
        try:
            self._check_names(sample, "sample")
        except SampleError as error:
            return error
        for column, (name, encode) in zip(self.schema.columns, self._encoders, strict=True):
            try:
                encode(sample[name])
            except Refused as refused:
                return _error(column, refused, f"column {name!r}", refused.at)
        return None


def _encode_many(column: Column, encode: Any, values: object) -> NDArray[Any] | list[bytes]:
    """Encode a column of a batch: as an array of items if it is fixed-size, otherwise as bytes for each sample."""
    kind = column.type
    given = None if kind.nullable and has_masked(values) else as_array(values)
    if given is not None and not given[0].shape:
        raise Refused("one value for each sample", describe(values))
    if kind.scalar and given is not None and given[1] != "object":
        items = to_items(kind.base, values)
        dimensions = dimensions_encoder(kind)(items.shape[1:])
        if kind.fixed_size:
            return items
        return [dimensions + item.tobytes() for item in items]
    values = as_sequence(values if given is None else given[0], "an array or a sequence with one value for each sample")
    pieces = each(values, encode)
    return _items(column, pieces) if kind.fixed_size else pieces


def _items(column: Column, pieces: Sequence[bytes]) -> NDArray[Any]:
    shape: Any = column.type.shape or ()
    return np.frombuffer(b"".join(pieces), column.type.item_dtype).reshape(len(pieces), *shape)


def _check_length(column: Column, length: int) -> None:
    if length >= NULL_LENGTH and not column.type.fixed_size:
        raise SampleError(
            "a value is too large",
            place=f"column {column.name!r}",
            expected=f"fewer than {NULL_LENGTH} bytes",
            found=length,
        )


def _error(column: Column, refused: Refused, place: str, at: Sequence[int]) -> SampleError:
    found = f"{refused.found} at {list(at)}" if at else refused.found
    hint = refused.hint
    if refused.found == describe(None) and not at:
        hint = f"declare it as {f'{column.type}?'!r} to allow null"
    return SampleError(f"does not fit {column.type}", place=place, expected=refused.expected, found=found, hint=hint)


def _columns(names: Any) -> str:
    shown = [repr(name)[:80] for name in names]
    return ", ".join(shown[:16] + ["..."] * (len(shown) > 16)) or "none"
