"""Some samples and columns of a dataset, or of several datasets joined by sample number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import xxhash

from mdsx.base.cached import cached_property
from mdsx.errors import UsageError, shown
from mdsx.format import Column, Decoder, Schema
from mdsx.order import AllSamples, Subset
from mdsx.shards.changes import Cast, Change, Decode, DTypes, Fill, cast_changes, changes_of, mask_of, taken
from mdsx.shards.shards import Shards
from mdsx.storage.cache import Cache

ColumnChoice = Sequence[str] | Mapping[str, str | Cast]
"""Names of columns, or a mapping: new name -> name in the dataset, or a Cast of it."""


@dataclass(frozen=True)
class DatasetSlice:
    """Some samples and columns of one dataset, or of several datasets joined by sample number.

    Column k is column `columns[k]` of the dataset with number `homes[k]`: 0 is `shards`, i is `sides[i - 1]`. It is
    read with `changes[k]`. The subset and the order are those of `shards`.
    """

    shards: Shards
    subset: Subset
    schema: Schema
    columns: tuple[int, ...]
    homes: tuple[int, ...]
    changes: tuple[Change | None, ...]
    sides: tuple[Shards, ...] = ()

    @classmethod
    def whole(cls, shards: Shards) -> DatasetSlice:
        """All samples and columns."""
        columns = tuple(range(len(shards.schema.columns)))
        homes, changes = (0,) * len(columns), (None,) * len(columns)
        return cls(shards, AllSamples(shards.index.counts), shards.schema, columns, homes, changes)

    def choose(self, columns: ColumnChoice) -> DatasetSlice:
        """Return a slice with only `columns`, in this order, maybe renamed. Raise UsageError for an unknown column."""
        if isinstance(columns, str) or not isinstance(columns, Iterable):
            raise UsageError("columns must be a list of names, or a mapping of names", found=shown(columns))
        names = [*columns.items()] if isinstance(columns, Mapping) else [(name, name) for name in columns]
        if not all(isinstance(name, str) and isinstance(each, str | Cast) for name, each in names):
            raise UsageError("the name of a column must be text", found=shown(columns))
        given = dict(names)
        asked = {name: each.column if isinstance(each, Cast) else each for name, each in given.items()}
        casts = {name: each for name, each in given.items() if isinstance(each, Cast)}
        schema, numbers = self.schema.choose(asked)
        homes = tuple(self.homes[number] for number in numbers)
        datasets, stored = list(self.datasets), [self.columns[number] for number in numbers]
        for home in range(len(datasets)):
            here = [place for place, found in enumerate(homes) if found == home]
            if here or len(datasets) == 1:
                datasets[home], there = datasets[home].project([stored[place] for place in here])
                for place, number in zip(here, there, strict=True):
                    stored[place] = number
        chosen = replace(
            self,
            shards=datasets[0],
            schema=schema,
            columns=tuple(stored),
            homes=homes,
            changes=tuple(self.changes[number] for number in numbers),
            sides=tuple(datasets[1:]),
        )
        return chosen._with(cast_changes(chosen.stored_schema, chosen.changes, casts)) if casts else chosen

    def change(self, dtypes: DTypes | None, fill: Fill | None, decode: Decode | None = None) -> DatasetSlice:
        """Return the slice with `dtypes`, `fill` and `decode` applied to its columns. Raise UsageError for columns that
        cannot be changed so."""
        if not dtypes and not fill and not decode:
            return self
        changes, masks = changes_of(self.stored_schema, self.changes, dtypes, fill, decode)
        changed = self._with(changes)
        for name, number in masks.items():
            changed = changed._masked(name, number)
        return changed

    def _with(self, changes: tuple[Change | None, ...]) -> DatasetSlice:
        """Return the slice with these changes of its columns."""
        columns = [
            Column(column.name, column.type if change is None else change.target)
            for column, change in zip(self.stored_schema.columns, changes, strict=True)
        ]
        return replace(self, schema=Schema.of(columns), changes=changes)

    def _masked(self, name: str, number: int) -> DatasetSlice:
        """Return the slice with the mask of column `number` as an additional column, unless it has that one already."""
        mask = mask_of(self.stored_schema.columns[number].type)
        for column, *of in zip(self.schema.columns, self.columns, self.homes, self.changes, strict=True):
            if column.name == name:
                if of == [self.columns[number], self.homes[number], mask]:
                    return self
                raise taken(name)
        (added,) = Schema.from_columns({name: str(mask.target)}).columns
        return replace(
            self,
            schema=Schema.of((*self.schema.columns, added)),
            columns=(*self.columns, self.columns[number]),
            homes=(*self.homes, self.homes[number]),
            changes=(*self.changes, mask),
        )

    @property
    def stored_schema(self) -> Schema:
        """The columns with their stored types, or the types that their bytes are reinterpreted as."""
        columns = [
            column if change is None else Column(column.name, change.source)
            for column, change in zip(self.schema.columns, self.changes, strict=True)
        ]
        return Schema.of(columns)

    def join(self, other: DatasetSlice) -> DatasetSlice:
        """Return a slice with the columns of both, of the same samples."""
        homes = tuple(home + 1 + len(self.sides) for home in other.homes)
        return replace(
            self,
            schema=Schema.of((*self.schema.columns, *other.schema.columns)),
            columns=(*self.columns, *other.columns),
            homes=(*self.homes, *homes),
            changes=(*self.changes, *other.changes),
            sides=(*self.sides, *other.datasets),
        )

    @property
    def datasets(self) -> tuple[Shards, ...]:
        """The shards of all joined datasets."""
        return (self.shards, *self.sides)

    @property
    def read(self) -> tuple[int, ...]:
        """The numbers of the datasets whose columns are read."""
        return tuple(sorted(set(self.homes))) or (0,)

    def with_cache(self, cache: Cache, *, by_default: bool = False) -> DatasetSlice:
        """Return the slice read through `cache`. With `by_default`, only datasets that were opened without one use it.
        Otherwise, raise UsageError if a dataset was opened with another one."""
        shards, *sides = (
            dataset if by_default and not dataset.has_default_cache else dataset.with_cache(cache)
            for dataset in self.datasets
        )
        return replace(self, shards=shards, sides=tuple(sides))

    def check_caches(self) -> None:
        """Raise UsageError if a cache cannot hold the largest shard of a dataset that is read."""
        for number in self.read:
            self.datasets[number].check_cache()

    @cached_property
    def decoder(self) -> Decoder:
        """Decodes single samples into the slice's columns. Only without sides and changes."""
        names = [column.name for column in self.schema.columns]
        return self.shards.index.decoder(dict(zip(names, self.columns, strict=True)))

    @property
    def fingerprint(self) -> str:
        """The dataset's fingerprint; another one if datasets are joined or only some samples are chosen."""
        fingerprint, name = self.shards.index.fingerprint, self.subset.name
        if self.sides:
            lines = "\n".join(["zip", *(shards.index.fingerprint for shards in self.datasets)])
            fingerprint = xxhash.xxh3_128_hexdigest(lines.encode())
        return xxhash.xxh3_128_hexdigest(f"{fingerprint}\n{name}".encode()) if name else fingerprint

    @property
    def identity(self) -> str:
        """The fingerprint; another one if datasets are joined, or columns renamed or changed.

        So it differs between slices that give other values in columns of the same names.
        """
        lines, own = [self.fingerprint], not self.sides
        for column, number, home, change in zip(
            self.schema.columns, self.columns, self.homes, self.changes, strict=True
        ):
            name = self.datasets[home].schema.columns[number].name
            own = own and name == column.name and change is None
            lines.append(repr((column.name, home, name, None if change is None else change.identity)))
        return self.fingerprint if own else xxhash.xxh3_128_hexdigest("\n".join(lines).encode("utf-8", "surrogatepass"))
