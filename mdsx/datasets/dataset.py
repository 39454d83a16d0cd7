"""A dataset read at random: by number, slice or list, from wherever its shards are."""

from __future__ import annotations

import operator
import os
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mdsx.base.arguments import check_count
from mdsx.base.arrays import as_array
from mdsx.base.mosaicml import DATASET, explain
from mdsx.decoding import check_on_cpu
from mdsx.errors import CorruptError, UsageError, shown
from mdsx.foreign.arrow import pa, to_table
from mdsx.foreign.polars import lazy_frame
from mdsx.order import Weight, chosen_of, sample_seeds, select_between, select_chosen, select_fraction
from mdsx.shards import (
    ColumnChoice,
    Columns,
    DatasetSlice,
    Decode,
    DTypes,
    Fill,
    Selection,
    Shards,
    View,
    as_samples,
    check_condition,
    choose_by,
    choose_where,
    open_selection,
    scan,
    split,
    status,
)
from mdsx.storage import StorageOptions
from mdsx.storage.cache import Cache, CacheLike, Verdict

Sample = dict[str, Any]
T = TypeVar("T")

FIRST = 64
"""How many samples show the Arrow types of another format's values."""

_WORTH_FETCHING = 4  # fetch a shard whole once a fourth of it was requested
_SHARE = 8  # hold at most an eighth of the cache open, so that other jobs can evict the rest


class Dataset:
    """A finished dataset, read at random: by number, slice or list.

        ds = mdsx.Dataset("s3://bucket/corpus", columns=["tokens"])
        ds[42]["tokens"]  # a NumPy array
        ds[10:20]  # a list of samples

    A local, uncompressed dataset is read in place. Otherwise single samples are fetched by byte range; once much of a
    shard was requested, the whole shard is fetched into the cache. Every sample is checked, by its own checksum or with
    its shard.

    A sample is a dict. Numbers are NumPy scalars of the column's type (`bool` is Python's). Arrays are NumPy arrays;
    types that NumPy lacks become float32. Other values are bytes, str, or parsed JSON or MessagePack. Null is None. A
    dataset may be pickled, forked, and used by several threads. With PyTorch's DataLoader, use
    `collate_fn=mdsx.torch.collate`.

    Args:
        url: A path, or a URL with `s3://` or another scheme of docs/clouds.md.
        columns: Decode only these columns: their names, or a mapping from new names to names in the dataset.
            `mdsx.Cast(name, type)` as a value reads the column as another type.
        dtypes: Number types to convert columns to, such as `{"tokens": "int64"}`: integers to integers or floats,
            floats to floats. Integers must fit; floats are rounded. `torch.int64` and `np.int64` are also accepted.
        fill: Values that replace null in columns of numbers, and of arrays with a fixed shape: `{"score": math.nan}`.
            `{"score": (0, "has_score")}` also adds a mask, a bool column that is False where the value was null. Filled
            columns have a fixed size, so batches have arrays of them. A mask is a column like any other: you can select
            it, and filter and split by it.
        decode: Decoders for columns of encoded bytes: `{"image": mdsx.Image(size=224)}`, `{"speech": mdsx.Audio()}`, or
            an `mdsx.Decoder` of your own. Samples then have the decoder's arrays, or None for null. Slices and `take`
            return arrays [n, ...] if all have one size. The random crop of sample i is always the same: its seed is
            that of the first epoch of an unshuffled run with seed 0. See docs/images.md.
        cache: An `mdsx.Cache`, or its directory.
        mmap: Whether to memory-map local shards. Otherwise they are read with `pread`.
        storage_options: What the storage needs to know besides the URL, by name: `endpoint`, `region`, `token`, ...
            (docs/clouds.md). They apply to this URL only, and are never stored or shown.
        index: The folder with the dataset's index, if it is not `url`: for files in read-only storage, such as `hf://`
            and `https://`. `storage_options` apply to it if it has the same scheme as `url`.
        snapshot: The fingerprint that the dataset has, or had before parts were appended (`mdsx.append`). Only the
            samples that it had then are read.
        selection: The name of a selection that `mdsx select` or `mdsx.write_selection` stored. Only its samples are
            read, as with `select` and `filter`. Every process gets the same samples, or an error.

    Raises:
        MissingError: There is no finished dataset, or no such snapshot or selection.
        CorruptError: Stored bytes are damaged.
        TransportError: Storage failed.
        UsageError: An argument is invalid.
    """

    @explain("Dataset", DATASET)
    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        columns: ColumnChoice | None = None,
        dtypes: DTypes | None = None,
        fill: Fill | None = None,
        decode: Decode | None = None,
        cache: CacheLike = None,
        mmap: bool = True,
        storage_options: StorageOptions | None = None,
        index: str | os.PathLike[str] | None = None,
        snapshot: str | None = None,
        selection: str | None = None,
    ) -> None:
        shards = Shards(
            url, cache=Cache.of(cache), mmap=mmap, storage_options=storage_options, index=index, snapshot=snapshot
        )
        excerpt = _whole(shards)
        if selection is not None:
            excerpt = replace(excerpt, subset=open_selection(shards, selection))
        self._show((excerpt if columns is None else excerpt.choose(columns)).change(dtypes, fill, decode))
        check_on_cpu(self._view.decodes, "an mdsx.Dataset")

    def _show(self, excerpt: DatasetSlice) -> Dataset:
        self._excerpt = excerpt
        self._view = View([excerpt])
        direct = not (excerpt.sides or excerpt.subset.name or any(excerpt.changes))  # samples keep their numbers
        self._direct = excerpt if direct else None
        self._first = np.concatenate((np.zeros(1, np.int64), np.cumsum(excerpt.subset.counts)))
        self._edges = array("q", self._first.tobytes())  # the same, as Python integers
        self._count = self._edges[-1]
        self._asked: dict[int, int] = {}  # shard -> samples fetched by range
        return self

    @overload
    def select(self, samples: int, stop: int) -> Dataset: ...
    @overload
    def select(self, samples: range | slice | ArrayLike) -> Dataset: ...
    def select(self, samples: Any, stop: int | None = None) -> Dataset:
        """Return some of the samples, by number, as a dataset. Nothing is copied.

            ds.select(0, 1000)  # from number 0 up to, not including, number 1000
            ds.select(range(0, len(ds), 10))  # a range, or a slice
            ds.select([3, 14, 15])  # a list, an array or a tensor of numbers, ascending
            ds.select(mask)  # a bool for each sample: an array, a tensor or a list

        A selection keeps the dataset's order. Selecting 10^7 of 10^8 samples takes 12 MB of memory, contiguous ones
        less. The fingerprint depends on which samples are selected, not on how they were given. A selection of all
        samples has the dataset's own fingerprint.

        Raises:
            UsageError: The numbers are out of range, or do not ascend.
        """
        excerpt = self._excerpt
        stored = excerpt.shards.index.counts
        if stop is None:
            subset = select_chosen(excerpt.subset, stored, chosen_of(samples, len(self)))
        elif isinstance(samples, float) or isinstance(stop, float):
            hint = f"to select a share of all samples, call select_share({samples}, {stop})"
            raise UsageError("select takes sample numbers", found=f"{shown(samples)}, {shown(stop)}", hint=hint)
        else:
            subset = select_between(excerpt.subset, stored, samples, stop)
        return self._with(replace(excerpt, subset=subset))

    def select_share(self, start: float, stop: float, *, seed: int = 0) -> Dataset:
        """Return a share of the samples, spread evenly, as a dataset. Nothing is copied.

            ds.select_share(0, 0.9)  # nine tenths of all samples

        A sample is selected if a hash of its number and `seed`, as a fraction of the hash's range, is between `start`
        and `stop`. So the shares from 0 to 0.9 and from 0.9 to 1 have no sample in common, and each sample stays in its
        share when the dataset grows. This takes about 10 ns per sample.

        Raises:
            UsageError: The bounds are not between 0 and 1, or do not ascend.
        """
        excerpt = self._excerpt
        subset = select_fraction(excerpt.subset, excerpt.shards.index.counts, start, stop, seed)
        return self._with(replace(excerpt, subset=subset))

    def split(
        self,
        *shares: Weight,
        seed: int = 0,
        by: str | None = None,
        stratify: bool = False,
        progress: bool = False,
    ) -> tuple[Dataset, ...]:
        """Split the samples into disjoint parts: one dataset for each of `shares`.

            train, valid = ds.split(0.9, 0.1)
            train, valid = ds.split(0.9, 0.1, by="user_id")  # all samples of a user are in one part
            train, valid = ds.split(0.9, 0.1, by="label", stratify=True)  # each part has its share of every label

        A hash of each sample's number determines its part. With `by`, a hash of its value in that column does: numbers,
        arrays, str or bytes. Samples with equal values are then in the same part, so that nothing leaks between parts.
        Each part gets about its share of the distinct values, so there should be many. Only that column is read.
        Each sample stays in its part when the dataset grows.

        With `stratify`, each part gets its share of the samples of every value, and of those with null, up to rounding
        to whole samples. A sample may then move to another part when the dataset grows.

        Shares may add up to less than 1. `split(0.9, 0.1)` is `select_share(0, 0.9), select_share(0.9, 1)`.

        Args:
            shares: Numbers from 0 to 1.
            seed: Another seed splits differently.
            by: The name of a column.
            stratify: Whether each part gets its share of every value in that column. This takes 60 bytes of memory per
                sample while it runs.
            progress: Whether to show a line on stderr while the column is read.

        Raises:
            UsageError: The shares add up to more than 1, or the column has another type.
            MdsxError: The column cannot be read.
        """
        subsets = split(self._excerpt, shares, seed, by, stratify=stratify, progress=progress)
        return tuple(self._with(replace(self._excerpt, subset=subset)) for subset in subsets)

    @overload
    def filter(self, function: str, *, progress: bool = False) -> Dataset: ...
    @overload
    def filter(
        self,
        function: Callable[..., Any],
        input_columns: str | Sequence[str] | None = None,
        *,
        batched: bool = False,
        batch_size: int = 16_384,
        progress: bool = False,
    ) -> Dataset: ...
    def filter(
        self,
        function: Callable[..., Any] | str,
        input_columns: str | Sequence[str] | None = None,
        *,
        batched: bool = False,
        batch_size: int = 16_384,
        progress: bool = False,
    ) -> Dataset:
        """Return the samples for which a condition is true, or for which `function` returns True, as a selection.

            ds.filter("label = 3 and length(tokens) > 64")
            ds.filter(lambda score: score > 0.5, input_columns=["score"])
            ds.filter(lambda score: score > 0.5, input_columns=["score"], batched=True)  # arrays: much faster

        A condition reads only the rows of the shards, many at once, so 10^8 samples take seconds. It compares columns
        of numbers and bools that have a fixed size, and `length(column)`, which counts as `length=` of a batching does
        (0 for null). Operators are `=`, `!=`, `<`, `<=`, `>`, `>=`, `between 1 and 3`, `in (1, 2, 3)`, `is null`,
        `and`, `or`, `not` and parentheses. Comparisons with null are unknown, as in SQL; see docs/mixtures.md.

        A function gets every sample once; only `input_columns` are read. If these have a fixed size, only the rows of
        the shards are read, not the large values. Then samples are not checked by their own checksums; only the shard's
        list of checksums is. The function runs in this process, one call after the other.

        Args:
            function: A condition, as text; or a function. It gets the values of `input_columns` as positional
                arguments, or without `input_columns` a sample as a dict.
            input_columns: The names of the columns that the function needs.
            batched: Whether the function gets many samples at once, as arrays [n, ...] for columns of a fixed size and
                lists for the others (without `input_columns`, a dict of these), and returns n bools.
            batch_size: The most samples per call with `batched`. There may be fewer.
            progress: Whether to show a line on stderr.

        Raises:
            UsageError: A column does not exist, the text is not a condition, a condition needs values that are not in
                the rows, or the function returns something else.
            MdsxError: The columns cannot be read.
            Exception: The function raised it. A note names the sample.
        """
        if isinstance(function, str):
            if input_columns is not None or batched:
                hint = "call ds.filter(text) without input_columns: the condition names its columns"
                raise UsageError("a condition takes no input_columns", found=shown(input_columns), hint=hint)
            with status("filter", len(self), shown=progress) as reached:
                subset = choose_where(self._excerpt, function, reached)
            return self._with(replace(self._excerpt, subset=subset))
        subset = choose_by(
            self._excerpt, function, input_columns, batched=batched, batch_size=batch_size, progress=progress
        )
        return self._with(replace(self._excerpt, subset=subset))

    def select_columns(self, columns: ColumnChoice) -> Dataset:
        """Return the same samples with only `columns`: names, or a mapping from new names to present ones."""
        return self._with(self._excerpt.choose(columns))

    def _with(self, excerpt: DatasetSlice) -> Dataset:
        """Return a dataset of the same class that reads `excerpt`."""
        return copy(self)._show(excerpt)

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"Dataset({self.url!r}, samples={len(self)}, columns={dict(self.columns)})"

    @property
    def url(self) -> str:
        """Return the dataset's URL, without credentials."""
        return self._excerpt.shards.storage.url

    @property
    def columns(self) -> Mapping[str, str]:
        """Return the columns' names and types, in order."""
        return {column.name: str(column.type) for column in self._view.schema.columns}

    @property
    def fingerprint(self) -> str:
        """Return a hash of the content. It is equal for equal samples in equal shards, compressed or not, anywhere."""
        return self._excerpt.fingerprint

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Return the metadata that the writer was given. mdsx never interprets it."""
        return self._excerpt.shards.index.metadata

    @overload
    def __getitem__(self, place: int | np.integer[Any]) -> Sample: ...
    @overload
    def __getitem__(self, place: slice | Sequence[int] | NDArray[np.integer[Any]]) -> list[Sample]: ...
    def __getitem__(self, place: Any) -> Sample | list[Sample]:
        """Return one sample for an integer (negative ones count from the end), a list for a slice or a list.

        The arrays in such a list share one buffer, which each of them keeps alive: copy arrays that you keep for long.
        """
        number = place if type(place) is int else _number_of(place)
        if number is None:
            several = isinstance(place, slice)
            return self._samples(np.arange(*place.indices(len(self))) if several else self._checked(place))
        first, excerpt, count = self._edges, self._direct, self._count
        at = number + count if number < 0 else number
        if excerpt is not None and 0 <= at < count:
            shard = bisect_right(first, at) - 1
            sample = excerpt.shards.decode(shard, at - first[shard], excerpt.decoder)
            if sample is not None:  # its shard is open
                return sample
        return self._samples(self._checked([number]))[0]

    def __getitems__(self, places: Sequence[int]) -> list[Sample]:
        """Return the samples of a whole batch: PyTorch's fetcher calls this."""
        return self[places] if self._reads_many else [self[place] for place in places]

    def __iter__(self) -> Iterator[Sample]:
        """Yield all samples in order. Many are read at a time."""
        run = 256
        for start in range(0, len(self), run):
            stop = min(start + run, len(self))
            yield from self[start:stop] if self._reads_many else map(self.__getitem__, range(start, stop))

    @property
    def _reads_many(self) -> bool:
        """Whether `__getitem__` takes many numbers. A subclass's may take only one."""
        return type(self).__getitem__ is Dataset.__getitem__

    @overload
    def take(self, places: Sequence[int] | NDArray[np.integer[Any]]) -> Columns: ...
    @overload
    def take(self, places: Sequence[int] | NDArray[np.integer[Any]], *, as_arrow: bool) -> Any: ...
    def take(self, places: Sequence[int] | NDArray[np.integer[Any]], *, as_arrow: bool = False) -> Any:
        """Return the samples `places` by column: arrays [n, ...] for columns of a fixed size, lists for the others.

        With `as_arrow`, return a `pyarrow.Table`; see docs/writing.md for its types. This makes no Python objects for
        values, and does not copy fixed-size columns again. JSON stays text, MessagePack bytes.
        """
        numbers = self._checked(places)
        return self._table(numbers) if as_arrow else self._columns(numbers)

    def to_batches(self, *, batch_size: int = 16_384) -> Any:
        """Return all samples in order as a `pyarrow.RecordBatchReader`: a stream for Polars, DuckDB and pandas.

            duckdb.from_arrow(ds.to_batches()).filter("score > 0.5")
            polars.from_arrow(ds.select_columns(["text", "score"]).to_batches())
            for frame in map(pyarrow.RecordBatch.to_pandas, ds.to_batches()): ...

        Storage is read ahead, and memory is bounded, whatever the size of the dataset. A reader can be read once.
        docs/writing.md has the types, as for `take(..., as_arrow=True)`. Every sample is checked. An error is raised at
        the batch where it occurred. Libraries that read through Arrow's C interface, such as DuckDB, raise their own
        error with the same text.

        Args:
            batch_size: The most samples of a batch. There may be fewer.

        Raises:
            UsageError: pyarrow is not installed, or Arrow has no type for a column.
        """
        check_count("batch_size", batch_size)
        schema = self._arrow_schema()

        def table(columns: Columns, first: int) -> Any:
            try:
                return to_table(self._view.schema, columns).cast(schema)
            except pa.ArrowException as error:
                message, place = "values do not have the Arrow type of the first samples", f"samples from {first} on"
                hint = "leave out the column, or read it without Arrow"
                raise UsageError(message, file=self.url, place=place, found=str(error), hint=hint) from None

        tables = decoded(self, 0, len(self), table, most=batch_size)
        return pa.RecordBatchReader.from_batches(schema, (batch for each in tables for batch in each.to_batches()))

    def to_polars(self) -> Any:
        """Return all samples in order as a `polars.LazyFrame`, which reads only what a query needs.

            ds.to_polars().filter(pl.col("score") > 0.5).select("text").collect()
            duckdb.sql("select text from frame where score > 0.5")  # with frame = ds.to_polars()

        Only the query's columns are decoded. The part of its predicate that `filter` can express is evaluated on the
        rows of the shards first, and samples that cannot match are not read. Polars evaluates the whole predicate on
        the others, so the result is the same as for a frame with all samples. docs/writing.md has the types. Every
        sample read is checked; Polars raises its own error with the text. The streaming engine of Polars
        (`collect(engine="streaming")`) reads batch by batch.

        Raises:
            UsageError: polars or pyarrow is not installed, or Arrow has no type for a column.
        """

        def empty() -> Any:
            return self._arrow_schema().empty_table()

        def read(columns: list[str] | None, condition: str | None, rows: int | None) -> Iterator[Any]:
            found = self if rows is None else self.select(0, min(rows, len(self)))
            if condition is not None:
                with suppress(UsageError):  # too many parentheses
                    found = found.filter(condition)
            if columns is not None:
                found = found.select_columns(columns)
            yield found._arrow_schema().empty_table()  # a result without samples needs a schema too
            yield from found.to_batches()

        def known(condition: str) -> bool:
            try:
                check_condition(self._excerpt, condition)
            except UsageError:  # this format stores the column outside of the rows
                return False
            return True

        return lazy_frame(empty, self.columns, known, read)

    def _checked(self, places: object) -> NDArray[np.int64]:
        numbers = as_array(places)
        if numbers.size == 0 and numbers.ndim == 1:
            return np.zeros(0, np.int64)
        masked = isinstance(places, np.ndarray) and np.ma.is_masked(places)  # a list does not import numpy.ma
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or masked:
            hint = "for a mask, give np.flatnonzero(mask)" if numbers.dtype.kind == "b" else self._way_to_column(places)
            message = "a sample is selected by an integer, a slice or a list of integers"
            raise UsageError(message, found=shown(places), hint=hint)
        count = len(self)
        bad = numbers > np.uint64(2**63 - 1) if numbers.dtype.kind == "u" else np.zeros(len(numbers), np.bool_)
        asked = numbers.astype(np.int64)
        bad |= (asked < -count) | (asked >= count)
        if bad.any():
            raise OutOfRangeError(f"sample {numbers[bad][0]} is out of range", file=self.url, expected=f"below {count}")
        return np.where(asked < 0, asked + count, asked)

    def _way_to_column(self, place: object) -> str | None:
        """Return how to read a column, if `place` is the name of one."""
        if not isinstance(place, str) or place not in self.columns:
            return None
        return f"ds[0][{place!r}] is a value of this column, ds.take(range(100))[{place!r}] has those of 100 samples"

    def _columns(self, numbers: NDArray[np.int64]) -> Columns:
        return self._view.present(self._stored(numbers))

    def _arrow_schema(self) -> Any:
        """Return the schema of tables. The first samples show the types of another format's values."""
        kinds = [column.type for column in self._view.schema.columns]
        shown = any(kind.foreign is not None and kind.kind != "document" for kind in kinds)
        return self._table(np.arange(min(FIRST, len(self)) if shown else 0)).schema

    def _table(self, numbers: NDArray[np.int64]) -> Any:
        try:
            return to_table(self._view.schema, self._stored(numbers, join=True))
        except CorruptError as error:
            self._stored(numbers)  # decoding one by one finds and names the damaged value
            raise error

    def _stored(self, numbers: NDArray[np.int64], *, join: bool = False) -> Columns:
        """Return columns in storage form. With `join`, variable-size columns are JoinedValues, not decoded."""
        shards = np.searchsorted(self._first, numbers, side="right") - 1
        samples = self._view.stored(shards, numbers - self._first[shards])
        places, groups = self._view.by_shard(shards, samples)
        found = [(shard, self._select(shard, group)) for shard, group in groups]
        seeds = sample_seeds(0, np.zeros(len(numbers), np.int64), numbers) if self._view.decodes else None
        (columns,) = self._view.gather(found, places, [len(numbers)], join=join, seeds=seeds)
        del found  # it holds leases on shards
        for part in self._view.parts:
            if (cache := part.shards.cache) is not None:
                part.shards.release(beyond=cache.recent_limit // _SHARE)
        return columns

    def _select(self, shard: int, samples: NDArray[np.int64]) -> Selection:
        shards, number = self._view.at(shard)
        if not shards.open(number, whole=False) and shards.cache is not None:
            self._asked[shard] = self._asked.get(shard, 0) + len(samples)
            if (
                self._asked[shard] * _WORTH_FETCHING >= shards.index.counts[number]
                and shards.fetch(number) is Verdict.NO_ROOM
                and shards.release()
            ):
                shards.fetch(number)
        return shards.select(number, samples)

    def _samples(self, numbers: NDArray[np.int64]) -> list[Sample]:
        return as_samples(self._columns(numbers), len(numbers))


def _number_of(place: object) -> int | None:
    """Return `place` as the number of one sample; None if it names several samples, or is invalid."""
    if hasattr(place, "__index__") and getattr(place, "ndim", 0) == 0 and not isinstance(place, bool):
        with suppress(TypeError):  # a tensor of one float has the method too
            return operator.index(place)
    return None


class OutOfRangeError(UsageError, IndexError):
    """A sample number beyond the dataset's end. It is an IndexError, so that Python's sequence protocol works."""


def _whole(shards: Shards) -> DatasetSlice:
    shards.check_cache()
    return DatasetSlice.whole(shards)


# --- for the other packages of mdsx


def dataset_of(shards: Shards) -> Dataset:
    """Return a dataset of all samples in `shards`."""
    return object.__new__(Dataset)._show(_whole(shards))


def excerpt_of(dataset: Dataset) -> DatasetSlice:
    """Return the slice that a dataset reads."""
    return dataset._excerpt


def batched_excerpt_of(dataset: Dataset) -> DatasetSlice:
    """Return the slice that a dataset reads, for reading batches of columns.

    Raises:
        UsageError: Its class overrides a method that changes samples and that a loader never calls.
    """
    for name in ("__getitem__", "__getitems__", "__iter__"):
        if getattr(type(dataset), name) is not getattr(Dataset, name):
            raise UsageError(
                f"{type(dataset).__name__} overrides {name}, which a loader never calls: it reads whole batches",
                hint="give the StreamingDataset or mdsx.Loader an mdsx.Dataset, and the change of a sample as "
                "transform=",
            )
    return dataset._excerpt


def decoded(dataset: Dataset, start: int, stop: int, decode: Callable[[Columns, int], T], *, most: int) -> Iterator[T]:
    """Yield samples `start` to `stop` (exclusive), in order, up to `most` at a time. Storage is read ahead.

    `decode` gets columns in storage form, and the number of the first sample.

    Raise CorruptError, which names the sample, and the errors of `mdsx.Dataset`.
    """
    done = start
    try:
        for run in scan(View([excerpt_of(dataset.select(start, stop))]), most=most, join=True, check=True):
            yield decode(run.columns, done)
            done += len(run.samples)
    except CorruptError:
        edge = int(dataset._first[np.searchsorted(dataset._first, done, side="right")])  # of the shard that was read
        for number in range(done, min(stop, edge)):
            dataset[number]  # reading one by one finds and names the damaged sample
        raise


def with_excerpt(dataset: Dataset, excerpt: DatasetSlice) -> Dataset:
    """Return a dataset of the same class that reads `excerpt`."""
    return dataset._with(excerpt)
