"""What a writer needs to resume: the folder `_mdsx/`, and the shards that an earlier writer left.

The folder exists only while a dataset is being written.
- `writer.json` is the first object written. It has the options and the versions on which the dataset's bytes depend,
  and an owner, which differs for each writer. A writer that finds another owner there has been replaced, and stops.
- `journal.NNNNN.json` is an index of shards 64 * N to 64 * N + 63, written when all of them are durable, so that a
  resume need not read them. It is removed before any of them is overwritten.

A writer that resumes keeps the longest run of sound shards from number 0. Shards in journals are kept without reading
them whole, if their sizes and row keys are right; the others are read, checked and hashed. All later shards are
removed, so that they cannot be mistaken for new ones.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import zstandard

from mdsx.errors import CorruptError, MissingError, UnsupportedError, UsageError, shown
from mdsx.format import (
    HEAD_SIZE,
    HEADER_SIZE,
    Index,
    Schema,
    ShardEntry,
    build_index,
    filenames,
    first_bytes,
    header_row_key,
    parse_index,
    parse_json,
)
from mdsx.shards import inspect_shard, refuse_foreign, stream_shard
from mdsx.sizes import parse_size
from mdsx.storage import Entry, Storage, discard, file_of, remove, remove_ours
from mdsx.warn import warn

JOURNALED = 64
"""The number of shards in a journal."""

_FORMAT, _VERSION = "mdsx-writer", 1
_SHARD_VERSION = "1.0"
_COMPRESSION = re.compile(r"zstd(?::([1-9]|1[0-9]|2[0-2]))?")
_DEFAULT_LEVEL = 3
_THREADS = 4
_HEADERS = 32  # headers of shards that are read at once
_REMOVE = "remove what is there and start again"


@dataclass(frozen=True, slots=True)
class Options:
    """The parsed options of a writer. `level` is zstd's, None without compression."""

    schema: Schema
    shard_size: int
    level: int | None

    @classmethod
    def parse(cls, columns: Mapping[str, str], shard_size: int | str, compression: str | None) -> Options:
        """Parse a writer's arguments. Raise UsageError."""
        schema = Schema.from_columns(columns)
        return cls(schema, parse_size(shard_size, name="shard_size"), _parse_level(compression))

    @property
    def compression(self) -> str | None:
        """Return the name of the compression in the index."""
        return None if self.level is None else "zstd"

    def shard_key(self, number: int) -> str:
        return filenames.shard(number, compressed=self.level is not None)


def _parse_level(compression: str | None) -> int | None:
    if compression is None:
        return None
    match = _COMPRESSION.fullmatch(compression) if isinstance(compression, str) else None
    if match is None:
        raise UsageError(
            "there is no such compression", found=shown(compression), expected="None, 'zstd', or 'zstd:1' to 'zstd:22'"
        )
    return int(match[1] or _DEFAULT_LEVEL)


class Folder:
    """The folder of a writer with these options."""

    def __init__(self, storage: Storage, options: Options) -> None:
        self._storage = storage
        self._options = options
        self._owner = secrets.token_hex(8)
        self._file = f"{storage.url}/{filenames.WRITER_RECORD}"

    def begun(self) -> bool:
        """Return whether a writer started here and did not finish."""
        return self._read() is not None

    def check_options(self) -> None:
        """Raise UsageError if the writer that started here had other options."""
        found = self._read() or {}
        ours = self._record()
        for key in ("columns", "shard_size", "compression"):
            if found.get(key) != ours[key]:
                raise UsageError(
                    "the dataset was begun with other options",
                    file=self._file,
                    place=key,
                    found=json.dumps(ours[key]),
                    expected=json.dumps(found.get(key)),
                    hint="resume with those options, or remove what is there",
                )
        if found.get("libzstd") != ours["libzstd"]:
            warn(
                f"{self._file}: begun with libzstd {found.get('libzstd')}, resumed with {ours['libzstd']}: compressed "
                "bytes may differ from those of an uninterrupted run; samples and fingerprint do not",
                seen_by="process",
            )

    def claim(self) -> None:
        """Become the owner."""
        self._storage.put(filenames.WRITER_RECORD, json.dumps(self._record(), ensure_ascii=False).encode())

    def check_owner(self) -> None:
        """Raise UsageError if another writer has become the owner since."""
        found = self._read()
        if found is None or found.get("owner") != self._owner:
            hint = "let only one of them write; then resume"
            raise UsageError("another writer has taken over this place", file=self._file, hint=hint)

    def journal(self, number: int) -> list[ShardEntry] | None:
        """Return the entries of a journal, or None if it is missing or invalid."""
        key, options = filenames.journal(number), self._options
        try:
            index = parse_index(self._storage.get(key).data, file=f"{self._storage.url}/{key}")
        except (MissingError, CorruptError):
            return None
        entries = [index.entry(shard) for shard in range(len(index.counts))]
        names = [options.shard_key(number * JOURNALED + place) for place in range(JOURNALED)]
        if index.schema.json != options.schema.json or [entry.name for entry in entries] != names:
            return None
        return entries

    def write_journal(self, number: int, entries: Sequence[ShardEntry]) -> None:
        self._storage.put(
            filenames.journal(number), build_index(self._options.schema, self._options.compression, entries)
        )

    def drop_journals(self, first: int) -> None:
        """Remove the journals from number `first` on."""
        oldest = filenames.journal(first)
        found = list(self._storage.list(filenames.JOURNALS))
        later = [entry for entry in found if (len(entry.key), entry.key) >= (len(oldest), oldest)]
        remove_ours(self._storage, later)

    def remove(self) -> None:
        """Remove the folder; its record is removed last."""
        found = list(self._storage.list(filenames.WRITER_FOLDER))
        remove_ours(self._storage, found, but=[filenames.WRITER_RECORD])
        remove(self._storage, filenames.WRITER_RECORD)

    def _record(self) -> dict[str, object]:
        options = self._options
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "columns": json.loads(options.schema.json),
            "shard_size": options.shard_size,
            "compression": None if options.level is None else f"zstd:{options.level}",
            "shard_version": _SHARD_VERSION,
            "libzstd": None if options.level is None else ".".join(map(str, zstandard.ZSTD_VERSION)),
            "owner": self._owner,
        }

    def _read(self) -> dict[str, object] | None:
        try:
            data = self._storage.get(filenames.WRITER_RECORD).data
        except MissingError:
            return None
        try:
            found = parse_json(data)
        except CorruptError as error:
            raise CorruptError(str(error), file=self._file, hint=_REMOVE) from None
        if not isinstance(found, dict) or found.get("format") != _FORMAT:
            raise CorruptError("this is not the record of a writer", file=self._file, hint=_REMOVE)
        if found.get("version") != _VERSION or found.get("shard_version") != _SHARD_VERSION:
            message = "the dataset was begun by another version of mdsx"
            versions = f"version {found.get('version')}, shards {found.get('shard_version')}"
            hint = "finish it with that version, or remove what is there"
            raise UnsupportedError(message, file=self._file, found=versions, hint=hint)
        return found


# --- shards of an earlier writer


def stored_shards(storage: Storage) -> list[tuple[int, Entry]]:
    """Return the number and the entry of every shard in `storage`, compressed or not."""
    found = ((filenames.shard_number(entry.key), entry) for entry in storage.list(filenames.SHARDS))
    return [(number, entry) for number, entry in found if number is not None]


def begin(storage: Storage, folder: Folder, options: Options, *, resume: bool) -> list[ShardEntry] | Index:
    """Claim `folder` for this writer. Return the durable shards, or the index if the dataset is finished.

    Raise UsageError if something is there without `resume`, or if the options differ.
    """
    message = "there is a dataset of another format already"
    refuse_foreign(storage, message, hint="write to another place: a writer only adds to what mdsx wrote")
    index = _index(storage)
    begun = folder.begun()
    if not resume and index is not None:
        hint = "write to another place, or replace it with overwrite=True; resume=True is for a job that may run again"
        raise UsageError("there is a dataset already", file=storage.url, hint=hint)
    if not resume and (begun or stored_shards(storage)):
        hint = "pass resume=True to continue it, or remove it"
        raise UsageError("there is an unfinished dataset already", file=storage.url, hint=hint)
    if begun:
        folder.check_options()
    if index is not None:
        _check_index(index, options, storage.url)
        if begun:
            discard(storage, filenames.WRITER_FOLDER)
            folder.claim()  # that writer may have died before its index was durable; this put makes it durable
        folder.remove()
        return index
    if not begun and stored_shards(storage):
        message = "there are shards, but no record of their writer"
        raise UsageError(message, file=storage.url, hint="remove them, or write to another place")
    folder.claim()
    return _recover(storage, folder, options)


def _index(storage: Storage) -> Index | None:
    try:
        return parse_index(storage.get(filenames.INDEX).data, file=f"{storage.url}/{filenames.INDEX}")
    except MissingError:
        return None


def _check_index(index: Index, options: Options, url: str) -> None:
    ours = (options.schema.json.decode(), options.compression)
    theirs = (index.schema.json.decode(), index.compression)
    for place, found, expected in zip(("columns", "compression"), ours, theirs, strict=True):
        if found != expected:
            hint = "resume with those options, or write elsewhere"
            message = "the dataset was written with other options"
            raise UsageError(message, file=url, place=place, found=found, expected=expected, hint=hint)


def _recover(storage: Storage, folder: Folder, options: Options) -> list[ShardEntry]:
    """Return the shards to keep, and remove all others."""
    discard(storage, filenames.SHARDS, filenames.WRITER_FOLDER, filenames.INDEX)  # never those of parts
    shards = stored_shards(storage)
    sizes = {entry.key: entry.size for _, entry in shards}
    entries = _sound_run(storage, folder, options, sizes)
    for number, entry in shards:
        if number >= len(entries) or entry.key != entries[number].name:
            folder.check_owner()  # a successor may have written it meanwhile
            remove(storage, entry.key)
    return entries


def load_shard(storage: Storage, entry: ShardEntry) -> memoryview:
    """Return the raw bytes of a kept shard. Raise CorruptError if they have changed."""
    raw = bytearray()
    raw_size = entry.raw_size if filenames.is_compressed(entry.name) else None
    hashes = stream_shard(storage, entry.name, raw.extend, size=entry.size, raw_size=raw_size)
    if hashes.raw != entry.raw_hash:
        raise CorruptError(
            "the shard is not what was written",
            file=file_of(storage, entry.name),
            found=hashes.raw,
            expected=entry.raw_hash,
            hint="remove it, and resume",
        )
    return memoryview(raw)


def _sound_run(storage: Storage, folder: Folder, options: Options, sizes: Mapping[str, int]) -> list[ShardEntry]:
    """Return the longest run of sound shards from number 0. Write the journals that it lacks."""
    length = 0
    while options.shard_key(length) in sizes:
        length += 1
    entries: list[ShardEntry] = []
    with ThreadPoolExecutor(_THREADS) as pool:
        for journal in pool.map(folder.journal, range(length // JOURNALED)):
            if journal is None or any(sizes[entry.name] != entry.size for entry in journal):
                break
            entries += journal
        with ThreadPoolExecutor(_HEADERS) as headers:
            for number, foreign in enumerate(headers.map(lambda entry: _is_foreign(storage, entry), entries)):
                if foreign:
                    message = "this is not the shard that was written here; it and all later ones are written again"
                    warn(f"{storage.url}/{entries[number].name}: {message}", seen_by="process")
                    length = number
                    del entries[number:]
                    break
        folder.drop_journals(len(entries) // JOURNALED)
        keys = [options.shard_key(number) for number in range(len(entries), length)]
        for entry in pool.map(lambda key: _inspect(storage, options, key, sizes[key]), keys):
            if isinstance(entry, CorruptError):
                warn(f"{entry}; this shard and all later ones are written again", seen_by="process")
                break
            entries.append(entry)
            if len(entries) % JOURNALED == 0:
                folder.write_journal(len(entries) // JOURNALED - 1, entries[-JOURNALED:])
    return entries


def _is_foreign(storage: Storage, entry: ShardEntry) -> bool:
    """Return whether the header of a shard has another row key than its journal says."""
    compressed = filenames.is_compressed(entry.name)
    head = storage.get(entry.name, stop=min(entry.size, HEAD_SIZE if compressed else HEADER_SIZE)).data
    try:
        found = header_row_key(first_bytes(head) if compressed else head)
    except CorruptError:
        found = None
    return found != entry.row_key


def _inspect(storage: Storage, options: Options, key: str, size: int) -> ShardEntry | CorruptError:
    """Read and check a shard. Return the error if it is damaged."""
    try:
        return inspect_shard(storage, key, size, schema=options.schema, values=False)[1]
    except CorruptError as error:
        return error
