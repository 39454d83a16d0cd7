"""An export that replaces another one in the same folder: `overwrite=True`.

- Nothing is written unless the existing record is valid, and names all other files in the folder.
- New files have unused numbers. When all are complete, the record is replaced, but only if it has not changed since the
  beginning. Then the old files are removed.
- Meanwhile, `_mdsx-export.next.json` names the files to remove at the end, and the new ones. A token tells it from that
  of another export. After a kill, the next export with `overwrite=True` learns from it which other files it may remove.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace

import msgspec

from mdsx.errors import ChangedError, CorruptError, UsageError
from mdsx.storage import Piece, Storage, discard, file_of, get_or_none, put_over, remove
from mdsx.transfer.exporting.record import RECORD, ExportRecord, decode_record, encode_record, names_in

_NEXT = "_mdsx-export.next.json"
_NUMBER = re.compile(r"data-([0-9]{5,})\..*")


@dataclass(frozen=True, slots=True)
class Replacing:
    """The replacement of the export whose record has this `etag`. `old`: files to remove when `record` is complete."""

    storage: Storage
    etag: str
    old: frozenset[str]
    known: ExportRecord
    record: ExportRecord

    @classmethod
    def begin(cls, storage: Storage, wanted: ExportRecord) -> Replacing | None:
        """Begin to replace the export in the folder; return None if there is none.

        If the folder has other files, raise UsageError before anything is written.
        """
        if (found := get_or_none(storage, RECORD)) is None:
            return None
        known = decode_record(found.data, file_of(storage, RECORD))
        pending = get_or_none(storage, _NEXT)
        old = frozenset((*known.files, *_files_in(storage, pending)))
        others = sorted(set(names_in(storage)) - old - {RECORD, _NEXT})
        if others:
            hint = "move it elsewhere, or export to another folder"
            message = "the folder contains a file that is not part of the export to overwrite"
            raise UsageError(message, file=storage.url, found=others[0], hint=hint)
        numbers = [int(match[1]) for name in old if (match := _NUMBER.fullmatch(name))]
        record = _renumbered(wanted, max(numbers, default=-1) + 1)
        token = secrets.token_hex(16)  # a cloud takes the same bytes as ours: two exports could have the same names
        names, etag = [*sorted({*old, *record.files}), token], None if pending is None else pending.etag
        hint = "another export to this folder began just now: run this one again"  # its files may have the same numbers
        put_over(storage, _NEXT, msgspec.json.encode(names), etag=etag, hint=hint)
        now = get_or_none(storage, RECORD)
        if now is None or now.etag != found.etag:  # its files may have the numbers of ours
            if pending is None:  # otherwise it names the files that an earlier replacement left
                remove(storage, _NEXT, own=_NEXT.__eq__)
            raise ChangedError("the export's record was replaced or removed", file=file_of(storage, RECORD), hint=hint)
        return cls(storage, found.etag, old, known, record)

    def finish(self) -> None:
        """Replace the record, and remove the old files. Raise ChangedError if the record has changed."""
        try:
            self.storage.replace(RECORD, encode_record(replace(self.record, finished=True)), etag=self.etag)
        except ChangedError:
            self.withdraw()
            raise
        own = {RECORD, _NEXT, *self.old, *self.record.files}
        discard(self.storage, own=own.__contains__)
        self._remove(self.old)
        self._remove([_NEXT])

    def withdraw(self) -> None:
        """Remove the new files: the old export stays."""
        self._remove(self.record.files)
        if not self.old - self.known.files.keys():  # otherwise a later export removes what the record does not name
            self._remove([_NEXT])

    def _remove(self, names: Iterable[str]) -> None:
        own = {_NEXT, *self.old, *self.record.files}
        remove(self.storage, *sorted(names), own=own.__contains__)


def _files_in(storage: Storage, pending: Piece | None) -> list[str]:
    """Return the files of unfinished replacements."""
    if pending is None:
        return []
    try:
        found = msgspec.json.decode(pending.data, type=list[str])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptError(f"not a list of an export's files: {error}", file=file_of(storage, _NEXT)) from None
    return [name for name in found if _NUMBER.fullmatch(name)]


def _renumbered(record: ExportRecord, first: int) -> ExportRecord:
    """Return the record with files numbered from `first` on."""
    suffix = {name: name[name.index(".") :] for name in record.files}
    names = {name: f"data-{first + place:05d}{suffix[name]}" for place, name in enumerate(record.files)}
    return replace(record, files={names[name]: samples for name, samples in record.files.items()})
