"""Index tars: one pass over them, in several processes, which records the place and the hash of each sample.

The index depends only on the tars and the options: the same ones give the same bytes, with any number of processes,
after a kill, and even if some tars were added later.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import xxhash

from mdsx.base.process import Engine, Report, Workers
from mdsx.base.progress import Progress, Totals
from mdsx.base.warn import warn
from mdsx.errors import UnsupportedError
from mdsx.foreign.tars import (
    INDEX_KEY,
    IndexedTar,
    Names,
    build_text,
    check_declared,
    check_pointable,
    find_columns,
    is_compressed,
    is_key,
    is_wids,
    parse_text,
    point_tar,
    skim_tar,
)
from mdsx.format import Schema, filenames
from mdsx.storage import Entry, Piece, Storage, StorageOptions, answered, believe, discard, file_of, open_beside
from mdsx.transfer.ahead import read_ahead
from mdsx.transfer.indexing.other_indexes import OtherIndex, other_hint, read_other
from mdsx.transfer.indexing.sources import IndexedKind, Urls, expand, find_files, get_listed, index_before, put_index
from mdsx.transfer.indexing.tar_record import Asked, Records, TarRecord, put_record

_CHUNK, _AHEAD = 2**22, 1  # bytes read at once from a disk, and how many such chunks are read ahead
_RANGE, _RANGES = 2**23, 8  # the same for a remote tar
_REPORT_EVERY = 0.1  # seconds


def _refuse_compressed(file: str) -> None:
    if is_compressed(file):
        hint = "convert it with `mdsx convert tar`, or decompress it"
        raise UnsupportedError("a compressed tar cannot be read in place", file=file, hint=hint)


_KIND = IndexedKind("tars", ".tar", is_key, _refuse_compressed)


@dataclass(frozen=True, slots=True)
class IndexedTars:
    """What `index_tars` has indexed.

    Attributes:
        url: The common folder of the tars, which is the URL for `mdsx.Dataset` and the loaders.
        tars: How many tars, including those without samples.
        samples: How many samples.
        size: Bytes of all tars.
        columns: Column -> type.
        read: How many tars were read; the others had not changed since an earlier pass.
        checksums: Whether the index has checksums.
    """

    url: str
    tars: int
    samples: int
    size: int
    columns: Mapping[str, str]
    read: int
    checksums: bool


def index_tars(
    sources: Urls,
    *,
    columns: Mapping[str, str] | None = None,
    rename: Mapping[str, str | Sequence[str]] | None = None,
    drop: str | Sequence[str] = (),
    key_until: str = "first-dot",
    index: str | os.PathLike[str] | None = None,
    from_index: str | os.PathLike[str] | None = None,
    num_workers: int | None = None,
    engine: Engine | None = None,
    replace_index: bool = False,
    storage_options: StorageOptions | None = None,
    watch: Callable[[Progress], object] = lambda progress: None,
) -> IndexedTars:
    """Index WebDataset tars, so that they can be read in place: each tar is a shard.

        mdsx.index_tars("s3://bucket/pictures/{0000..0099}.tar", num_workers=8)
        loader = StreamingDataLoader(StreamingDataset("s3://bucket/pictures"), batch_size=32)

    All tars are read once, from the first byte to the last, as strictly as in a conversion. The index is
    `_mdsx-tars.json` and the folder `_mdsx-tars/`, in the common folder of the tars. After a kill, the same call
    continues, and reads no finished tar again. Run it again after you add or replace tars: it reads only those. Readers
    refuse a tar that was replaced since.

    Args:
        sources: Paths, globs and URLs of tars, and folders. `{0000..0099}` names several. A folder stands for all
            `*.tar` files below it, except hidden ones and those that begin with "_". All must be in one storage. The
            samples are in the order of the tars: as given, and by name in a folder.
        columns: Column -> type, instead of types inferred from the first samples. Names are lower-case extensions, or
            names given by `rename`.
        rename: Column -> the extensions that become it: `{"image": ["jpg", "png"]}`, or `{"image": "jpg;png"}`.
        drop: Extensions, or file names such as "README", to leave out.
        key_until: Where a sample's key ends in the names of its members: at the "first-dot" after the last slash, as in
            WebDataset, or at the "last-dot", for keys that contain dots.
        index: The folder to write the index to, if it is not the tars' folder: for read-only storage, such as `hf://`
            and `https://`. Give readers the same `index`. `storage_options` apply to it if it has the same scheme as
            the tars.
        from_index: An existing index of the tars: Energon's folder `.nv-meta`, or a wids JSON of WebDataset. If
            possible, only headers, numbers and arrays are then read, and each tar must have the number of samples in
            `from_index`. The new index has no checksums. This helps with tars of large members. A remote tar is read
            faster as a whole, unless Energon's index says where its headers are.
        num_workers: How many processes read tars: 1 by default; with `engine`, as many as the cluster has CPUs.
        engine: "ray" reads tars on a Ray cluster (docs/engines.md), and needs the extra ray of mdsx.
        replace_index: Whether to replace an index of other tars that still exist, or, in `index`, of only other tars.
        storage_options: Options for the storage, as in `mdsx.Dataset`.
        watch: Called with an `mdsx.Progress` now and then; its shards are tars.

    Returns:
        What was indexed.

    Raises:
        MissingError: A source names no tar.
        CorruptError: A tar is damaged. The error names tar, member and offset.
        UnsupportedError: A tar is compressed.
        SampleError: A sample does not fit its columns, or cannot be read in place. The error names tar, member and
            offset.
        UsageError: An argument is invalid, or the folder has another index.
        TransportError: Storage failed.
    """
    workers = Workers.of(num_workers, engine)
    checked = from_index is None
    asked = Asked(check_declared(columns or {}), Names.parse(key_until, rename, drop), checked)
    asked.names.check_declared(asked.declared)
    given = expand(sources)
    for url in given:
        _refuse_compressed(os.fspath(url))
    storage, entries = find_files(given, storage_options, _KIND, write=index is None)
    place = storage if index is None else open_beside(given[0], index, storage_options, write=True)
    other = None if from_index is None else read_other(from_index, given[0], storage_options)
    there, before = index_before(
        place,
        INDEX_KEY,
        parse_text,
        storage=storage,
        entries=entries,
        name=_KIND.name,
        replace_index=replace_index,
        but=is_wids,
    )
    discard(place, INDEX_KEY, filenames.POINTERS_FOLDER)
    records = Records(place)
    known = records.columns(asked, entries) or _find_columns(storage, entries, asked)
    digest = asked.digest(known)
    done = {entry.key: record for entry in entries if (record := records.get(entry, digest))}
    left = [entry for entry in entries if entry.key not in done]
    counts = _Counts(entries, list(done.values()), watch)
    if left and other is None and (hint := other_hint(storage)):
        warn(hint)
    work = _Work(storage, place, known, asked.names, digest, answered(), other)
    members = [other.sqlite] if other and other.sqlite else []
    paths = [place.url, *members, *(file_of(storage, entry.key) for entry in left[:1])]
    for record in workers.map(work, left, counts.reach, name="mdsx-index", paths=paths):
        done[record.name] = record
    tars = [done[entry.key] for entry in entries]
    records.put(asked, known, tars)
    made = _put_index(place, storage, known, asked, tars, there)
    pointers = [tar.pointers for tar in tars]
    if before is not None:  # jobs may still read them
        pointers += [tar.pointers for tar in before.tars]
    records.tidy((done[entry.key] for entry in left), pointers)
    return IndexedTars(
        url=storage.url,
        tars=len(tars),
        samples=sum(tar.samples for tar in tars),
        size=sum(entry.size for entry in entries),
        columns=made,
        read=len(left),
        checksums=other is None,
    )


# --- before the pass


def _find_columns(storage: Storage, entries: Sequence[Entry], asked: Asked) -> dict[str, str]:
    """Return the columns that the first samples show."""
    files = [file_of(storage, entry.key) for entry in entries]
    found, warnings = find_columns(
        files,
        lambda tar: _read(storage, entries[tar], ahead=1),
        asked.declared,
        asked.names,
        skip=False,
        way_out="",
    )
    for warning in warnings:
        warn(warning)
    for column in Schema.from_columns(found).columns:
        check_pointable(column)
    return found


# --- the pass


class _Counts:
    """The progress of the pass."""

    def __init__(
        self, entries: Sequence[Entry], done: Sequence[TarRecord], watch: Callable[[Progress], object]
    ) -> None:
        self._of_size, self._of_tars, self._watch = sum(entry.size for entry in entries), len(entries), watch
        self._totals = Totals(3)
        self.reach("", sum(record.size for record in done), sum(record.samples for record in done), len(done))

    def reach(self, tar: str, size: int, samples: int, tars: int) -> None:
        self._totals.reach(tar, size, samples, tars)
        size, samples, tars = self._totals.sums
        self._watch(Progress(samples, size, self._of_size, tars, self._of_tars))


@dataclass(frozen=True, slots=True)
class _Work:
    """Reads a tar, and stores its pointer shard and its record."""

    storage: Storage
    place: Storage
    columns: Mapping[str, str]
    names: Names
    digest: str
    known: tuple[str, ...]
    """Known facts about endpoints that have answered."""
    other: OtherIndex | None

    def __call__(self, task: Entry, report: Report) -> TarRecord:
        believe(self.known)
        entry = task
        file = file_of(self.storage, entry.key)
        if self.other is None:
            chunks = _reported(_read(self.storage, entry), lambda size: report(entry.key, size, 0, 0))
            found = point_tar(chunks, file=file, size=entry.size, columns=self.columns, names=self.names)
        else:
            fetch = self.other.fetch(self.storage, entry)
            found = skim_tar(fetch, file=file, size=entry.size, columns=self.columns, names=self.names)
            self.other.check(entry, found.samples, file)
        name, size, hash = "", 0, ""
        if found.samples:
            hash = xxhash.xxh3_128_hexdigest(found.pointers)
            name, size = filenames.pointers(entry.key, hash), len(found.pointers)
            self.place.put(name, found.pointers)
        record = TarRecord(entry.key, entry.size, entry.etag, self.digest, found.hash, found.samples, name, size, hash)
        put_record(self.place, record)
        report(entry.key, entry.size, found.samples, 1)
        return record


def _reported(chunks: Generator[bytes], report: Callable[[int], object]) -> Generator[bytes]:
    """Yield the chunks, and report now and then how many bytes were read so far."""
    size, reported = 0, time.monotonic()
    for chunk in chunks:
        size += len(chunk)
        if time.monotonic() - reported > _REPORT_EVERY:
            report(size)
            reported = time.monotonic()
        yield chunk


def _read(storage: Storage, entry: Entry, *, ahead: int | None = None) -> Generator[bytes]:
    """Yield the bytes of a tar in chunks, reading ahead."""
    local = storage.path(entry.key) is not None
    size = _CHUNK if local else _RANGE
    ahead = ahead or (_AHEAD if local else _RANGES)
    return read_ahead(partial(get_listed, storage, entry), size, entry.size, ahead=ahead)


# --- the index


def _put_index(
    place: Storage,
    storage: Storage,
    columns: Mapping[str, str],
    asked: Asked,
    tars: Sequence[TarRecord],
    there: Piece | None,
) -> dict[str, str]:
    """Write the index, unless it exists already. Return its columns."""
    local = storage.path(INDEX_KEY) is not None  # then ETags are valid only on this machine
    schema = Schema.from_columns(columns)
    indexed = [
        IndexedTar(
            tar.name,
            tar.size,
            "" if local else tar.etag,
            tar.hash,
            tar.samples,
            tar.pointers,
            tar.pointers_size,
            tar.pointers_hash,
        )
        for tar in tars
        if tar.samples
    ]
    data = build_text(schema, indexed, asked.metadata)
    parse_text(data, file=file_of(place, INDEX_KEY))
    if there is None or data != there.data:
        put_index(place, INDEX_KEY, data, there)
    return {column.name: str(column.type) for column in schema.columns}
