"""The folder `_mdsx/`, which exists only while a dataset is being written: from it, another writer can resume.

- `writer.json` is the first object written. It has the options and the versions on which the dataset's bytes depend,
  and an owner, which differs for each writer. A writer that finds another owner there has been replaced, and stops.
- `journal.NNNNN.json` is an index of shards 64 * N to 64 * N + 63, written when all of them are durable, so that a
  resume need not read them. It is removed before any of them is overwritten.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import zstandard

from mdsx.errors import CorruptError, MissingError, UnsupportedError, UsageError, shown
from mdsx.format import Schema, ShardEntry, build_index, filenames, parse_index, parse_json
from mdsx.sizes import parse_size
from mdsx.storage import Storage
from mdsx.warn import warn

_COMPRESSION = re.compile(r"zstd(?::([1-9]|1[0-9]|2[0-2]))?")
_DEFAULT_LEVEL = 3


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


JOURNALED = 64
"""The number of shards in a journal."""

_FORMAT, _VERSION = "mdsx-writer", 1
_SHARD_VERSION = "1.0"


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
        for entry in list(self._storage.list(filenames.JOURNALS)):
            if (len(entry.key), entry.key) >= (len(filenames.journal(first)), filenames.journal(first)):
                self._storage.delete(entry.key)

    def remove(self) -> None:
        """Remove the folder; its record is removed last."""
        for entry in list(self._storage.list(filenames.WRITER_FOLDER)):
            if entry.key != filenames.WRITER_RECORD:
                self._storage.delete(entry.key)
        self._storage.delete(filenames.WRITER_RECORD)

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


_REMOVE = "remove what is there and start again"
