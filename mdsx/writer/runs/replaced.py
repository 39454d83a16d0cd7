"""The dataset that a run replaces: its files, and their removal after the new index is written.

Before the driver replaces the index, it stores the object `replaced` in its run's record: a copy of the old index, and
the ETags of the objects next to it (snapshots, lengths, selections, indexes that repairs replaced). So a clean can
finish the removal if the driver dies. Nothing is removed while the old index is still in place, or while a shard of the
new dataset is missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from mdsx.base.strict_json import parse_json
from mdsx.errors import ChangedError, CorruptError, MissingError, UnsupportedError
from mdsx.format import Index, filenames, parse_index
from mdsx.storage import Entry, Storage, file_of, get_or_none
from mdsx.writer.runs.record import folders_of

_FORMAT, _VERSION = "mdsx-replaced", 1
_UNKNOWN = "remove it, and the remaining files of the replaced dataset"


class Note(NamedTuple):
    """The dataset that a run replaces: its index, and the ETags of the objects next to it."""

    old: Index
    beside: dict[str, str]


def put_note(storage: Storage, run: str, index: bytes) -> None:
    """Store a note of the dataset that the run is about to replace, whose index has these bytes."""
    beside = {entry.key: entry.etag for entry in _beside(storage)}
    record = {"format": _FORMAT, "version": _VERSION, "index": index.decode(), "beside": beside}
    storage.put(filenames.run_sign(run, "replaced"), json.dumps(record, ensure_ascii=False).encode())


def read_note(storage: Storage, run: str) -> Note | None:
    """Return the run's note; None if it replaces nothing, or has finished the removal. Raise FormatError."""
    key = filenames.run_sign(run, "replaced")
    file = file_of(storage, key)
    if (there := get_or_none(storage, key)) is None:
        return None
    try:
        found = parse_json(there.data)
    except CorruptError as error:
        raise CorruptError(str(error), file=file, hint=_UNKNOWN) from None
    if not isinstance(found, dict) or found.get("format") != _FORMAT or found.get("version") != _VERSION:
        raise UnsupportedError("written by another version of mdsx", file=file, hint=_UNKNOWN)
    beside = found.get("beside")
    if not isinstance(beside, dict) or not all(isinstance(etag, str) for etag in beside.values()):
        raise CorruptError("not a valid note of a replaced dataset", file=file, place="beside", hint=_UNKNOWN)
    return Note(parse_index(str(found.get("index")).encode(), file=file), beside)


def leftovers(storage: Storage, note: Note, *, until: float | None = None) -> list[Entry]:
    """Return the remaining files of the dataset that a run has replaced; none while its index is still in place.

    `until`: consider only shards and parts that were stored by then, by the storage's clock.

    Raises:
        ChangedError: There is no index now, or its dataset lacks shards, so the old files must stay.
    """
    theirs = {entry.key for entry in _beside(storage) if note.beside.get(entry.key) == entry.etag}
    indexes = dict(indexes_at(storage))
    if filenames.INDEX not in indexes:
        raise ChangedError("the dataset has no index now", file=storage.url, hint="see `mdsx repair`")
    now, names = indexes[filenames.INDEX], set(note.old.shard_names())
    if now.fingerprint == note.old.fingerprint:  # they are the new dataset's too: of equal bytes, ETags are equal
        shared = (filenames.LENGTHS_FOLDER, filenames.SELECTIONS_FOLDER)
        theirs = {key for key in theirs if not key.startswith(shared)}
    if not names.isdisjoint(now.shard_names()) or not (names or len(now.counts)):
        return []
    stored = {entry.key: entry for prefix in _PREFIXES for entry in storage.list(prefix)}
    if missing := first_missing(now, stored):
        message = "a shard of the new dataset is missing, so the replaced one stays"
        raise ChangedError(message, file=file_of(storage, missing), hint="see `mdsx verify`")
    was = [note.old, *(index for key, index in indexes.items() if key in theirs)]
    kept = [index for key, index in indexes.items() if key not in theirs]
    keys = {name for index in was for name in index.shard_names()}
    keys.difference_update(*(index.shard_names() for index in kept))
    folders = {folder for index in was for folder in folders_of(index)}
    folders -= {folder for index in kept for folder in folders_of(index)}

    def is_old(entry: Entry) -> bool:
        if entry.key in theirs:
            return True
        in_time = until is None or 0 < entry.modified <= until
        return in_time and (entry.key in keys or _is_beside_part(entry.key, folders))

    return [entry for entry in stored.values() if is_old(entry)]


def first_missing(index: Index, stored: Mapping[str, Entry]) -> str | None:
    """Return the first shard of an index that is not `stored` with its size; None if all are."""
    for name, size in zip(index.shard_names(), index.sizes.tolist(), strict=True):
        if name not in stored or stored[name].size != size:
            return name
    return None


_PREFIXES = (
    filenames.SHARDS,
    filenames.REPAIRS,
    filenames.PARTS,
    filenames.RUNS,
    filenames.ALL_INDEXES,
    filenames.LENGTHS_FOLDER,
    filenames.SELECTIONS_FOLDER,
)


def indexes_at(storage: Storage) -> Iterator[tuple[str, Index]]:
    """Yield the keys and indexes of a dataset: its own, its snapshots, and those that repairs replaced.

    Raise CorruptError for a damaged one.
    """
    for entry in list(storage.list(filenames.ALL_INDEXES)):
        if entry.key == filenames.INDEX or filenames.is_kept_index(entry.key):
            file = file_of(storage, entry.key)
            with suppress(MissingError):  # it was removed meanwhile
                try:
                    yield entry.key, parse_index(storage.get(entry.key).data, file=file)
                except CorruptError as error:
                    hint = "see `mdsx verify`: copy it back, repair the dataset, or remove it if no run needs it"
                    raise CorruptError(str(error), file=file, hint=hint) from None


def _beside(storage: Storage) -> Iterator[Entry]:
    """Yield the snapshots, the indexes that repairs replaced, the lengths and the selections."""
    yield from (entry for entry in storage.list(filenames.ALL_INDEXES) if filenames.is_kept_index(entry.key))
    yield from storage.list(filenames.LENGTHS_FOLDER)
    yield from storage.list(filenames.SELECTIONS_FOLDER)


def _is_beside_part(key: str, folders: set[str]) -> bool:
    """Return whether a key is that of an index, a file of lengths or a selection in one of the folders."""
    folder, inner = filenames.split_part(key)
    return folder in folders and filenames.is_beside_index(inner)
