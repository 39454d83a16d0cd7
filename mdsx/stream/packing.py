"""Groups of samples -> batches: one copy brings values from where they are stored to where the layout puts them.

Python cuts and joins memory views, two cheap operations for each sample and column. All that need not be done for each
batch is done for a chunk of them at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from operator import getitem
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import UsageError, shown
from mdsx.format import ColumnType, Schema, always_fits, as_array, cast, first_outside
from mdsx.shards import Columns, StoredValues
from mdsx.stream.casts import How, hows_of
from mdsx.stream.rows import Layout, Rows
from mdsx.stream.sample_info import info_records
from mdsx.stream.steps import RankGroups
from mdsx.stream.value_lengths import check_lengths, check_own_lengths

_IDS = 8  # bytes of a value's segment id and position id
_UNKNOWN = 16  # bytes of a value in the columns that a transform makes, about

PlaceOf = Callable[[int], str]
"""The name, for messages, of one of the given samples, by its number among them."""


class Packing:
    """Makes packed batches of the columns of `schema`, as `layout` says; made once for a loader. Without a schema, a
    transform makes the columns: then `packed_samples` makes the batches, and checks what the layout says of columns.

    In a batch, packed columns are arrays in storage form (see `View.gather`); `types` has their
    types. Other columns are as `View.gather` yields them, or with a nested layout, one list of values per row.

    Raises:
        UsageError: A column has the name of a key that packing adds, or a type or pad value does not fit.
    """

    kinds: dict[str, ColumnType]
    """The type of each column."""
    types: dict[str, ColumnType]
    """The type of each packed column in a batch."""

    def __init__(
        self, schema: Schema | None, layout: Layout, *, stored: Schema | None = None, info: str | None = None
    ) -> None:
        """`stored`: the types of the columns that are given, if they differ (see `View.packed_schema`). `info`: the
        column that says where each sample is from (see sample_info.py)."""
        self.layout, self._info = layout, info
        self.kinds, self._stored = _kinds(schema), _kinds(stored or schema)
        bases = {
            name: (self._stored[name].base, kind.base) if _is_packed(kind, layout) else None
            for name, kind in self.kinds.items()
        }
        self._hows = hows_of(bases, layout) if schema is not None else {}
        self.types = _types(self._hows)

    @property
    def row_bytes(self) -> int | None:
        """Return the most bytes that a row takes, or a length-bounded batch. None if that is not known."""
        if self.layout.capacity is None or not self.layout.grouped:
            return None
        return self.layout.capacity * ((sum(kind.nbytes for kind in self.types.values()) or _UNKNOWN) + _IDS)

    def batches(
        self, columns: Columns, steps: Sequence[RankGroups], place_of: PlaceOf = "sample {}".format
    ) -> Iterator[Columns]:
        """Yield the batch of each step, from the samples of all of them, in the order of their groups.

        `columns` are in storage form, as `View.gather` yields them with `stored`, or decoded. A batch has arrays of its
        own. An error may come with an earlier batch of `steps` than its own.

        Raises:
            UsageError: A value has another length than its sample, or does not fit its type in the batch.
            CorruptError: A value is damaged.
        """
        sources: dict[str, Any] = {
            name: _source(kind, columns[name]) if self._hows[name] else self._other(kind, columns[name])
            for name, kind in self._stored.items()
        }
        if self._info is not None:
            sources[self._info] = info_records(columns[self._info])
        return _batches(sources, self._hows, steps, self.layout, place_of)

    def _other(self, kind: ColumnType, values: StoredValues | NDArray[Any] | list[Any]) -> list[Any] | NDArray[Any]:
        """Return the values of a column that is not packed, in storage form; in lists, bools are bools."""
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

    A key is packed if its values are one-dimensional arrays or tensors of numbers. `like`: a sample that shows keys and
    types if there is none.

    Raises:
        UsageError: Samples have different keys or types, or a value has another length than its sample.
    """
    first = samples[0] if samples else {} if like is None else like
    if not isinstance(first, Mapping):
        raise UsageError(
            "with batching=, transform returns a dict",
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
        sources[name] = _source(ColumnType(base, (None,)), [as_array(value)[0] for value in values])  # type: ignore[index]  # it is one
    (batch,) = _batches(sources, hows, [groups], layout, place_of, transformed=True)
    return batch, _types(hows)


def _kinds(schema: Schema | None) -> dict[str, ColumnType]:
    return {} if schema is None else {column.name: column.type for column in schema.columns}


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


class _Source(NamedTuple):
    """Values of a packed column: value i has `counts[i]` items from byte `begins[i]` of `heaps[sources[i]]` on.

    `check()` raises for damaged values.
    """

    begins: NDArray[np.int64]
    counts: NDArray[np.int64]
    heaps: list[memoryview]
    sources: NDArray[np.int64] | int
    check: Callable[[], object]


def _source(kind: ColumnType, values: StoredValues | NDArray[Any] | list[Any]) -> _Source:
    if isinstance(values, StoredValues):
        return _Source(*values.items(), values.heaps, values.sources, values.decode)
    if isinstance(values, list):
        arrays = [np.zeros(0, kind.item_dtype) if value is None else value for value in values]
        counts = np.fromiter(map(len, arrays), np.int64, len(arrays))
        values = np.concatenate(arrays) if arrays else np.zeros(0, kind.item_dtype)
    else:
        counts = np.full(len(values), values.shape[1], np.int64)
    items = np.ascontiguousarray(values, None if values.dtype == np.bool_ else kind.item_dtype).reshape(-1)
    return _Source((np.cumsum(counts) - counts) * items.itemsize, counts, [items.view(np.uint8).data], 0, list)


def _types(hows: Mapping[str, How | None]) -> dict[str, ColumnType]:
    return {name: ColumnType(how.target, (None,)) for name, how in hows.items() if how is not None}


def _batches(
    sources: Mapping[str, Any],
    hows: Mapping[str, How | None],
    steps: Sequence[RankGroups],
    layout: Layout,
    place_of: PlaceOf,
    *,
    transformed: bool = False,
) -> Iterator[Columns]:
    """Yield the batches of steps from the _Source of each packed column, and the values of the others."""
    firsts, sizes = (np.concatenate([groups[part] for groups in steps]) for part in (1, 2))
    packed = {name: source for name, source in sources.items() if hows.get(name)}
    if layout.own_lengths:
        own = check_own_lengths(packed, sizes, layout, place_of, transformed)
        rows_of = {name: layout.rows_of(steps, counts) for name, counts in own.items()}
    else:
        check_lengths(packed, firsts, sizes, layout, place_of, transformed)
        rows_of = {}
    rows = layout.rows_of(steps, sizes)
    columns = {
        name: _Column(name, how, sources[name], firsts, rows_of.get(name, rows), place_of)
        for name, how in hows.items()
        if how
    }
    for number, groups in enumerate(steps):
        part = rows.parts[number]
        batch: Columns = {
            name: columns[name].next(number) if name in columns else rows.others(source, part, nested=layout.nested)
            for name, source in sources.items()
        }
        if layout.own_lengths:
            for name, own_rows in rows_of.items():
                for key, value in layout.keys(own_rows, own_rows.parts[number]).items():
                    batch.setdefault(key, {})[name] = value
        else:
            batch.update(layout.keys(rows, part))
        if layout.grouped:
            batch.update(global_samples=groups.step_samples, global_tokens=groups.step_values)
        yield batch


class _Column:
    """A packed column of a chunk of batches: where the items of each of its stretches are."""

    def __init__(
        self, name: str, how: How, source: _Source, firsts: NDArray[np.int64], rows: Rows, place_of: PlaceOf
    ) -> None:
        self._name, self._how, self._rows, self._place_of, self._check = name, how, rows, place_of, source.check
        self._kind, self._cast = ColumnType(how.source), how.source != how.target
        self._fits, self._pads = always_fits(how.source, how.target), bool(np.any(how.pad))
        self._dtype, size, self._highest = self._kind.item_dtype, self._kind.nbytes, self._kind.number.highest
        padding = (bytes(size) if self._cast else how.pad.tobytes()) * rows.longest_gap
        heaps = [*source.heaps, memoryview(padding)]
        which, starts = np.full(len(rows.counts), len(source.heaps)), np.zeros(len(rows.counts), np.int64)
        which[rows.at], starts[rows.at] = source.sources, source.begins + firsts * size
        cuts = map(slice, starts.tolist(), (starts + rows.counts * size).tolist())
        self._pieces: Any = map(getitem, map(heaps.__getitem__, which.tolist()), cuts)

    def next(self, number: int) -> NDArray[Any]:
        """Return the rows of the next batch, which has this number."""
        how, part = self._how, self._rows.parts[number]
        items = np.ndarray(part.shape, self._dtype, bytearray().join(islice(self._pieces, part.pieces)))
        if self._highest is not None and items.size and int(items.max()) > self._highest:
            self._check()
        if not self._cast:
            return items
        if not self._fits and (wrong := first_outside(items, how.target)) is not None:
            raise UsageError(
                "a value does not fit the column's type in the batch",
                place=f"{self._place_of(self._rows.sample_at(part, wrong))}, column {self._name!r}",
                found=int(items.flat[wrong]),
                expected=how.target,
                hint="give a wider type by dtypes=",
            )
        found = cast(items, how.source, how.target)
        if self._pads:
            self._rows.pad(found, part, how.pad)
        return found
