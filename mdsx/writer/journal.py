"""The folder `_mdsx/` of an active writer: it records the owner of the dataset, and which shards are durable.

- `writer.json` is the first object written. It has the options and the versions on which the dataset's bytes depend,
  and an owner, which is unique to each writer. A writer that finds another owner there has been replaced, and stops.
- `journal.NNNNN.json` is an index of shards 64 * N to 64 * N + 63, written once all of them are durable, so that a
  resume need not read them. It is removed before any of them is overwritten.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence

import zstandard

from mdsx.base.strict_json import parse_json
from mdsx.base.warn import warn
from mdsx.errors import CorruptError, MissingError, UnsupportedError, UsageError
from mdsx.format import ShardEntry, build_index, filenames, parse_index
from mdsx.storage import Storage, file_of, get_or_none, remove, remove_ours
from mdsx.writer.options import WriterOptions

JOURNALED = 64
"""The number of shards in a journal."""

_FORMAT, _VERSION = "mdsx-writer", 1
_SHARD_VERSION = "1.0"
_REMOVE = "remove the unfinished dataset, and start again"


class Journal:
    """The folder `_mdsx/` in `storage`, of a writer with these options."""

    def __init__(self, storage: Storage, options: WriterOptions) -> None:
        self._storage = storage
        self._options = options
        self._owner = secrets.token_hex(8)
        self._file = file_of(storage, filenames.WRITER_RECORD)

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
                    hint="resume with the same options, or remove the unfinished dataset",
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
            hint = "stop one of them, and resume the other"
            raise UsageError("another writer has taken over this dataset", file=self._file, hint=hint)

    def entries(self, number: int) -> list[ShardEntry] | None:
        """Return the entries of a journal, or None if it is missing or invalid."""
        key, options = filenames.journal(number), self._options
        try:
            index = parse_index(self._storage.get(key).data, file=file_of(self._storage, key))
        except (MissingError, CorruptError):
            return None
        entries = [index.shard_entry(shard) for shard in range(len(index.counts))]
        names = [options.shard_key(number * JOURNALED + place) for place in range(JOURNALED)]
        if index.schema.json != options.schema.json or [entry.name for entry in entries] != names:
            return None
        return entries

    def write(self, number: int, entries: Sequence[ShardEntry]) -> None:
        self._storage.put(
            filenames.journal(number), build_index(self._options.schema, self._options.compression, entries)
        )

    def drop(self, first: int) -> None:
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
        if (there := get_or_none(self._storage, filenames.WRITER_RECORD)) is None:
            return None
        try:
            found = parse_json(there.data)
        except CorruptError as error:
            raise CorruptError(str(error), file=self._file, hint=_REMOVE) from None
        if not isinstance(found, dict) or found.get("format") != _FORMAT:
            raise CorruptError("not a valid writer's record", file=self._file, hint=_REMOVE)
        if found.get("version") != _VERSION or found.get("shard_version") != _SHARD_VERSION:
            message = "the dataset was begun by another version of mdsx"
            versions = f"version {found.get('version')}, shards {found.get('shard_version')}"
            hint = "finish it with that version, or remove the unfinished dataset"
            raise UnsupportedError(message, file=self._file, found=versions, hint=hint)
        return found
