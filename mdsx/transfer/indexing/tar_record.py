"""Records of indexed tars, kept next to the pointer shards, so that unchanged tars are not read again.

Each process stores a tar's record as soon as its pointer shard is stored, so that a pass after a kill continues. When
the index is written, all records are put into one file. A record is valid if the tar's size and ETag (on a disk: inode,
size and time of change) are the same, columns and names are read in the same way, and the pointer shard exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TypeVar

import msgspec
import xxhash

from mdsx.base.process import REQUESTS, Share
from mdsx.errors import MissingError
from mdsx.foreign.tars import Names
from mdsx.format import filenames
from mdsx.storage import Entry, Storage, remove

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Asked:
    """The caller's options: how the samples of all tars are read. `checked`: whether the tars' bytes are read."""

    declared: Mapping[str, str]
    names: Names
    checked: bool

    @property
    def metadata(self) -> dict[str, object]:
        """Return the options that differ from the defaults."""
        names = {"key_until": self.names.key_until, "rename": dict(self.names.rename), "drop": list(self.names.drop)}
        default = asdict(Names())
        found: dict[str, object] = {name: value for name, value in names.items() if value and value != default[name]}
        return found if self.checked else {**found, "checksums": False}

    def digest(self, columns: Mapping[str, str]) -> str:
        """Return a hash that changes if the same tars would get other pointer shards."""
        fields = [_VERSION, list(columns.items()), asdict(self.names), self.checked]
        return xxhash.xxh3_128_hexdigest(msgspec.json.encode(fields))


_VERSION = 1
"""The version of pointer shards. If it changes, all tars are read again."""


@dataclass(frozen=True, slots=True)
class TarRecord:
    """A tar and its content. `pointers` is "" if it has no samples. `digest`: see `Asked.digest`."""

    name: str
    size: int
    etag: str
    digest: str
    hash: str | None
    samples: int
    pointers: str
    pointers_size: int
    pointers_hash: str

    def still(self, entry: Entry) -> bool:
        """Return whether the tar has not changed."""
        return bool(entry.etag) and (self.size, self.etag) == (entry.size, entry.etag)


@dataclass(frozen=True, slots=True)
class _Passes:
    """The records of a finished pass, and its columns, inferred from the first samples of the tar `source`."""

    declared: dict[str, str]
    names: Names
    columns: dict[str, str]
    source: str
    tars: list[TarRecord] = field(default_factory=list)


class Records:
    """The records next to an index."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        beside = storage.list(filenames.POINTERS_FOLDER)
        self._there = {entry.key: entry.size for entry in beside if filenames.is_of_dataset(entry.key)}
        self._passes: _Passes | None = None
        if filenames.POINTED in self._there:
            self._passes = _decoded(storage, filenames.POINTED, _Passes)
        loose = [key for key in self._there if key.endswith(".json") and key != filenames.POINTED]
        found = Share(REQUESTS).map(lambda key: _decoded(storage, key, TarRecord), loose)
        self._records = {record.name: record for record in (self._passes.tars if self._passes else [])}
        self._records |= {record.name: record for record in found if record}

    def get(self, entry: Entry, digest: str) -> TarRecord | None:
        """Return the record of a tar that need not be read again."""
        record = self._records.get(entry.key)
        if record is None or record.digest != digest or not record.still(entry):
            return None
        return record if not record.pointers or self._there.get(record.pointers) == record.pointers_size else None

    def columns(self, asked: Asked, entries: Iterable[Entry]) -> dict[str, str] | None:
        """Return the columns of the last pass, if the first samples would give the same columns again."""
        passes = self._passes
        if passes is None or dict(asked.declared) != passes.declared or asked.names != passes.names:
            return None
        digest = asked.digest(passes.columns)
        for entry in entries:
            record = self.get(entry, digest)
            if record is None:
                return None
            if record.samples:
                return passes.columns if entry.key == passes.source else None
        return None

    def put(self, asked: Asked, columns: Mapping[str, str], tars: list[TarRecord]) -> None:
        """Store the records of all tars."""
        source = next((tar.name for tar in tars if tar.samples), "")
        passes = _Passes(dict(asked.declared), asked.names, dict(columns), source, tars)
        if passes != self._passes:
            self._storage.put(filenames.POINTED, msgspec.json.encode(asdict(passes)))

    def tidy(self, read: Iterable[TarRecord], keep: Iterable[str]) -> None:
        """Remove the records of single tars, including those just read, and all pointer shards except those to
        `keep`."""
        single = {filenames.pointed(record.name) for record in read}
        remove(self._storage, *sorted(({*self._there} | single) - {filenames.POINTED, *keep}))


def put_record(storage: Storage, record: TarRecord) -> None:
    storage.put(filenames.pointed(record.name), msgspec.json.encode(asdict(record)))


def _decoded(storage: Storage, key: str, kind: type[T]) -> T | None:
    """Return the stored value; None if it is missing, damaged, or of another version."""
    try:
        return msgspec.json.decode(storage.get(key).data, type=kind)
    except (MissingError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
