"""Make batches from groups of samples: pack columns as the layout says, and add its keys.

Work that need not be repeated for each batch is done once for a chunk of batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import UsageError, shown
from mdsx.format import ColumnType, Schema, as_array, given_item
from mdsx.shards import Columns, StoredValues
from mdsx.stream.added_tokens import AddedTokens, Labels
from mdsx.stream.casts import How, hows_of
from mdsx.stream.extras import token_column
from mdsx.stream.packed_column import PackedColumn
from mdsx.stream.rows import Joined, Layout, Rows
from mdsx.stream.sample_info import info_records
from mdsx.stream.sources import PlaceOf, source_of
from mdsx.stream.steps import RankGroups
from mdsx.stream.value_lengths import check_lengths, check_own_lengths

_IDS = 8  # bytes of a value's segment id and position id
_LABEL, _COMPONENT = 8, 4  # bytes of a value


class Packing:
    """Makes packed batches of the columns of `schema`, as `layout` says; a loader has one. Without a schema, a
    transform makes the columns: `packed_samples` then makes the batches, and checks the layout against them.

    In a batch, packed columns are arrays in storage form (see `View.gather`); `types` has their types. Other columns
    are as `View.gather` yields them, or with a nested layout, one list of values per row.

    A transform may change columns, so they are unknown until it returns samples (see `packed_samples`).

    Raises:
        UsageError: A column has the name of a key that packing adds, or a type, pad value or token does not fit.
    """

    kinds: dict[str, ColumnType]
    """The type of each column."""
    types: dict[str, ColumnType]
    """The type of each packed column in a batch."""

    def __init__(
        self,
        schema: Schema,
        layout: Layout,
        *,
        stored: Schema | None = None,
        info: str | None = None,
        transformed: bool = False,
    ) -> None:
        """`stored`: the types of the given columns, if they differ (see `View.packed_schema`). `info`: the column with
        the origin of each sample (see sample_info.py). `transformed`: whether there is a transform."""
        self.kinds = {column.name: column.type for column in schema.columns}
        self._stored = {column.name: column.type for column in (stored or schema).columns}
        self._hows, self.layout, self._info = dict[str, How | None](), layout, info
        if not transformed:
            self._hows = hows_of(
                {
                    name: (self._stored[name].base, kind.base) if _is_packed(kind, layout) else None
                    for name, kind in self.kinds.items()
                },
                layout,
            )
            _tokens_of(self._hows, layout)
        self.types = _types(self._hows)

    @property
    def row_bytes(self) -> int | None:
        """Return the most bytes that a row, or a length-bounded batch, takes; None if unknown."""
        if self.layout.capacity is None or not self.layout.grouped or not self._hows:
            return None
        extras = self.layout.extras
        added = _IDS + _LABEL * extras.labels + _COMPONENT * extras.component_ids
        return self.layout.capacity * (sum(kind.nbytes for kind in self.types.values()) + added)

    def batches(
        self, columns: Columns, steps: Sequence[RankGroups], place_of: PlaceOf = "sample {}".format
    ) -> Iterator[Columns]:
        """Yield the batch of each step, from the samples of all of them, in the order of their groups.

        `columns` are in storage form, as `View.gather` yields them with `stored`, or decoded. Batches do not share
        arrays. An error may be raised at an earlier batch of `steps` than its own.

        Raises:
            UsageError: A value has another length than its sample, or does not fit its type in the batch.
            CorruptError: A value is damaged.
        """
        sources: dict[str, Any] = {
            name: source_of(kind, columns[name]) if self._hows[name] else self._other(kind, columns[name])
            for name, kind in self._stored.items()
        }
        if self._info is not None:
            sources[self._info] = info_records(columns[self._info])
        return _batches(sources, self._hows, steps, self.layout, place_of)

    def _other(self, kind: ColumnType, values: StoredValues | NDArray[Any] | list[Any]) -> list[Any] | NDArray[Any]:
        """Return the values of a column that is not packed, in storage form. Lists have Python's bools."""
        if isinstance(values, StoredValues):
            values = values.decode()
        if not isinstance(values, np.ndarray):
            return list(values)
        if not self.layout.nested:
            return values
        if kind.kind == "bool":
            values = values.view(np.bool_)
            return values.tolist() if values.ndim == 1 else list(values)
        return list(values)


def packed_samples(
    samples: Sequence[Mapping[str, Any]],
    groups: RankGroups,
    layout: Layout,
    *,
    like: Mapping[str, Any] | None = None,
    place_of: PlaceOf = "sample {}".format,
) -> tuple[Columns, dict[str, ColumnType]]:
    """Return the batch of transformed samples, and the types of its packed columns (see `Packing.types`).

    A key is packed if its values are one-dimensional arrays or tensors of numbers. `like`: a sample with the keys and
    types, in case there are no samples.

    Raises:
        UsageError: Samples have different keys or types, or a value has another length than its sample.
    """
    first = samples[0] if samples else {} if like is None else like
    if not isinstance(first, Mapping):
        raise UsageError(
            "with batching=, transform must return a dict",
            place=place_of(0) if samples else None,
            found=type(first).__name__,
            hint='return the columns by name, such as {"tokens": tokens}',
        )
    bases = {name: _base(value) for name, value in first.items()}
    hows = hows_of({name: None if base is None else (base, base) for name, base in bases.items()}, layout)
    sources = dict[str, Any]()
    for number, sample in enumerate(samples):
        if not isinstance(sample, Mapping) or sample.keys() != first.keys():
            raise UsageError(
                "the samples of a batch have different keys",
                place=place_of(number),
                found=shown(sorted(sample, key=str)) if isinstance(sample, Mapping) else type(sample).__name__,
                expected=shown(sorted(first, key=str)),
                hint="give each sample the same keys, with None where it has no value",
            )
    for name, base in bases.items():
        values = [sample[name] for sample in samples]
        if base is None:
            sources[name] = values
            continue
        for number, value in enumerate(values):
            if _base(value) != base:
                raise UsageError(
                    "the values of a key have different types",
                    place=f"{place_of(number)}, {name!r}",
                    found=_base(value) or type(value).__name__,
                    expected=f"a one-dimensional array of {base}, as in {place_of(0)}",
                    hint="return the same types for every sample",
                )
        sources[name] = source_of(ColumnType(base, (None,)), [as_array(value)[0] for value in values])  # type: ignore[index]  # it is one
    (batch,) = _batches(sources, hows, [groups], layout, place_of, transformed=True)
    return batch, _types(hows)


def _is_packed(kind: ColumnType, layout: Layout) -> bool:
    one_dimensional = kind.scalar and kind.shape is not None and len(kind.shape) == 1
    return one_dimensional and (kind.stars > 0 or not layout.own_lengths)


def _base(value: Any) -> str | None:
    """Return the type of a value that is packed, or None."""
    if isinstance(value, np.ndarray) or hasattr(value, "detach"):
        found = as_array(value)
        if found is not None and found[0].ndim == 1 and ColumnType(found[1]).scalar:
            return found[1]
    return None


def _batches(
    sources: Mapping[str, Any],
    hows: Mapping[str, How | None],
    steps: Sequence[RankGroups],
    layout: Layout,
    place_of: PlaceOf,
    *,
    transformed: bool = False,
) -> Iterator[Columns]:
    """Yield the batches of steps from the Source of each packed column and the values of the other columns."""
    chunk = Joined.of(steps)
    _, shards, _, lengths, firsts, sizes = chunk.items
    packed = {name: source for name, source in sources.items() if hows.get(name)}
    extras = layout.extras
    if layout.own_lengths:
        own = check_own_lengths(packed, sizes, layout, place_of, transformed)
        rows_of = {name: layout.rows_of(chunk, counts) for name, counts in own.items()}
    else:
        check_lengths(packed, extras.stored(lengths), layout, place_of, transformed)
        rows_of = {}
    rows = layout.rows_of(chunk, sizes)
    tokens = _tokens_of(hows, layout)
    added = AddedTokens(rows, firsts, lengths, extras) if extras.added else None
    columns = dict[str, PackedColumn]()
    for name, how in hows.items():
        if how:
            added_here = tokens.items if name == tokens.column else (None, None)
            own_rows = rows_of.get(name, rows)
            columns[name] = PackedColumn(name, how, sources[name], firsts, own_rows, place_of, added, added_here)
    labels = None
    if extras.labels and tokens.column is not None and (how := hows[tokens.column]):
        dtype = ColumnType(how.source).item_dtype
        labels = Labels(rows, sources[tokens.column], dtype, firsts, lengths, extras)
    keys = {name: _Keys(layout, each, shards) for name, each in rows_of.items()}
    of_rows = None if layout.own_lengths else _Keys(layout, rows, shards)
    for number, groups in enumerate(steps):
        part = rows.parts[number]
        batch: Columns = {
            name: columns[name].next(number) if name in columns else rows.others(source, part, nested=layout.nested)
            for name, source in sources.items()
        }
        if labels is not None:
            batch["labels"] = labels.of(batch[tokens.column or ""], number)
        if of_rows is not None:
            batch.update(of_rows.of(number))
        for name, of_column in keys.items():
            for key, value in of_column.of(number).items():
                batch.setdefault(key, {})[name] = value
        if layout.grouped:
            batch.update(global_samples=groups.step_samples, global_tokens=groups.step_values)
        yield batch


class _Keys:
    """The keys of a chunk's batches that map values to samples."""

    def __init__(self, layout: Layout, rows: Rows, shards: NDArray[np.int64]) -> None:
        self._layout, self._rows = layout, rows
        self._components: NDArray[np.int32] | None = None
        if layout.extras.component_ids:
            self._components = rows.of_stretches(layout.extras.component_of(shards), -1)

    def of(self, number: int) -> Columns:
        rows, part = self._rows, self._rows.parts[number]
        found = self._layout.keys(rows, part)
        if self._components is not None:
            found["component_ids"] = rows.spread(self._components, part)
        return found


class _Tokens(NamedTuple):
    """The column of the tokens, and the begin and end tokens."""

    column: str | None
    items: tuple[NDArray[Any] | None, NDArray[Any] | None]


def _tokens_of(hows: Mapping[str, How | None], layout: Layout) -> _Tokens:
    """Return the tokens. Raise UsageError if their column is ambiguous, or its type does not allow them."""
    packed, extras = {name: how.target for name, how in hows.items() if how}, layout.extras
    name = token_column(extras, layout.length_columns, packed)
    begin, end = (
        None if token is None or name is None else given_item(packed[name], token, argument, name)
        for argument, token in (("begin", extras.begin), ("end", extras.end))
    )
    return _Tokens(name, (begin, end))


def _types(hows: Mapping[str, How | None]) -> dict[str, ColumnType]:
    return {name: ColumnType(how.target, (None,)) for name, how in hows.items() if how is not None}
