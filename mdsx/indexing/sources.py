"""Find the files to index: those that URLs name, or that are in folders, all below one folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from urllib.parse import unquote

from mdsx.errors import MissingError, UsageError
from mdsx.parquet import is_key
from mdsx.storage import Entry, Storage, StorageOptions, file_of, open_storage

_SUFFIX = ".parquet"


def find_files(
    urls: Sequence[str | os.PathLike[str]], options: StorageOptions | None, *, write: bool
) -> tuple[Storage, list[Entry]]:
    """Return the common folder of all `urls`, and the files that they name: in the order of the URLs, and those of a
    folder in the order of their keys. `write`: the folder is written to. Raise MissingError if a URL names none, or
    UsageError."""
    if not urls:
        raise UsageError("no file or folder is named")
    places = [_Place(url, options) for url in urls]
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
            if not is_key(entry.key):
                hint = "rename it: no control characters, no backslash, UTF-8"
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

    def __init__(self, url: str | os.PathLike[str], options: StorageOptions | None) -> None:
        storage = open_storage(url, options)  # checks the URL
        self.url = storage.url
        text = storage.url if storage.path("x") is not None else os.fspath(url)
        head, separator, rest = text.rstrip("/").rpartition("://")
        bucket, slash, path = rest.partition("/") if separator else ("", "/", rest.lstrip("/"))
        if separator and "?" in path:
            hint = "give what the URL is signed with as storage options"
            raise UsageError("a URL of Parquet files has no query", file=self.url, hint=hint)
        self.root = f"{head}{separator}{bucket}{slash}"
        self.folder = path.split("/") if path else []
        self._quoted = head in ("http", "https")
        found = _listed(storage)
        self._files = [entry for entry in found or () if _is_data(entry.key)]
        if not found and self.folder:
            *self.folder, name = self.folder
            parent = open_storage(self.root + "/".join(self.folder), options)
            self._files = [_described(parent, self._key(name))] if found is None else _named(parent, name)
        if not self._files:
            what = f"no {_SUFFIX} file is in this folder" if found else "there is no such file or folder"
            raise MissingError(what, file=self.url)

    def files(self, depth: int) -> list[Entry]:
        """Return the files with keys relative to the folder `depth` levels below the root."""
        prefix = "".join(f"{self._key(part)}/" for part in self.folder[depth:])
        return [Entry(prefix + entry.key, entry.size, entry.etag) for entry in self._files]

    def _key(self, part: str) -> str:
        """Return a component of the URL as it is in keys."""
        return unquote(part) if self._quoted else part


def _listed(storage: Storage) -> list[Entry] | None:
    """Return what is in a folder; None if the storage, a web server, cannot list."""
    try:
        return list(storage.list())
    except UsageError:
        return None


def _named(storage: Storage, name: str) -> list[Entry]:
    return [entry for entry in storage.list(name) if entry.key == name]


def _described(storage: Storage, name: str) -> Entry:
    piece = storage.get(name, stop=1)
    return Entry(name, piece.total, piece.etag)


def _is_data(key: str) -> bool:
    *folders, name = key.split("/")
    hidden = name.startswith((".", "_")) or any(map(_is_hidden, folders))
    return name.endswith(_SUFFIX) and not hidden


def _is_hidden(folder: str) -> bool:
    """Return whether engines pass over a folder; `_year=2024` is one of partitioned data."""
    return folder.startswith(".") or (folder.startswith("_") and "=" not in folder)
