"""Find the files to index, named by URLs or in folders, all below one folder. Read them, and check where the index will
be."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar
from urllib.parse import unquote

from mdsx.base.braces import expand_braces
from mdsx.errors import ChangedError, FormatError, MissingError, UsageError, shown
from mdsx.format import filenames
from mdsx.storage import (
    Entry,
    Piece,
    Storage,
    StorageOptions,
    describe,
    file_of,
    find_entries,
    get_or_none,
    is_visible,
    open_storage,
    put_over,
)

Urls = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True, slots=True)
class IndexedKind:
    """A kind of files: their name in messages, their suffix or suffixes, and whether a file may have a certain name.

    `check` raises an error for a file in a folder that must not be ignored.
    """

    name: str
    suffix: str | tuple[str, ...]
    is_key: Callable[[str], bool]
    check: Callable[[str], object] = lambda file: None


def expand(urls: Urls) -> list[str | os.PathLike[str]]:
    """Return the paths and URLs that `urls` name, with braces expanded, and `*`, `?` and `[...]` in local paths."""
    given = [urls] if isinstance(urls, str | os.PathLike) else list(urls)
    found: list[str | os.PathLike[str]] = []
    for url in given:
        for text in expand_braces(url) if isinstance(url, str) else [url]:
            local = isinstance(text, str) and "://" not in text and glob.has_magic(text) and not os.path.exists(text)
            matches = sorted(glob.glob(os.fspath(text))) if local else [text]
            if not matches:
                raise MissingError("no file matches", file=os.fspath(text))
            found += matches
    return found


def find_files(
    urls: Sequence[str | os.PathLike[str]], options: StorageOptions | None, kind: IndexedKind, *, write: bool
) -> tuple[Storage, list[Entry]]:
    """Return the common folder of all `urls`, and the files that they name, in the order of the URLs and, in a folder,
    of keys. `write`: the folder is written to. Raise MissingError if a URL names no file, or UsageError."""
    if not urls:
        raise UsageError("no file or folder is named")
    siblings = _Siblings(urls, options, kind)
    places = [_Place(url, options, kind, siblings) for url in urls]
    common = _common([place.folder for place in places])
    root = places[0].root
    if any(place.root != root for place in places):
        hint = "index them one by one, and mix them with mdsx.Mixture"
        raise UsageError(
            "the files are in different storages", found=", ".join(place.url for place in places), hint=hint
        )
    base = root + "/".join(common)
    storage = open_storage(base or "/", options, write=write)
    entries: dict[str, Entry] = {}
    for place in places:
        for entry in place.files(len(common)):
            if entry.key in entries:
                raise UsageError("the file is named twice", file=file_of(storage, entry.key))
            if not kind.is_key(entry.key):
                hint = "rename it: UTF-8, no control characters, no backslash, no colon like that of a URL"
                raise UsageError("a file with this name cannot be indexed", file=file_of(storage, entry.key), hint=hint)
            entries[entry.key] = entry
    return storage, list(entries.values())


def _common(folders: Sequence[list[str]]) -> list[str]:
    """Return the components with which all folders begin."""
    common = folders[0]
    while any(folder[: len(common)] != common for folder in folders):
        common = common[:-1]
    return common


class _Place:
    """A URL, and the files that it names."""

    def __init__(
        self, url: str | os.PathLike[str], options: StorageOptions | None, kind: IndexedKind, siblings: _Siblings
    ) -> None:
        storage = open_storage(url, options)  # checks the URL
        self.url = storage.url
        text = storage.url if storage.path("x") is not None else os.fspath(url)
        head, separator, rest = text.rstrip("/").rpartition("://")
        bucket, slash, path = rest.partition("/") if separator else ("", "/", rest.lstrip("/"))
        if separator and "?" in path:
            hint = "give the signature as storage options"
            raise UsageError(f"a URL of {kind.name} must not have a query", file=self.url, hint=hint)
        self.root = f"{head}{separator}{bucket}{slash}"
        self.folder = path.split("/") if path else []
        self._quoted = head in ("http", "https")
        named = siblings.find(os.fspath(url), self._key(self.folder[-1])) if self.folder else None
        if named is not None:
            self.folder.pop()
            self._files = [named]
            return
        found = _listed(storage)
        visible = [entry for entry in found or () if is_visible(entry.key)]
        for entry in visible:
            kind.check(file_of(storage, entry.key))
        self._files = [entry for entry in visible if entry.key.endswith(kind.suffix)]
        if not found and self.folder:
            *self.folder, name = self.folder
            parent = open_storage(self.root + "/".join(self.folder), options)
            self._files = [describe(parent, self._key(name))] if found is None else _named(parent, name)
        if not self._files:
            suffixes = kind.suffix if isinstance(kind.suffix, str) else " or ".join(kind.suffix)
            what = f"no {suffixes} file is in this folder" if found else "there is no such file or folder"
            raise MissingError(what, file=self.url)

    def files(self, depth: int) -> list[Entry]:
        """Return the files with keys relative to the folder `depth` levels below the root."""
        prefix = "".join(f"{self._key(part)}/" for part in self.folder[depth:])
        return [replace(entry, key=prefix + entry.key) for entry in self._files]

    def _key(self, part: str) -> str:
        """Return a component of the URL in the form of keys."""
        return unquote(part) if self._quoted else part


class _Siblings:
    """Files that are named one by one. One listing finds all files of a folder."""

    def __init__(
        self, urls: Sequence[str | os.PathLike[str]], options: StorageOptions | None, kind: IndexedKind
    ) -> None:
        self._options = options
        self._names: dict[str, set[str]] = {}
        for url in urls:
            folder, _, name = os.fspath(url).rpartition("/")
            if folder and name.endswith(kind.suffix):
                self._names.setdefault(folder, set()).add(name)
        self._found: dict[str, dict[str, Entry]] = {}

    def find(self, url: str, key: str) -> Entry | None:
        """Return the file with this URL, whose name in its folder is `key`; None if it may be a folder."""
        folder, _, name = url.rpartition("/")
        names = self._names.get(folder, set())
        if name not in names:
            return None
        storage = open_storage(folder, self._options)
        if (path := storage.path(name)) is not None:
            return describe(storage, name) if path.is_file() else None
        if folder not in self._found:
            keys = [unquote(each) for each in names] if folder.startswith(("http://", "https://")) else names
            self._found[folder] = find_entries(storage, keys)
        return self._found[folder].get(key)


def _listed(storage: Storage) -> list[Entry] | None:
    """Return the files in a folder; None if the storage cannot list, as a web server."""
    try:
        return list(storage.list())
    except UsageError:
        return None


def _named(storage: Storage, name: str) -> list[Entry]:
    return [entry for entry in storage.list(name) if entry.key == name]


# --- where the index will be


class _Parsed(Protocol):
    """A parsed index: the keys of the files in it."""

    @property
    def names(self) -> Iterable[str]: ...


_Index = TypeVar("_Index", bound=_Parsed)


def index_before(
    place: Storage,
    key: str,
    parse: Callable[..., _Index],
    *,
    storage: Storage,
    entries: Sequence[Entry],
    name: str,
    replace_index: bool,
    but: Callable[[bytes], bool] = lambda data: False,
) -> tuple[Piece | None, _Index | None]:
    """Return the index file at `place`, with this `key`, and what `parse` makes of its bytes: None if it is not valid.

    Raise UsageError if readers would read another dataset there instead of the files of this `name`. `but`: whether an
    `index.json` with these bytes may be there. Raise UsageError, except with `replace_index`, also if the index names
    other files that are in `storage` than `entries`, or, if it is in another folder than the files, none of `entries`.
    """
    _refuse_dataset(place, name, but)
    if (there := get_or_none(place, key)) is None:
        return None, None
    try:
        known = parse(there.data, file=file_of(place, key))
    except FormatError:  # empty, damaged or older: it is made again
        return there, None
    if not replace_index:
        _refuse_others(file_of(place, key), storage, known.names, entries, name, beside=place.url == storage.url)
    return there, known


def _refuse_dataset(place: Storage, name: str, but: Callable[[bytes], bool]) -> None:
    """Raise UsageError if another dataset is at `place`: see `index_before`."""
    there = get_or_none(place, filenames.INDEX)
    if there is not None and not but(there.data):
        hint = "index folders below this one, or move the other dataset"
        message = f"another dataset is here: {filenames.INDEX} would be read instead of the index of the {name}"
        raise UsageError(message, file=place.url, hint=hint)


def _refuse_others(
    index: str, storage: Storage, keys: Iterable[str], entries: Sequence[Entry], name: str, *, beside: bool
) -> None:
    """Raise UsageError if `keys`, those of the `index` that is there, name files that exist but are not indexed now.

    An index that is not `beside` its files does not say where they are. If it names none of those that are indexed now,
    it may be of another folder, whose files cannot be looked up.
    """
    known = set(keys)
    if others := sorted(known - {entry.key for entry in entries}):
        if not beside and len(others) == len(known):
            hint = "give another folder, or replace the index: replace_index=True (--replace-index)"
            raise UsageError(f"the index here is of other {name}, such as {shown(others[0])}", file=index, hint=hint)
        there = {entry.key for entry in storage.list()}
        for key in filter(there.__contains__, others):
            hint = "name them as well, or replace the index: replace_index=True (--replace-index)"
            raise UsageError(f"the index here has other {name} too, such as {shown(key)}", file=index, hint=hint)


def put_index(place: Storage, key: str, data: bytes, there: Piece | None) -> None:
    """Write an index over the one that was `there` at the beginning. Raise ChangedError if another program has written
    one meanwhile, whose tables would be lost."""
    hint = "another program has indexed files here meanwhile: run this again"
    put_over(place, key, data, etag=None if there is None else there.etag, hint=hint)


# --- reading


def get_listed(storage: Storage, entry: Entry, start: int, stop: int) -> bytes:
    """Return bytes of the object that was listed. Raise ChangedError if it was replaced."""
    if start == stop:
        return b""
    piece = storage.get(entry.key, start=start, stop=stop, etag=entry.etag or None)
    if piece.total != entry.size or len(piece.data) != stop - start:
        hint = "index the files again when nothing writes to them"
        raise ChangedError("the file changed while it was indexed", file=file_of(storage, entry.key), hint=hint)
    return piece.data
