"""The record of an export, `_mdsx-export.json` next to its files: what is exported, and how many samples each file has.

It is written first, so that a rerun continues only the same export. Files get their names only when they are complete,
so existing files are finished. The samples of a file depend only on the dataset and the options.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from mdsx.errors import ChangedError, CorruptError, MissingError, UsageError
from mdsx.format import filenames
from mdsx.storage import Piece, Storage, discard, file_of, get_or_none, put_over, remove

RECORD = "_mdsx-export.json"
"""Spark, pyarrow, Polars and DuckDB ignore such a name in a folder of Parquet files."""

_VERSION = 1


@dataclass(frozen=True, slots=True)
class ExportRecord:
    """An export. `columns`: name in the files -> column of the dataset. `files`: name -> number of samples."""

    version: int
    kind: str
    fingerprint: str
    columns: Mapping[str, str]
    options: Mapping[str, str]
    files: Mapping[str, int]
    finished: bool = False

    def difference(self, other: ExportRecord) -> str | None:
        """Return how `other` differs from this export; None if it may continue it."""
        if self.kind != other.kind:
            return f"{other.kind}, not {self.kind}"
        if self.fingerprint != other.fingerprint:
            return "another dataset, another version of it, or columns that read other values"
        if list(self.columns.items()) != list(other.columns.items()):
            return f"columns {dict(other.columns)}, not {dict(self.columns)}"
        for name in self.options:
            if self.options[name] != other.options.get(name):
                return f"{name} {other.options.get(name)}, not {self.options[name]}"
        return None if [*self.files.values()] == [*other.files.values()] else "other files"


def make_record(
    kind: str, fingerprint: str, columns: Mapping[str, str], options: Mapping[str, str], cuts: list[int], suffix: str
) -> ExportRecord:
    """Return the record of an export whose file k has samples [cuts[k], cuts[k + 1])."""
    files = {f"data-{number:05d}{suffix}": stop - start for number, (start, stop) in enumerate(pairwise(cuts))}
    return ExportRecord(_VERSION, kind, fingerprint, columns, options, files)


def cut(counts: NDArray[np.int64], sizes: NDArray[np.int64], file_size: int) -> list[int]:
    """Return the numbers of the samples at which files begin, and the total number of samples.

    `counts` and `sizes`: the samples and bytes of each shard. A file has as many shards as fit `file_size` bytes. A
    larger shard is divided into files with about equally many samples.
    """
    cuts, first, room = [0], 0, file_size
    for count, size in zip(counts.tolist(), sizes.tolist(), strict=True):
        if size > room and first > cuts[-1]:
            cuts.append(first)
            room = file_size
        if size > file_size:
            files = min(-(-size // file_size), count)
            cuts += [first + number * count // files for number in range(1, files)]
            room = 0
        else:
            room -= size
        first += count
        if room == 0 and first > cuts[-1]:
            cuts.append(first)
            room = file_size
    if first > cuts[-1] or len(cuts) == 1:  # a dataset without samples has one file
        cuts.append(first)
    return cuts


def begin(storage: Storage, wanted: ExportRecord) -> tuple[ExportRecord, set[str]]:
    """Store the record of a new export, or check an earlier run's. Return the record, and the finished files.

    Raise UsageError if the folder contains another export, or anything else.
    """
    try:
        known = _load(storage)
    except MissingError:
        if (name := next(names_in(storage), None)) is not None:
            hint = "export to an empty folder"
            raise UsageError("the folder is not empty", file=storage.url, found=name, hint=hint) from None
        discard(storage, RECORD, own=RECORD.__eq__)
        storage.put(RECORD, encode_record(wanted))
        return wanted, set()
    if (difference := known.difference(replace(wanted, finished=known.finished))) is not None:
        raise UsageError(
            f"holds {'' if known.finished else 'an unfinished part of '}another export; this would be {difference}",
            file=storage.url,
            hint="give another output, or replace what is there: overwrite=True (--overwrite)",
        )
    discard(storage, own=lambda key: key == RECORD or key in known.files)
    return known, _finished(storage, known)


def withdraw(storage: Storage, record: ExportRecord) -> None:
    """Remove the record of an export that failed without a finished file, so that another export can follow. If another
    export has replaced this one, remove this one's files."""
    if not _withdraw_files(storage, record, get_or_none(storage, RECORD)) and not _finished(storage, record):
        remove(storage, RECORD, own=RECORD.__eq__)


def finish(storage: Storage, record: ExportRecord) -> None:
    """Record that all files exist. If another export has replaced this one, remove its files and raise ChangedError."""
    hint = "another export replaced this one while it ran: export to another folder"
    found, data = get_or_none(storage, RECORD), encode_record(replace(record, finished=True))
    if _withdraw_files(storage, record, found):
        raise ChangedError("the export's record was replaced", file=file_of(storage, RECORD), hint=hint)
    put_over(storage, RECORD, data, etag=None if found is None else found.etag, hint=hint, or_same=True)


def _withdraw_files(storage: Storage, record: ExportRecord, found: Piece | None) -> bool:
    """If the record that was `found` is another export's, remove the files of this one, and return True."""
    other = None if found is None else decode_record(found.data, file_of(storage, RECORD))
    if other is None or replace(other, finished=record.finished) == record:
        return False
    remove(storage, *sorted(record.files.keys() - other.files.keys()), own=record.files.__contains__)
    return True


def _finished(storage: Storage, record: ExportRecord) -> set[str]:
    return {entry.key for entry in storage.list("data-")} & record.files.keys()


def _load(storage: Storage) -> ExportRecord:
    return decode_record(storage.get(RECORD).data, file_of(storage, RECORD))


def decode_record(data: bytes, file: str) -> ExportRecord:
    """Parse a stored record. Raise CorruptError, or UsageError for a record of another version."""
    try:
        found = msgspec.json.decode(data, type=ExportRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptError(f"not the record of an export: {error}", file=file) from None
    if found.version != _VERSION:
        raise UsageError("another version of mdsx began this export", file=file, hint="give another output")
    return found


def encode_record(record: ExportRecord) -> bytes:
    """Return a record's stored bytes."""
    return msgspec.json.format(msgspec.json.encode(record), indent=1)


def names_in(storage: Storage) -> Iterator[str]:
    """Yield the names of all files in the folder; on a disk, of folders too."""
    path = storage.path(RECORD)
    if path is None:
        yield from (entry.key for entry in storage.list())
        return
    with suppress(FileNotFoundError):
        yield from (name for name in sorted(os.listdir(path.parent)) if not filenames.is_temporary(name))
