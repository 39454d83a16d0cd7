"""Index Parquet files: read their footers, in threads or on a cluster, and some first rows to estimate the sizes of
values.

The result depends only on the files: the same files give the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import xxhash

from mdsx.base.process import REQUESTS, Engine, Report, Share, Workers
from mdsx.base.progress import Progress, Totals
from mdsx.base.sizes import format_size
from mdsx.base.warn import warn
from mdsx.foreign.parquet import (
    INDEX_KEY,
    Columns,
    FileColumns,
    Footer,
    IndexedFile,
    ParquetFormat,
    ParquetIndex,
    build_text,
    mean_sizes,
    read_footer,
)
from mdsx.format import is_file_key
from mdsx.storage import Entry, Storage, StorageOptions, answered, believe, discard, file_of, open_beside
from mdsx.transfer.indexing.sources import IndexedKind, find_files, get_listed, index_before, put_index

LARGE = 2**28
"""Decoded bytes above which a row group is too large to shuffle well."""

_CHUNK, _SAMPLED = 2**24, 2**26  # the most bytes of a sampled column chunk, and of all of them
_FILES = 256  # whose footers a task on a cluster reads
_NAMED = 3
_KIND = IndexedKind("Parquet files", ".parquet", is_file_key)


@dataclass(frozen=True, slots=True)
class LargeGroup:
    """A row group that is too large to shuffle well: its file, its number there, and its estimated decoded bytes."""

    file: str
    group: int
    size: int


@dataclass(frozen=True, slots=True)
class Indexed:
    """What `index_parquet` has indexed.

    Attributes:
        url: The common folder of the files, which is the URL for `mdsx.Dataset` and the loaders.
        files: How many Parquet files.
        samples: How many rows.
        shards: How many row groups that have rows.
        size: Bytes of all files.
        columns: Column -> type.
        left_out: Columns that no type can hold -> the reason.
        large: Row groups of more than 256 MiB decoded.
    """

    url: str
    files: int
    samples: int
    shards: int
    size: int
    columns: Mapping[str, str]
    left_out: Mapping[str, str]
    large: tuple[LargeGroup, ...]


def index_parquet(
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    columns: Mapping[str, str] | None = None,
    index: str | os.PathLike[str] | None = None,
    replace_index: bool = False,
    engine: Engine | None = None,
    storage_options: StorageOptions | None = None,
    watch: Callable[[Progress], object] = lambda progress: None,
) -> Indexed:
    """Index Parquet files, so that they can be read in place: each row group is a shard.

        mdsx.index_parquet("s3://bucket/corpus")
        loader = StreamingDataLoader(StreamingDataset("s3://bucket/corpus"), batch_size=32)

    The index is `_mdsx-parquet.json` in the folder, or in the common folder of several sources. Run it again after you
    add or replace files: readers refuse a file that was replaced since.

    Args:
        sources: Parquet files, and folders, ordered by name. A folder stands for all `*.parquet` files below it, except
            hidden ones and those that begin with "_". All must be in one storage.
        columns: Column -> type, instead of the inferred type: `{"image": "jpeg", "tokens": "uint16[*]"}`. All values
            must fit: the first rows are checked here, the others when they are read.
        index: The folder to write the index to, if it is not the files' folder: for read-only storage, such as `hf://`
            and `https://`. Give readers the same `index`. `storage_options` apply to it if it has the same scheme as
            the files.
        replace_index: Whether to replace an index of other files that still exist, or, in `index`, of only other files.
        engine: "ray" reads the footers on a Ray cluster (docs/engines.md), and needs the extra ray of mdsx. It helps
            with 10^5 files and more.
        storage_options: Options for the storage, as in `mdsx.Dataset`.
        watch: Called with an `mdsx.Progress` after each file.

    Returns:
        What was indexed. Warnings name row groups that are too large to shuffle well, and columns left out.

    Raises:
        MissingError: A source names no Parquet file.
        FormatError: A file is damaged, encrypted, or not Parquet.
        UsageError: The files have different columns; the folder has another index; pyarrow is not installed.
        TransportError: Storage failed.
    """
    workers = Workers.of(None, engine)
    given = [sources] if isinstance(sources, str | os.PathLike) else list(sources)
    storage, entries = find_files(given, storage_options, _KIND, write=index is None)
    place = storage if index is None else open_beside(given[0], index, storage_options, write=True)
    there, _ = index_before(
        place,
        INDEX_KEY,
        ParquetFormat().parse_index,
        storage=storage,
        entries=entries,
        name=_KIND.name,
        replace_index=replace_index,
    )
    footers, found = _join(_read_footers(storage, entries, workers, watch), columns or {})
    means = _measure(storage, entries, footers, found)
    indexed, groups = found.indexed([footer.columns for footer in footers], means)
    local = storage.path(INDEX_KEY) is not None  # then ETags are valid only on this machine
    files = [
        IndexedFile(entry.key, entry.size, "" if local else entry.etag, footer.offset, footer.hash, of_file)
        for entry, footer, of_file in zip(entries, footers, groups, strict=True)
    ]
    data = build_text(indexed, files)
    made = ParquetFormat().parse_index(data, file=file_of(place, INDEX_KEY))
    discard(place, INDEX_KEY)
    put_index(place, INDEX_KEY, data, there)
    large = _large(storage, made, footers)
    _warn(storage, found, large, entries)
    return Indexed(
        url=storage.url,
        files=len(files),
        samples=made.samples,
        shards=len(made.counts),
        size=sum(entry.size for entry in entries),
        columns={column.name: str(column.type) for column in made.schema.columns},
        left_out=found.left_out,
        large=large,
    )


# --- footers


@dataclass(frozen=True, slots=True)
class _ReadFooter:
    offset: int
    hash: str
    columns: FileColumns
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _ReadFooters:
    """Reads the footers of files, in threads."""

    storage: Storage
    known: tuple[str, ...]

    def __call__(self, task: Sequence[Entry], report: Report) -> list[_ReadFooter]:
        """`report` gets the first file, as the name of the task, and the task's rows, bytes and row groups so far."""
        believe(self.known)
        found: list[_ReadFooter] = []
        rows = size = groups = 0
        footers = Share(REQUESTS).map(lambda each: _described(self.storage, each), task)
        for entry, footer in zip(task, footers, strict=True):
            found.append(footer)
            rows, size, groups = rows + sum(footer.columns.rows), size + entry.size, groups + len(footer.groups)
            report(task[0].key, rows, size, groups)
        return found


def _read_footers(
    storage: Storage, entries: Sequence[Entry], workers: Workers, watch: Callable[[Progress], object]
) -> list[_ReadFooter]:
    """Return the footers of all files."""
    totals, of_size = Totals(3), sum(entry.size for entry in entries)

    def report(task: str, *numbers: int) -> None:
        totals.reach(task, *numbers)
        samples, size, shards = totals.sums
        watch(Progress(samples, size, of_size, shards))

    at_once = _FILES if workers.engine else len(entries)
    tasks = [entries[start : start + at_once] for start in range(0, len(entries), at_once)]
    work = _ReadFooters(storage, answered())
    paths = [file_of(storage, entry.key) for entry in entries[:1]]
    found = workers.map(work, tasks, report, name="mdsx-index", paths=paths)
    return [footer for some in found for footer in some]


def _join(footers: Sequence[_ReadFooter], declared: Mapping[str, str]) -> tuple[list[_ReadFooter], Columns]:
    """Return the footers with the columns that all files share, and these columns."""
    columns = Columns(footers[0].columns, declared)
    return [replace(footer, columns=columns.add(footer.columns)) for footer in footers], columns


def _described(storage: Storage, entry: Entry) -> _ReadFooter:
    footer, hash = _read_footer(storage, entry)
    return _ReadFooter(footer.offset, hash, FileColumns.of(footer), footer.groups)


def _read_footer(storage: Storage, entry: Entry) -> tuple[Footer, str]:
    """Return the footer of a file, and the XXH3-128 of its bytes."""
    footer, data = read_footer(partial(get_listed, storage, entry), size=entry.size, file=file_of(storage, entry.key))
    return footer, xxhash.xxh3_128_hexdigest(data)


# --- sizes of values


def _measure(
    storage: Storage, entries: Sequence[Entry], footers: Sequence[_ReadFooter], columns: Columns
) -> dict[str, float]:
    """Return the mean size of decoded values, from the first row group with rows, for columns where footers lack it."""
    for entry, read in zip(entries, footers, strict=True):
        wanted = columns.to_measure(read.columns) if read.groups else []
        if not wanted:
            continue
        footer, _ = _read_footer(storage, entry)
        group, room, chosen, ranges = read.groups[0], _SAMPLED, [], []
        for name in wanted:
            chunks = footer.chunks(group, footer.leaves[name])
            size = sum(stop - start for start, stop in chunks)
            if size <= min(room, _CHUNK):
                room -= size
                chosen.append(name)
                ranges += chunks
        if not chosen:
            return {}
        parts = [memoryview(get_listed(storage, entry, *each)) for each in ranges]
        schema, _ = columns.schema.choose({name: name for name in chosen})
        return mean_sizes(footer, group, schema, ranges, parts)
    return {}


# --- the report


def _large(storage: Storage, index: ParquetIndex, footers: Sequence[_ReadFooter]) -> tuple[LargeGroup, ...]:
    numbers = [group for footer in footers for group in footer.groups]
    return tuple(
        LargeGroup(file_of(storage, index.name(shard)), numbers[shard], int(index.raw_sizes[shard]))
        for shard in np.flatnonzero(index.raw_sizes > LARGE).tolist()
    )


def _warn(storage: Storage, columns: Columns, large: Sequence[LargeGroup], entries: Sequence[Entry]) -> None:
    for name, reason in columns.left_out.items():
        warn(f"{storage.url}: column {name!r} is left out: {reason}", seen_by="process")
    folders = sorted({part for entry in entries for part in entry.key.split("/")[:-1] if "=" in part})
    if folders:
        some = ", ".join(folders[:_NAMED]) + (", ..." if len(folders) > _NAMED else "")
        message = f"the names of folders ({some}) do not become columns; only the columns in the files are read"
        warn(f"{storage.url}: {message}", seen_by="process")
    if large:
        most = max(large, key=lambda group: group.size)
        message = (
            f"{len(large):,} row groups are too large to shuffle well: more than {format_size(LARGE)} decoded, up to "
            f"about {format_size(most.size)} (row group {most.group} of {most.file}). The cache must hold several of "
            f"them. Read fewer columns, or write the files again with smaller row groups"
        )
        warn(f"{storage.url}: {message}", seen_by="process")
