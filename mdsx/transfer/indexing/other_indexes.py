"""Other loaders' indexes of tars: how many samples each tar has and, in Energon's, where the bytes of its members are.

They show which bytes need not be read. The headers between members are still read and checked, and each tar must have
the stated number of samples. Energon lists the tars in `.info.json` or `.info.yaml`, and their members in
`index.sqlite`. A wids JSON has only the number of samples of each tar.
"""

from __future__ import annotations

import os
import re
import sqlite3
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec

from mdsx.base.process import REQUESTS, Share
from mdsx.errors import ChangedError, CorruptError, MissingError, UnsupportedError, UsageError, shown
from mdsx.foreign.tars import is_wids
from mdsx.format import filenames
from mdsx.storage import Entry, Storage, StorageOptions, describe, file_of, get_or_none, open_beside
from mdsx.transfer.indexing.sources import get_listed

FOLDER = ".nv-meta"
_SQLITE, _INFOS = "index.sqlite", (".info.json", ".info.yaml")
_GAP = 2**16  # bytes between ranges that are not worth a separate request
_LARGEST = 2**22  # bytes of a range
_WAVE = 32
_STEPS, _STEPS_A_BYTE = 10**6, 20  # steps of SQLite's virtual machine, which needs about ten per row
_MORE = 2**12  # bytes read at once from a disk
_AGAIN = "make the index without --from"
_COUNT = re.compile(r"  (?:'([^']*)'|\"([^\"\\]*)\"|([^'\"\s#][^#]*?)) *: +([0-9]+) *")
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class _Info(msgspec.Struct):
    shard_counts: dict[str, _Count]


class _Shard(msgspec.Struct):
    url: str
    nsamples: _Count


class _Wids(msgspec.Struct):
    shardlist: list[_Shard]


@dataclass(frozen=True)
class OtherIndex:
    """An index `file` of tars: the number of samples of each, by name. `sqlite`: the local file with Energon's members,
    and `numbers`: the number of each tar in it."""

    file: str
    counts: Mapping[str, int]
    sqlite: str | None = None
    numbers: Mapping[str, int] = field(default_factory=dict)
    kept: tempfile.TemporaryDirectory[str] | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "kept": None}  # only the process that made the folder removes it

    def name(self, key: str) -> str:
        """Return the name in this index of the tar with this key. Raise UsageError if it is not in the index."""
        if key in self.counts:
            return key
        base = key.rpartition("/")[2]
        found = [name for name in self.counts if name.rpartition("/")[2] == base]
        if len(found) != 1:
            what = "is not in this index" if not found else "is in this index more than once"
            raise UsageError(f"tar {key!r} {what}", file=self.file, hint=_AGAIN)
        return found[0]

    def check(self, entry: Entry, samples: int, file: str) -> None:
        """Raise ChangedError if a tar's number of samples differs from this index."""
        expected = self.counts[self.name(entry.key)]
        if samples != expected:
            message = f"the tar's number of samples differs from {self.file}"
            raise ChangedError(message, file=file, found=samples, expected=expected, hint=_AGAIN)

    def fetch(self, storage: Storage, entry: Entry) -> Callable[[int, int], bytes]:
        """Return a function that returns bytes [start, stop) of a tar, and maybe more.

        Bytes between members are fetched ahead.
        """

        def get(start: int, stop: int, more: int = 0) -> bytes:
            return get_listed(storage, entry, start, min(max(stop, start + more), entry.size))

        if storage.path(entry.key) is not None:
            return lambda start, stop: get(start, stop, _MORE)
        if self.sqlite is None:
            return lambda start, stop: get(start, stop, _GAP)
        return _Ahead(get, self._ranges(entry)).fetch

    def _ranges(self, entry: Entry) -> list[tuple[int, int]]:
        """Return the ranges between the members of a tar. Ranges that are close together are joined."""
        assert self.sqlite is not None
        number = self.numbers[self.name(entry.key)]
        query = "SELECT content_byte_offset, content_byte_size FROM sample_parts WHERE tar_file_id = ? ORDER BY 1"
        found: list[tuple[int, int]] = []
        uri = f"{Path(self.sqlite).absolute().as_uri()}?mode=ro&immutable=1"
        at = 0
        try:
            with closing(sqlite3.connect(uri, uri=True)) as database:
                self._bound(database)
                for start, size in database.execute(query, (number,)):
                    if not (isinstance(start, int) and isinstance(size, int) and at <= start <= start + size):
                        raise CorruptError("its members overlap", file=self.file, place=f"tar {number}", hint=_AGAIN)
                    _add(found, at, min(start, entry.size))
                    at = start + size
        except sqlite3.Error as error:
            raise CorruptError(f"not an index of Energon: {error}", file=self.file, hint=_AGAIN) from None
        _add(found, min(at, entry.size), entry.size)
        return found

    def _bound(self, database: sqlite3.Connection) -> None:
        """Limit SQLite to the steps that a file of this size can need: the pages of a damaged file may form a loop.

        Raise CorruptError if the members are not a plain table: a view or a virtual table may have endless rows.
        """
        assert self.sqlite is not None
        left = iter(range(1 + _STEPS_A_BYTE * os.path.getsize(self.sqlite) // _STEPS))
        database.set_progress_handler(lambda: next(left, None) is None, _STEPS)  # True ends the query
        database.execute("PRAGMA trusted_schema = OFF")
        query = "SELECT type, rootpage FROM sqlite_master WHERE lower(name) = 'sample_parts'"
        found = database.execute(query).fetchall()
        if len(found) != 1 or found[0][0] != "table" or not found[0][1]:  # a virtual table has no page
            raise CorruptError("sample_parts is not a table", file=self.file, found=shown(found), hint=_AGAIN)


def _add(ranges: list[tuple[int, int]], start: int, stop: int) -> None:
    if ranges and start - ranges[-1][1] < _GAP and stop - ranges[-1][0] <= _LARGEST:
        ranges[-1] = ranges[-1][0], stop
    elif start < stop:
        ranges.append((start, stop))


class _Ahead:
    """Reads ranges in order, many at once."""

    def __init__(self, get: Callable[[int, int], bytes], ranges: list[tuple[int, int]]) -> None:
        self._get, self._ranges = get, ranges
        self._next = 0
        self._have: dict[int, bytes] = {}

    def fetch(self, start: int, stop: int) -> bytes:
        """Return bytes [start, stop), with the rest of their range if it was fetched ahead."""
        while self._next < len(self._ranges) and self._ranges[self._next][0] <= start:
            wave = self._ranges[self._next : self._next + _WAVE]
            fetched = Share(REQUESTS).map(lambda each: self._get(*each), wave)
            self._have = {begin: data for (begin, _), data in zip(wave, fetched, strict=True)}
            self._next += len(wave)
        for begin, data in self._have.items():
            if begin <= start < begin + len(data):
                found = data[start - begin :]
                return found if len(found) >= stop - start else found + self._get(start + len(found), stop)
        return self._get(start, stop)


# --- reading an index


def read_other(url: str | os.PathLike[str], tars: str | os.PathLike[str], options: StorageOptions | None) -> OtherIndex:
    """Return the index at `url`: a folder `.nv-meta`, or a wids JSON. `options` apply if `tars` have the same scheme.

    Raise MissingError, CorruptError or UnsupportedError.
    """
    folder, _, name = os.fspath(url).rstrip("/").rpartition("/")
    if name == FOLDER:
        return _energon(open_beside(tars, url, options))
    if name == _SQLITE:
        return _energon(open_beside(tars, folder or ".", options))
    if not name.endswith(".json"):
        expected = f"a folder {FOLDER} of Energon, or a wids JSON"
        raise UnsupportedError("not an index of tars", file=os.fspath(url), expected=expected)
    storage = open_beside(tars, folder or ("/" if os.fspath(url).startswith("/") else "."), options)
    return _wids(storage.get(name).data, file_of(storage, name))


def other_hint(storage: Storage) -> str | None:
    """Return a note if there is another index next to the tars."""
    found = None
    if get_or_none(storage, f"{FOLDER}/{_SQLITE}", stop=1) is not None:
        found = f"{storage.url}/{FOLDER}"
    elif (first := get_or_none(storage, filenames.INDEX, stop=2**16)) is not None and is_wids(first.data):
        found = f"{storage.url}/{filenames.INDEX}"
    if found is None:
        return None
    return f"{found} is an index of tars: with --from {found}, indexing reads mostly headers, and makes no checksums"


def _wids(data: bytes, file: str) -> OtherIndex:
    try:
        shards = msgspec.json.decode(data, type=_Wids).shardlist
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptError(f"not a wids JSON with a list of shards: {error}", file=file, hint=_AGAIN) from None
    return OtherIndex(file, {shard.url: shard.nsamples for shard in shards})


def _energon(storage: Storage) -> OtherIndex:
    counts = _energon_counts(storage)
    numbers = {name: number for number, name in enumerate(counts)}
    file, path = file_of(storage, _SQLITE), storage.path(_SQLITE)
    if path is not None:
        if not path.is_file():
            raise MissingError("not found", file=file)
        return OtherIndex(file, counts, str(path), numbers)
    folder = tempfile.TemporaryDirectory(prefix="mdsx-energon-")
    local = Path(folder.name) / _SQLITE
    entry = describe(storage, _SQLITE)
    with local.open("wb") as out:
        storage.download(_SQLITE, out.write, size=entry.size, etag=entry.etag or None)
    return OtherIndex(file, counts, str(local), numbers, folder)


def _energon_counts(storage: Storage) -> dict[str, int]:
    """Return the number of samples of each tar, in Energon's order."""
    for name in _INFOS:
        try:
            data = storage.get(name).data
        except MissingError:
            continue
        file = file_of(storage, name)
        if name.endswith(".json"):
            try:
                return msgspec.json.decode(data, type=_Info).shard_counts
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise CorruptError(f"not Energon's: {error}", file=file, hint=_AGAIN) from None
        return _yaml_counts(data.decode("utf-8", "replace"), file)
    raise MissingError(f"neither {' nor '.join(_INFOS)} exists", file=storage.url)


def _yaml_counts(text: str, file: str) -> dict[str, int]:
    """Parse the lines below `shard_counts`, a name and a number each, as Energon writes them."""
    lines = text.splitlines()
    found: dict[str, int] = {}
    if "shard_counts:" not in lines:
        raise CorruptError("the file lacks shard_counts", file=file, hint=_AGAIN)
    for place, line in enumerate(lines[lines.index("shard_counts:") + 1 :], lines.index("shard_counts:") + 2):
        if not line.startswith(" "):
            break
        match = _COUNT.fullmatch(line)
        if match is None:
            message = "the line is not a tar's name and number of samples"
            raise UnsupportedError(message, file=file, place=f"line {place}", found=line[:80], hint=_AGAIN)
        found[next(each for each in match.group(1, 2, 3) if each is not None)] = int(match[4])
    return found
