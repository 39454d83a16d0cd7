"""Changes to a column when it is read: another number type, a value in place of null, a decoder."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.decoding import Decoder
from mdsx.errors import FormatError, UsageError, shown
from mdsx.format import (
    BOOL,
    ColumnType,
    JoinedValues,
    Schema,
    always_fits,
    cast,
    check_castable,
    dimensions_encoder,
    first_outside,
    given_item,
    number_type,
    parse_type,
    value_decoder,
)
from mdsx.shards.decoded import decoded, type_given
from mdsx.shards.gather import StoredValues

Number = bool | int | float
DTypes = Mapping[str, Any]
"""Column -> the type to read its numbers as: "int64", torch.int64, np.int64, ..."""
Fill = Mapping[str, Number | tuple[Number, str]]
"""Column -> the number in place of null, maybe with the name of a mask: an additional bool column, False for null."""
Decode = Mapping[str, Decoder]
"""Column -> its decoder."""

_MASK = ColumnType(BOOL.name)


@dataclass(frozen=True, slots=True)
class Cast:
    """A column that is read as another type: an item of `columns=`.

        mdsx.Component("s3://bucket/a", columns={"tokens": mdsx.Cast("tokens", "uint32")})
        mdsx.Dataset("s3://bucket/mds", columns={"tokens": mdsx.Cast("tokens", "int64[*]")})

    Args:
        column: The column's name in the dataset.
        type: For numbers and arrays of numbers: the number type, as with `dtypes=`. For a column of bytes: a
            one-dimensional array whose items are these bytes, little-endian, such as "uint16[*]", or "int64[2048]" if
            all values have this length. Lengths then count items, so packing works. For a package's type: "bytes", or
            "bytes[*]" for lists, to read the values as stored.
    """

    column: str
    type: Any


def stored_columns(schema: Schema, *, absent: bool = False) -> dict[str, str | Cast]:
    """Return the choice of columns that reads all of them as stored: a package's types as bytes; with `absent`, only
    types whose package is not installed."""
    return {
        name: Cast(name, _bytes_of(kind)) if kind.packaged and not (absent and kind.known) else name
        for name, kind in ((column.name, column.type) for column in schema.columns)
    }


def _bytes_of(kind: ColumnType) -> str:
    return str(replace(kind.stored, nullable=False))


@dataclass(frozen=True, slots=True)
class Change:
    """How a column of type `source` is read: as `target`, with `fill` in place of null; or as a mask of nulls.

    `bytes_of`: the stored type, if the stored bytes are reinterpreted as items of `source`. `decoder` turns values into
    arrays of type `target`.
    """

    source: ColumnType
    target: ColumnType
    fill: Number | None = None
    is_mask: bool = False
    bytes_of: ColumnType | None = None
    decoder: Decoder | None = None

    @property
    def changes_nothing(self) -> bool:
        """Return whether values do not change, except that bytes may be reinterpreted as items."""
        return self.source == self.target and self.fill is None and not self.is_mask

    @property
    def identity(self) -> tuple[str, ...]:
        """Texts that differ between changes. Objects and functions without a `__repr__` of their own count by their
        types and names."""
        own = re.sub(" at 0x[0-9a-f]+", "", repr(self.decoder))
        return str(self.source), str(self.target), repr(self.fill), str(self.is_mask), str(self.bytes_of), own

    @property
    def casts_only(self) -> bool:
        """Return whether it only casts numbers."""
        return self.fill is None and not self.is_mask and self.decoder is None

    def apply(
        self, values: Any, name: str, place_of: Callable[[int], str], seeds: NDArray[np.uint64] | None = None
    ) -> Any:
        """Return the changed values of the column `name`, given and returned in storage form. `place_of(i)` names value
        i.

        `seeds`: the samples' seeds, for a decoder; None: all 0. Raise UsageError that names the first value that does
        not fit, or CorruptError that names the first value that cannot be decoded.
        """
        if self.decoder is not None:
            return decoded(self.decoder, self.target, values, name, place_of, seeds)
        if self.is_mask:
            return cast(_there(values), BOOL.name, self.target.base)
        if self.changes_nothing:
            return values
        if isinstance(values, np.ndarray):
            return self._cast(values, np.ones(len(values), np.int64), name, place_of)
        if not self.casts_only:
            return self._filled(values, name, place_of)
        there = [number for number, value in enumerate(values) if value is not None]
        items = [np.asarray(values[number]) for number in there]
        if not items:
            return values
        sizes = np.array([item.size for item in items], np.int64)
        joined = np.concatenate([item.reshape(-1) for item in items])
        found = self._cast(joined, sizes, name, lambda place: place_of(there[place]))
        begins = (np.cumsum(sizes) - sizes).tolist()
        changed: list[Any] = [None] * len(values)
        for number, item, begin in zip(there, items, begins, strict=True):
            changed[number] = found[begin : begin + item.size].reshape(item.shape)[()]
        return changed

    def apply_joined(
        self, values: JoinedValues, name: str, place_of: Callable[[int], str], seeds: NDArray[np.uint64] | None = None
    ) -> Any:
        """Return the changed values: an array if they have one size then, else joined."""
        if self.is_mask:
            return self.apply(values, name, place_of)
        if self.changes_nothing:
            return values
        data, edges = memoryview(values.data), values.edges.tolist()
        nulls = np.zeros(len(edges) - 1, np.bool_) if values.nulls is None else values.nulls
        decode = value_decoder(self.source, name, stored=True)
        items = [
            None if null else decode(data[start:stop])
            for (start, stop), null in zip(pairwise(edges), nulls.tolist(), strict=True)
        ]
        changed = self.apply(items, name, place_of, seeds)
        if isinstance(changed, np.ndarray):
            return changed
        dimensions = dimensions_encoder(self.target)
        encoded = [b"" if item is None else dimensions(np.shape(item)) + item.tobytes() for item in changed]
        sizes = np.cumsum([0, *map(len, encoded)])
        return JoinedValues(b"".join(encoded), sizes, values.nulls)

    def _filled(self, values: list[Any], name: str, place_of: Callable[[int], str]) -> NDArray[Any]:
        """Return values as an array, with nulls filled."""
        there = [number for number, value in enumerate(values) if value is not None]
        shape = tuple(size or 0 for size in self.target.shape or ())
        found = np.empty((len(values), *shape), self.target.item_dtype)
        found[...] = given_item(self.target.base, self.fill, "fill", name)
        if there:
            items = np.stack([np.asarray(values[number]) for number in there])
            found[there] = self._cast(items, np.ones(len(there), np.int64), name, lambda at: place_of(there[at]))
        return found

    def _cast(
        self, items: NDArray[Any], sizes: NDArray[np.int64], name: str, place_of: Callable[[int], str]
    ) -> NDArray[Any]:
        """Return the cast items; `sizes[i]` of them belong to value i."""
        source, target = self.source.base, self.target.base
        if not always_fits(source, target) and (wrong := first_outside(items, target)) is not None:
            row = wrong // max(math.prod(items.shape[1:]), 1)
            raise UsageError(
                "a value does not fit the type to read the column as",
                place=f"{place_of(int(np.searchsorted(np.cumsum(sizes), row, side='right')))}, column {name!r}",
                found=int(items.flat[wrong]),
                expected=target,
                hint="give a wider type in dtypes=",
            )
        return cast(items, source, target)


def _there(values: Any) -> NDArray[np.uint8]:
    """Return which of the values are not null, in storage form."""
    if isinstance(values, np.ndarray):
        return np.ones(len(values), np.uint8)
    if isinstance(values, JoinedValues | StoredValues):
        count = len(values.edges) - 1 if isinstance(values, JoinedValues) else len(values)
        return np.ones(count, np.uint8) if values.nulls is None else (~values.nulls).view(np.uint8)
    return np.fromiter((value is not None for value in values), np.uint8, len(values))


def changes_of(
    schema: Schema,
    changes: Iterable[Change | None],
    dtypes: DTypes | None,
    fill: Fill | None,
    decode: Decode | None = None,
) -> tuple[tuple[Change | None, ...], dict[str, int]]:
    """Add `dtypes`, `fill` and `decode` to the `changes` of a schema's columns. Return the changes, and the number of
    the column for each mask in `fill`, by name.

    Raises:
        UsageError: A column does not exist, or cannot be changed so.
    """
    given: dict[str, Mapping[str, Any]] = {"dtypes": dtypes or {}, "fill": fill or {}, "decode": decode or {}}
    names = [column.name for column in schema.columns]
    for argument, mapping in given.items():
        if not isinstance(mapping, Mapping):
            raise UsageError(f"{argument} must be a mapping from columns", found=shown(mapping))
        if unknown := [name for name in mapping if name not in names]:
            place = f"{argument}, column {str(unknown[0])[:80]!r}"
            raise UsageError("there is no such column", place=place, expected=", ".join(names))
    found, masks = [], dict[str, int]()
    for number, (column, before) in enumerate(zip(schema.columns, changes, strict=True)):
        change = before or Change(column.type, column.type)
        if column.name in given["dtypes"]:
            change = _with_type(change, column.name, given["dtypes"][column.name])
        if column.name in given["fill"]:
            change, mask = _with_fill(change, column.name, given["fill"][column.name])
            if mask is not None:
                if mask in masks:
                    raise taken(mask)
                masks[mask] = number
        if column.name in given["decode"]:
            change = with_decoder(change, column.name, given["decode"][column.name])
        if change.fill is not None:
            given_item(change.target.base, change.fill, "fill", column.name)
        found.append(None if change == Change(change.source, change.source) else change)
    return tuple(found), masks


def mask_of(stored: ColumnType) -> Change:
    """Return the change that reads a column of this type as a mask."""
    return Change(stored, _MASK, is_mask=True)


def taken(mask: str) -> UsageError:
    """Return the error for a mask with the name of another column."""
    return UsageError(f"there is a column {mask!r} already", place="fill", hint="give the mask another name")


def cast_changes(
    schema: Schema, changes: Iterable[Change | None], casts: Mapping[str, Cast]
) -> tuple[Change | None, ...]:
    """Add `casts`, by column, to the `changes` of a schema's columns. Raise UsageError for columns that cannot be
    cast."""
    found = []
    for column, before in zip(schema.columns, changes, strict=True):
        change = before or Change(column.type, column.type)
        if column.name in casts:
            change = _with_cast(change, column.name, casts[column.name].type)
        found.append(None if change == Change(change.source, change.source) else change)
    return tuple(found)


def _with_cast(change: Change, name: str, type: object) -> Change:
    if change.source.packaged and type == _bytes_of(change.source):
        return Change(change.source.stored, change.source.stored, bytes_of=change.source)
    if not isinstance(type, str) or "[" not in type:
        return _with_type(change, name, type)
    try:
        asked = parse_type(type)
    except FormatError as error:
        raise UsageError(str(error), place=f"column {name!r}") from None
    source = change.source
    if source.kind == "bytes" and not source.is_list and _takes_bytes(asked):
        read = replace(asked, nullable=source.nullable)
        return Change(read, read, bytes_of=source)
    if not source.scalar or asked.shape != source.shape or not asked.scalar:
        raise UsageError(
            "a column cannot be read as this type",
            place=f"column {name!r}",
            found=f"{source} to {asked}",
            expected="numbers to numbers of the same dimensions, or bytes to a one-dimensional array",
        )
    return _with_type(change, name, asked.base)


def _takes_bytes(asked: ColumnType) -> bool:
    """Return whether bytes can be reinterpreted as the items of such an array."""
    one_dimensional = asked.scalar and asked.shape is not None and len(asked.shape) == 1
    return one_dimensional and not asked.number.minor and asked.kind != "bool"


def _with_type(change: Change, name: str, dtype: object) -> Change:
    target = number_type(name, dtype)
    source = _MASK if change.is_mask else change.source
    if not source.scalar:
        message = "only numbers and arrays of numbers have a dtype"
        raise UsageError(message, place=f"dtypes, column {name!r}", found=str(source))
    check_castable(name, source.base, target)
    return replace(change, target=replace(change.target, base=target))


def _with_fill(change: Change, name: str, given: object) -> tuple[Change, str | None]:
    """Return the change with the given value in place of null, and the name of the mask."""
    value, mask = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    place = f"fill, column {name!r}"
    if not isinstance(value, bool | int | float | np.number | np.bool_) or not isinstance(mask, str | None):
        expected = 'a number, or a number and the name of a mask, such as (0, "has_score")'
        raise UsageError("the fill value is invalid", place=place, found=shown(given), expected=expected)
    if change.is_mask:
        raise UsageError("a mask has no nulls to fill", place=place, hint="fill the column of the mask")
    if not change.source.scalar or change.source.stars:
        raise UsageError(
            "only numbers, and arrays of numbers of one size, can be filled",
            place=place,
            found=str(change.source),
            hint="replace None in a transform",
        )
    if isinstance(value, np.generic):
        value = value.item()
    return replace(change, target=replace(change.target, nullable=False), fill=value), mask


def with_decoder(change: Change, name: str, decoder: object) -> Change:
    """Return the change of a column that `decoder` decodes. Raise UsageError if it cannot be."""
    if change != Change(change.source, change.source) and change.bytes_of is None:
        hint = "decode the stored column, and change the result in a transform"
        raise UsageError("a column with another change cannot be decoded", place=f"decode, column {name!r}", hint=hint)
    if change.bytes_of is not None or change.source.kind != "bytes" or change.source.is_list:
        raise UsageError(
            "only columns of encoded bytes can be decoded",
            place=f"decode, column {name!r}",
            found=str(change.source),
            expected="bytes, jpeg, png or the like",
        )
    if isinstance(decoder, type) or not isinstance(decoder, Decoder):
        expected = "an mdsx.Image, an mdsx.Audio, or an object with the methods of mdsx.Decoder"
        raise UsageError("not a decoder", place=f"decode, column {name!r}", found=shown(decoder), expected=expected)
    return replace(change, target=type_given(decoder, change.source, name), decoder=decoder)
