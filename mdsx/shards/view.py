"""The samples and columns that are read, of one dataset or several, with their shards under one numbering.

Samples of a view's shard have the numbers that they have in the shard; `counts` says how many of them the view has,
and `stored` which ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.errors import CorruptError, UsageError, shown
from mdsx.format import Decoder, Schema, Selection
from mdsx.order import AllSamples, Subset
from mdsx.shards.gather import Columns, gather, present
from mdsx.shards.shards import Shards
from mdsx.storage.cache import Needs, Verdict

ColumnChoice = Sequence[str] | Mapping[str, str]
"""Names of columns, or a mapping: new name -> name in the dataset."""


@dataclass(frozen=True)
class Excerpt:
    """Some samples and columns of one dataset: column k of the excerpt is column `columns[k]` of the dataset."""

    shards: Shards
    subset: Subset
    schema: Schema
    columns: tuple[int, ...]

    @classmethod
    def whole(cls, shards: Shards) -> Excerpt:
        """All samples and columns."""
        columns = tuple(range(len(shards.schema.columns)))
        return cls(shards, AllSamples(shards.index.counts), shards.schema, columns)

    def choose(self, columns: ColumnChoice) -> Excerpt:
        """Return an excerpt of only `columns`, in order, maybe renamed. Raise UsageError for an unknown column."""
        if isinstance(columns, str):
            raise UsageError("columns are a list of names, or a mapping of names", found=shown(columns))
        asked = dict(columns) if isinstance(columns, Mapping) else {name: name for name in columns}
        schema, numbers = self.schema.choose(asked)
        shards, stored = self.shards.project([self.columns[number] for number in numbers])
        return replace(self, shards=shards, schema=schema, columns=stored)

    @cached_property
    def decoder(self) -> Decoder:
        """Decodes single samples into the excerpt's columns."""
        names = [column.name for column in self.schema.columns]
        return self.shards.index.decoder(dict(zip(names, self.columns, strict=True)))

    @property
    def fingerprint(self) -> str:
        """The dataset's fingerprint, or another one if the excerpt has only some of its samples."""
        fingerprint, name = self.shards.index.fingerprint, self.subset.name
        return xxhash.xxh3_128_hexdigest(f"{fingerprint}\n{name}".encode()) if name else fingerprint


class View:
    """Several excerpts with the same columns as one: shards are numbered from the first excerpt to the last."""

    def __init__(self, excerpts: Sequence[Excerpt], component_column: str | None = None) -> None:
        """`component_column`: the name of an additional int64 column: the number of each sample's excerpt."""
        self.excerpts = tuple(excerpts)
        self.component_column = component_column
        self._stored = _joined_schema([excerpt.schema for excerpt in excerpts])
        self.schema = self._stored
        if component_column is not None:
            if component_column in [column.name for column in self.schema.columns]:
                raise UsageError(f"there is a column {component_column!r} already", hint="give another name")
            added = Schema.from_columns({component_column: "int64"})
            self.schema = Schema.of((*self.schema.columns, *added.columns))
        self.counts = _joined([excerpt.subset.counts for excerpt in excerpts])
        self.raw_sizes = _joined([excerpt.shards.index.raw_sizes for excerpt in excerpts])
        sizes = [len(excerpt.subset.counts) for excerpt in excerpts]
        self.firsts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        """int64 [excerpts + 1]: the number of each excerpt's first shard, and of all shards."""

    @property
    def sample_bytes(self) -> int:
        """Uncompressed bytes of a sample, on average."""
        return int(self.raw_sizes.sum()) // max(int(self.counts.sum()), 1)

    @cached_property
    def mean_sizes(self) -> NDArray[np.float64]:
        """float64 [shards]: the uncompressed bytes of a sample of each shard, on average."""
        indexes = [excerpt.shards.index for excerpt in self.excerpts]
        return np.concatenate([index.raw_sizes / np.maximum(index.counts, 1) for index in indexes])

    @property
    def cache_limit(self) -> int | None:
        """Bytes that the smallest of the caches may hold; None if every shard is read in place."""
        return min(
            (excerpt.shards.cache.limit for excerpt in self.excerpts if excerpt.shards.cache is not None), default=None
        )

    def cached(self, shard: int) -> bool:
        """Whether a shard is read through a cache, not in place."""
        return self._at(shard)[0].shards.cache is not None

    def stored(self, shards: NDArray[np.int64], samples: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers in their shards of the view's `samples` of `shards`."""
        if all(not excerpt.subset.name for excerpt in self.excerpts):
            return samples
        numbers = np.empty_like(samples)
        for shard in np.unique(shards).tolist():
            here = shards == shard
            excerpt, number = self._at(shard)
            numbers[here] = excerpt.subset.samples(number, samples[here])
        return numbers

    # --- what Shards does, by the view's numbers

    def file(self, shard: int) -> str:
        excerpt, number = self._at(shard)
        return excerpt.shards.file(number)

    def is_open(self, shard: int) -> bool:
        excerpt, number = self._at(shard)
        return excerpt.shards.is_open(number)

    def open(self, shard: int, *, whole: bool) -> bool:
        excerpt, number = self._at(shard)
        return excerpt.shards.open(number, whole=whole)

    def fetch(self, shard: int, *, needs: Needs) -> Verdict | None:
        excerpt, number = self._at(shard)
        return excerpt.shards.fetch(number, needs=needs)

    def bring(self, shard: int, *, needed_in: float, needs: Needs, received: Callable[[int], None]) -> Verdict | None:
        excerpt, number = self._at(shard)
        if excerpt.shards.cache is None:
            return None
        return excerpt.shards.bring(number, needed_in=needed_in, needs=needs, received=received)

    def close(self, shard: int) -> None:
        excerpt, number = self._at(shard)
        excerpt.shards.close(number)

    def touch(self, shard: int, needed_in: float) -> None:
        """Note for the cache in how many seconds a shard is needed again."""
        excerpt, number = self._at(shard)
        if excerpt.shards.cache is not None:
            excerpt.shards.cache.touch(excerpt.shards.key(number), needed_in)

    def select(self, shard: int, samples: NDArray[np.int64]) -> Selection:
        excerpt, number = self._at(shard)
        return excerpt.shards.select(number, samples)

    def select_sound(self, shard: int, samples: NDArray[np.int64]) -> list[Selection | CorruptError]:
        excerpt, number = self._at(shard)
        return excerpt.shards.select_sound(number, samples)

    def by_shard(
        self, shards: NDArray[np.int64], samples: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], list[tuple[int, NDArray[np.int64]]]]:
        """Group `samples` by shard. Return the places of all groups in `samples`, joined; and each shard's group."""
        places = np.argsort(shards)
        numbers, firsts = np.unique(shards[places], return_index=True)
        groups = np.split(samples[places], firsts[1:]) if len(numbers) else []
        return places, list(zip(numbers.tolist(), groups, strict=True))

    def gather(
        self,
        found: Sequence[tuple[int, Selection]],
        places: NDArray[np.int64],
        sizes: Sequence[int],
        *,
        views: bool = False,
        join: bool = False,
    ) -> Iterator[Columns]:
        """Columns, in storage form, of the first `sizes[0]` samples of a result, of the next `sizes[1]`, and so on.

        `found` are shards and samples of them, `places[i]` the place in the result of sample i of all of them, joined.
        `views`: encoded bytes as memory views of the shards. `join`: variable-size columns as JoinedValues.
        """
        sources = [(selection, self._at(shard)[0].columns) for shard, selection in found]
        batches = gather(self._stored, sources, places, sizes, views=views, join=join)
        if self.component_column is None:
            yield from batches
            return
        numbers = np.empty_like(places)
        numbers[places] = np.repeat(
            [self._component(shard) for shard, _ in found], [len(each.take) for _, each in found]
        )
        stops = np.cumsum(sizes).tolist()
        for columns, start, stop in zip(batches, [0, *stops[:-1]], stops, strict=True):
            yield {**columns, self.component_column: numbers[start:stop].copy()}

    def present(self, columns: Columns) -> Columns:
        """Columns from storage form to NumPy's."""
        return present(self.schema, columns)

    def _at(self, shard: int) -> tuple[Excerpt, int]:
        component = self._component(shard)
        return self.excerpts[component], shard - int(self.firsts[component])

    def _component(self, shard: int) -> int:
        return int(np.searchsorted(self.firsts, shard, side="right")) - 1 if len(self.excerpts) > 1 else 0


def _joined_schema(schemas: Sequence[Schema]) -> Schema:
    """Return the schema of all, whose types are equal. The decoders of other formats read more than ours."""
    same_columns = zip(*(schema.columns for schema in schemas), strict=True)
    return Schema.of(max(same, key=lambda column: column.type.foreign is not None) for same in same_columns)


def _joined(arrays: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
