"""The samples and columns to read, of one dataset or several, with one numbering for all shards.

`counts` is the number of samples that the view has of each shard, and `stored` returns their numbers in the shard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.base.cached import cached_property
from mdsx.decoding import Decoder
from mdsx.errors import CorruptError, UsageError
from mdsx.format import INT64, Column, JoinedValues, Schema, Selection
from mdsx.order import by_value
from mdsx.shards.changes import Change
from mdsx.shards.excerpt import DatasetSlice
from mdsx.shards.gather import Columns, StoredValues, gather, present
from mdsx.shards.needs import Announcer, CacheAnnouncer, Folder, Join, SideNeeds
from mdsx.shards.shards import Shards
from mdsx.storage.cache import Needs, ShardNames, Verdict

_DECODED = 12  # pixels of a picture take about this many times its encoded bytes


class Part(NamedTuple):
    """A dataset of a view."""

    shards: Shards
    component: int
    home: int
    join: Join | None  # None: a main dataset
    excerpt: int  # its index in `View.excerpts`


class _Read(NamedTuple):
    """A column of a view: the stored column that it is made from, and the change."""

    name: str
    stored: str
    change: Change | None


class _Columns(NamedTuple):
    """Columns of a view that all excerpts, or some that store them alike, have in one dataset."""

    schema: Schema  # of the stored columns
    stored: Mapping[int, tuple[int, ...]]  # part -> their numbers in it
    reads: tuple[_Read, ...]
    everywhere: bool

    def changed(
        self,
        batch: Columns,
        place_of: Callable[[int], str],
        *,
        stored: bool = False,
        seeds: NDArray[np.uint64] | None = None,
    ) -> Columns:
        """Apply the changes to a batch of the columns. With `stored`, StoredValues that need only a cast stay as they
        are. `seeds`: of its samples, for decoders."""
        found = Columns()
        for name, own, change in self.reads:
            values = batch[own]
            if change is not None and not (stored and change.casts_only and isinstance(values, StoredValues)):
                if isinstance(values, StoredValues) and not change.is_mask:
                    values = values.decode()
                if isinstance(values, JoinedValues):
                    values = change.apply_joined(values, name, place_of, seeds)
                else:
                    values = change.apply(values, name, place_of, seeds)
            found[name] = values
        return found


class View:
    """Several excerpts with the same columns, as one.

    The *main* shards are numbered first, from the first excerpt to the last. The shards of the sides follow. Samples
    are located by main shards. A component that is None was removed: it has a number, but no shards.
    """

    def __init__(self, components: Sequence[DatasetSlice | None], component_column: str | None = None) -> None:
        """`component_column`: the name of an additional int64 column with the number of each sample's component."""
        self.components = tuple(components)
        self.excerpts = excerpts = tuple(excerpt for excerpt in components if excerpt is not None)
        self.component_column = component_column
        self.schema = _joined_schema([excerpt.schema for excerpt in excerpts])
        if component_column is not None:
            if component_column in [column.name for column in self.schema.columns]:
                raise UsageError(f"there is a column {component_column!r} already", hint="give another name")
            (added,) = Schema.from_columns({component_column: INT64.name}).columns
            self.schema = Schema.of((*self.schema.columns, added))
        self.parts = _parts(self.components)
        self._columns = _columns(self.excerpts, self.parts)
        indexes = [part.shards.index for part in self.parts]
        self._firsts = np.cumsum([0, *(len(index.counts) for index in indexes)])
        main = iter(np.diff(self._firsts[: len(excerpts) + 1]).tolist())
        self.firsts = np.cumsum([0, *(0 if component is None else next(main) for component in components)])
        """int64 [components + 1]: the number of each component's first main shard, and of all main shards."""
        self.counts = _joined([excerpt.subset.counts for excerpt in excerpts])
        """int64 [main shards]: the number of samples that the view has of each."""
        self.shard_counts = _joined([self.counts, *(index.counts for index in indexes[len(excerpts) :])])
        """int64 [all shards]: the same, and the number of stored samples in each shard of a side."""
        self._zipped = len(self.parts) > len(excerpts)
        unread = [0 not in excerpt.read for excerpt in excerpts]
        self._unread = np.repeat(unread, np.diff(self._firsts[: len(excerpts) + 1]))
        self.raw_sizes = _joined([index.raw_sizes for index in indexes])
        """int64 [all shards]: uncompressed bytes; 0 for shards without any of the columns."""
        if any(unread):
            self.raw_sizes = self.raw_sizes.copy()
            self.raw_sizes[: self.firsts[-1]] *= ~self._unread
        sides = [part.join.overlaps() + self.firsts[part.component] for part in self.parts if part.join is not None]
        self.side_needs = SideNeeds(int(self.firsts[-1]), sides, self._unread)

    @property
    def sample_bytes(self) -> int:
        """The mean bytes of a sample: uncompressed, plus the results of decoders where their size is known."""
        samples = sum(excerpt.shards.index.samples for excerpt in self.excerpts)
        stored = int(self.raw_sizes.sum()) // max(samples, 1)
        given = [column.type for column in self.schema.columns if column.name in self.decodes]
        return stored + sum(_DECODED * stored if kind.stars else kind.nbytes for kind in given)

    @cached_property
    def decodes(self) -> dict[str, list[Decoder]]:
        """The decoders of each decoded column, by name, one for each excerpt."""
        found: dict[str, list[Decoder]] = {}
        for excerpt in self.excerpts:
            for column, change in zip(excerpt.schema.columns, excerpt.changes, strict=True):
                if change is not None and change.decoder is not None:
                    found.setdefault(column.name, []).append(change.decoder)
        return found

    @cached_property
    def mean_sizes(self) -> NDArray[np.float64]:
        """float64 [all shards]: the mean uncompressed bytes of a sample in each shard."""
        indexes = [part.shards.index for part in self.parts]
        return np.concatenate([index.raw_sizes / np.maximum(index.counts, 1) for index in indexes])

    @cached_property
    def cached_sizes(self) -> NDArray[np.int64]:
        """int64 [all shards]: the bytes of each in its cache; 0 for one that is read in place, or not read."""
        cached = np.array([part.shards.cache is not None for part in self.parts], np.int64)
        sizes: NDArray[np.int64] = self.raw_sizes * np.repeat(cached, np.diff(self._firsts))
        return sizes

    @cached_property
    def names(self) -> tuple[ShardNames | None, ...]:
        """The names of each part's shards in its cache; None if it is read in place."""
        return tuple(
            None if part.shards.cache is None else ShardNames(part.shards.index.raw_hashes) for part in self.parts
        )

    @property
    def cache_folders(self) -> dict[str, tuple[ShardNames, list[slice]]]:
        """The shard names of each dataset, and their numbers in the view, by folder of the cache.

        If datasets share a folder, as a dataset and its snapshot do, those of the larger one.
        """
        found: dict[str, tuple[str, ShardNames, list[slice]]] = {}
        parts = [(part.shards, self.names[number], self.numbers_of(number)) for number, part in enumerate(self.parts)]
        for shards, names, numbers in sorted(parts, key=lambda part: -len(part[0].index.counts)):
            if names is not None:
                fingerprint = shards.index.fingerprint
                known, _, slices = found.setdefault(shards.cache_folder, (fingerprint, names, []))
                if fingerprint == known:
                    slices.append(numbers)
        return {folder: (names, slices) for folder, (_, names, slices) in found.items()}

    def announcer(self, mine: NDArray[np.bool_]) -> Announcer:
        """Return an announcer of a reader's needs for the shards in `mine`, bool [all shards]."""
        caches = {part.shards.cache_folder: part.shards.cache for part in self.parts if part.shards.cache is not None}
        folders = {}
        for name, (names, slices) in self.cache_folders.items():
            shards, heads = names.by_head(reduce(np.logical_or, [mine[part] for part in slices]))
            largest = max(int(self.raw_sizes[part].max(initial=0)) for part in slices)
            folders[name] = Folder(caches[name], shards, heads, largest)
        return CacheAnnouncer(folders)

    def bytes_of(self, shards: int) -> int:
        """Return about how many bytes this many main shards have, including the shards of sides that they need."""
        total = float(shards * self.raw_sizes[: self.firsts[-1]].mean())
        for number, part in enumerate(self.parts):
            if part.join is not None:
                sizes = self.raw_sizes[self.numbers_of(number)]
                share = shards / max(int(self.firsts[-1]), 1)
                total += float(sizes.mean()) * min(shards + share * len(sizes), len(sizes)) if len(sizes) else 0.0
        return int(total)

    @property
    def cache_limit(self) -> int | None:
        """The limit of the smallest cache, in bytes; None if every shard is read in place."""
        caches = [excerpt.datasets[number].cache for excerpt in self.excerpts for number in excerpt.read]
        return min((cache.limit for cache in caches if cache is not None), default=None)

    def cached(self, shard: int) -> bool:
        """Whether a shard is read through a cache, not in place."""
        return self.at(shard)[0].cache is not None

    def numbers_of(self, part: int) -> slice:
        """Return the shard numbers of `parts[part]`."""
        return slice(int(self._firsts[part]), int(self._firsts[part + 1]))

    def stored(self, shards: NDArray[np.int64], samples: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the stored numbers, in their shards, of the view's `samples` of `shards`."""
        if all(not excerpt.subset.name for excerpt in self.excerpts):
            return samples
        numbers = np.empty_like(samples)
        for shard, here in by_value(shards):
            part = self.part(shard)
            number = shard - int(self._firsts[part])
            numbers[here] = self.excerpts[part].subset.samples(number, samples[here])
        return numbers

    # --- methods of Shards, by the view's shard numbers

    def file(self, shard: int) -> str:
        shards, number = self.at(shard)
        return shards.file(number)

    def is_open(self, shard: int) -> bool:
        shards, number = self.at(shard)
        return shards.is_open(number)

    def open(self, shard: int, *, whole: bool) -> bool:
        shards, number = self.at(shard)
        return shards.open(number, whole=whole)

    def fetch(self, shard: int, *, needs: Needs) -> Verdict | None:
        shards, number = self.at(shard)
        return shards.fetch(number, needs=needs)

    def bring(self, shard: int, *, needed_in: float, needs: Needs, received: Callable[[int], None]) -> Verdict | None:
        shards, number = self.at(shard)
        if shards.cache is None:
            return None
        return shards.bring(number, needed_in=needed_in, needs=needs, received=received)

    def is_being_made(self, shard: int) -> bool:
        shards, number = self.at(shard)
        return shards.is_being_made(number)

    def close(self, shard: int) -> None:
        shards, number = self.at(shard)
        shards.close(number)

    def touch(self, shard: int, needed_in: float) -> None:
        """Report to the cache in how many seconds a shard is needed again."""
        shards, number = self.at(shard)
        shards.touch(number, needed_in)

    def select(self, shard: int, samples: NDArray[np.int64]) -> Selection:
        shards, number = self.at(shard)
        return shards.select(number, samples)

    def select_undamaged(self, shard: int, samples: NDArray[np.int64]) -> list[Selection | CorruptError]:
        shards, number = self.at(shard)
        return shards.select_undamaged(number, samples)

    def expand(self, shards: NDArray[np.int64], samples: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        """Return all reads for `samples`, numbered as stored, of main shards: shards, samples, and the index in
        `samples` of each."""
        if not self._zipped:
            return shards, samples, np.arange(len(samples))
        found: list[tuple[NDArray[np.int64], ...]] = [(np.zeros(0, np.int64),) * 3]
        components = np.searchsorted(self.firsts, shards, side="right") - 1
        read = ~self._unread[shards]
        found.append((shards[read], samples[read], np.flatnonzero(read)))
        for part, first in zip(self.parts, self._firsts.tolist(), strict=False):
            if part.join is not None:
                here = np.flatnonzero(components == part.component)
                own, numbers = part.join.locate(shards[here] - self.firsts[part.component], samples[here])
                found.append((own + first, numbers, here))
        return tuple(np.concatenate(each) for each in zip(*found, strict=True))

    def drawn(self, shards: NDArray[np.int64], samples: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        """Return the shards to read for the view's `samples` of main shards, and the index in `samples` of each read.
        The indices of a shard ascend."""
        if not self._zipped:
            return shards, np.arange(len(shards))
        read, _, places = self.expand(shards, self.stored(shards, samples))
        return read, places

    def by_shard(
        self, shards: NDArray[np.int64], samples: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], list[tuple[int, NDArray[np.int64]]]]:
        """Group the reads for `samples`, numbered as stored, of main shards by shard. Return the indices in `samples`
        of all groups, concatenated, and each shard's group."""
        at = None
        if self._zipped:
            shards, samples, at = self.expand(shards, samples)
        if at is None and len(shards) and (shards == shards[0]).all():
            return np.arange(len(shards)), [(int(shards[0]), samples)]
        places = np.argsort(shards)
        numbers, firsts = np.unique(shards[places], return_index=True)
        groups = np.split(samples[places], firsts[1:]) if len(numbers) else []
        return places if at is None else at[places], list(zip(numbers.tolist(), groups, strict=True))

    def gather(
        self,
        found: Sequence[tuple[int, Selection]],
        places: NDArray[np.int64],
        sizes: Sequence[int],
        *,
        views: bool = False,
        join: bool = False,
        stored: bool = False,
        seeds: NDArray[np.uint64] | None = None,
    ) -> Iterator[Columns]:
        """Yield columns, in storage form, of the first `sizes[0]` samples of a result, of the next `sizes[1]`, and so
        on.

        `found`: shards and their selected samples. `places[i]`: the index in the result of sample i of all selections,
        concatenated. `views`: encoded bytes as memory views of the shards. `join`: variable-size columns as
        JoinedValues. `stored`: as StoredValues, with the types of `packed_schema`. `seeds`: of the result's samples,
        for decoders.
        """
        parts = [self.part(shard) for shard, _ in found]
        batches = self._gathered(found, parts, places, sizes, views=views, join=join, stored=stored, seeds=seeds)
        if self.component_column is None:
            yield from batches
            return
        numbers = np.empty(sum(sizes), np.int64)
        components = [self.parts[part].component for part in parts]
        numbers[places] = np.repeat(components, [len(each.take) for _, each in found])
        stops = np.cumsum(sizes).tolist()
        for columns, start, stop in zip(batches, [0, *stops[:-1]], stops, strict=True):
            yield {**columns, self.component_column: numbers[start:stop].copy()}

    def _gathered(
        self,
        found: Sequence[tuple[int, Selection]],
        parts: Sequence[int],
        places: NDArray[np.int64],
        sizes: Sequence[int],
        *,
        views: bool,
        join: bool,
        stored: bool,
        seeds: NDArray[np.uint64] | None,
    ) -> Iterator[Columns]:
        if len(self._columns) == 1:
            (columns,) = self._columns
            sources = [(each, columns.stored[part]) for (_, each), part in zip(found, parts, strict=True)]
            raw = gather(columns.schema, sources, places, sizes, views=views, join=join, stored=stored)
            if not any(read.change for read in columns.reads):
                return raw
            edges = np.cumsum([0, *sizes]).tolist()
            return (
                columns.changed(
                    batch,
                    partial(self._named, found, places, low),
                    stored=stored,
                    seeds=_part_of(seeds, slice(low, high)),
                )
                for batch, (low, high) in zip(raw, pairwise(edges), strict=True)
            )
        return self._from_groups(found, parts, places, sizes, views=views, join=join, stored=stored, seeds=seeds)

    def _from_groups(
        self,
        found: Sequence[tuple[int, Selection]],
        parts: Sequence[int],
        places: NDArray[np.int64],
        sizes: Sequence[int],
        *,
        views: bool,
        join: bool,
        stored: bool,
        seeds: NDArray[np.uint64] | None,
    ) -> Iterator[Columns]:
        groups = np.split(places, np.cumsum([len(each.take) for _, each in found])[:-1])
        edges = np.cumsum([0, *sizes])
        batches, wheres = list[Iterator[Columns]](), list[list[NDArray[np.int64]]]()
        for columns in self._columns:
            here = [number for number, part in enumerate(parts) if part in columns.stored]
            sources = [(found[number][1], columns.stored[parts[number]]) for number in here]
            own = np.concatenate([np.zeros(0, np.int64), *(groups[number] for number in here)])
            where = np.sort(own)
            cuts = np.searchsorted(where, edges)
            keep = stored and columns.everywhere
            raw = gather(
                columns.schema,
                sources,
                own if columns.everywhere else np.searchsorted(where, own),
                np.diff(cuts).tolist(),
                views=views,
                join=join,
                stored=keep,
            )
            batches.append(raw)
            wheres.append([where[low:high] for low, high in pairwise(cuts.tolist())])
        names = [column.name for column in self.schema.columns]
        for number, (start, size) in enumerate(zip(edges.tolist(), sizes, strict=False)):
            whole = Columns()
            for columns, raw, cut in zip(self._columns, batches, wheres, strict=True):
                at = cut[number]
                place_of = partial(self._named_at, found, places, at)
                batch = columns.changed(next(raw), place_of, stored=stored, seeds=_part_of(seeds, at))
                if columns.everywhere:
                    whole.update(batch)
                else:
                    for name, values in batch.items():
                        whole[name] = _placed(whole.get(name), values, at - start, size)
            yield {name: whole[name] for name in names if name in whole}

    def _named(self, found: Sequence[tuple[int, Selection]], places: NDArray[np.int64], start: int, number: int) -> str:
        return self._named_at(found, places, np.array([start + number]), 0)

    def _named_at(
        self, found: Sequence[tuple[int, Selection]], places: NDArray[np.int64], at: NDArray[np.int64], number: int
    ) -> str:
        """Return the name, for messages, of the sample at index `at[number]` of a result."""
        gathered = int(np.flatnonzero(places == at[number])[0])
        for shard, selection in found:
            if gathered < len(selection.samples):
                return f"{self.file(shard)}, sample {selection.samples[gathered]}"
            gathered -= len(selection.samples)
        return f"sample {number}"

    @cached_property
    def packed_schema(self) -> Schema:
        """The schema of `gather` with `stored`: variable-size columns that need only a cast have their stored types."""
        types = {
            name: change.source
            for columns in self._columns
            if columns.everywhere
            for name, _, change in columns.reads
            if change is not None and change.casts_only and not change.source.fixed_size
        }
        return Schema.of(Column(each.name, types.get(each.name, each.type)) for each in self.schema.columns)

    def present(self, columns: Columns) -> Columns:
        """Convert columns from storage form to NumPy's."""
        return present(self.schema, columns)

    def at(self, shard: int) -> tuple[Shards, int]:
        """Return the dataset of a shard, and the shard's number there."""
        part = self.part(shard)
        return self.parts[part].shards, shard - int(self._firsts[part])

    def part(self, shard: int) -> int:
        """Return the index in `parts` of a shard's dataset."""
        return int(np.searchsorted(self._firsts, shard, side="right")) - 1 if len(self.parts) > 1 else 0


def _parts(components: Sequence[DatasetSlice | None]) -> tuple[Part, ...]:
    """Return the main dataset of each component, then the sides that are read."""
    excerpts = [(number, excerpt) for number, excerpt in enumerate(components) if excerpt is not None]
    parts = [Part(excerpt.shards, number, 0, None, place) for place, (number, excerpt) in enumerate(excerpts)]
    for place, (component, excerpt) in enumerate(excerpts):
        counts = excerpt.shards.index.counts
        for home in excerpt.read:
            if home:
                side = excerpt.datasets[home]
                parts.append(Part(side, component, home, Join(counts, side.index.counts), place))
    return tuple(parts)


def _columns(excerpts: Sequence[DatasetSlice], parts: Sequence[Part]) -> tuple[_Columns, ...]:
    """Group the columns that all excerpts have in one dataset. Group the excerpts of columns that are stored
    differently."""
    schemas = [excerpt.stored_schema for excerpt in excerpts]
    groups: dict[Any, list[int]] = {}
    for number, homes in enumerate(zip(*(excerpt.homes for excerpt in excerpts), strict=True)):
        kinds = [
            (schema.columns[number].type, _change(each, number)) for schema, each in zip(schemas, excerpts, strict=True)
        ]
        alike = tuple(kinds.index(kind) for kind in kinds)
        groups.setdefault((homes, alike), []).append(number)
    found = []
    for (homes, alike), numbers in groups.items():
        for first in sorted(set(alike)):
            here = [excerpt for excerpt, kind in zip(excerpts, alike, strict=True) if kind == first]
            sources = _sources(here, numbers)
            own = sorted(set(sources.values()))
            stored = {
                place: tuple(excerpts[part.excerpt].columns[number] for number in own)
                for place, part in enumerate(parts)
                if part.home == homes[part.excerpt] and alike[part.excerpt] == first
            }
            whole = _joined_schema([schema for schema, kind in zip(schemas, alike, strict=True) if kind == first])
            schema, names = Schema.of(whole.columns[number] for number in own), [each.name for each in whole.columns]
            reads = tuple(
                _Read(names[number], names[source], _change(excerpts[first], number))
                for number, source in sources.items()
            )
            found.append(_Columns(schema, stored, reads, everywhere=len(set(alike)) == 1))
    return tuple(found)


def _part_of(seeds: NDArray[np.uint64] | None, here: slice | NDArray[np.int64]) -> NDArray[np.uint64] | None:
    return None if seeds is None else seeds[here]


def _change(excerpt: DatasetSlice, number: int) -> Change | None:
    """Return the change of a column's gathered values."""
    change = excerpt.changes[number]
    return None if change is None or change.changes_nothing else change


def _sources(excerpts: Sequence[DatasetSlice], numbers: Sequence[int]) -> dict[int, int]:
    """Return for each column the one to read for it: itself, or the column of a mask."""
    masks = {number for number in numbers if (change := excerpts[0].changes[number]) is not None and change.is_mask}
    places = {number: tuple(excerpt.columns[number] for excerpt in excerpts) for number in numbers}
    there = {places[number]: number for number in numbers if number not in masks}
    return {number: there.get(places[number], number) if number in masks else number for number in numbers}


def _placed(whole: Any, values: Any, at: NDArray[np.int64], size: int) -> Any:
    """Put values at their indices into a column of `size` values. The first call creates the column."""
    if isinstance(values, np.ndarray):
        whole = np.empty((size, *values.shape[1:]), values.dtype) if whole is None else whole
        whole[at] = values
        return whole
    found: list[Any] = [None] * size if whole is None else whole
    for place, value in zip(at.tolist(), values, strict=True):
        found[place] = value
    return found


def _joined_schema(schemas: Sequence[Schema]) -> Schema:
    """Return the common schema of schemas with equal types. The decoders of other formats read more than ours."""
    same_columns = zip(*(schema.columns for schema in schemas), strict=True)
    return Schema.of(max(same, key=lambda column: column.type.foreign is not None) for same in same_columns)


def _joined(arrays: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
