"""Find the files to convert, named by paths or URLs with braces or globs, and read them in chunks.

All files must exist before anything is written. Braces are expanded (mdsx/base/braces.py); `*`, `?` and `[...]` are
expanded in local paths. Reading in chunks holds a few MiB in memory, never a whole file.
"""

from __future__ import annotations

import glob
import os
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote

import xxhash

from mdsx.base.braces import expand_braces
from mdsx.base.process import REQUESTS, Share
from mdsx.errors import MissingError, UsageError
from mdsx.foreign.tars import printable
from mdsx.storage import Storage, StorageOptions, find_entries, is_visible, open_storage
from mdsx.transfer.ahead import read_ahead

_RANGE = 2**23  # bytes fetched at once; while they are converted, the next ones are fetched
_OTHERS = {
    "parquet": "Parquet files are read in place (`mdsx index parquet`), or converted with `mdsx convert parquet`",
    "mds": "MDS datasets are read in place: give the folder to mdsx.Dataset; or `mdsx convert mds`",
    "mdsx": "this is a shard of a dataset: give the folder to mdsx.Dataset",
    "tar": "convert tars with `mdsx convert tar`, or read them in place (`mdsx index tar`)",
    "jsonl": "convert it with `mdsx convert jsonl`",
    "tfrecord": "convert it with `mdsx convert tfrecord`",
}
_BLOCKS, _BLOCK_SIZE = 8, 4096  # hashed blocks of a local file, to recognize its content


class FileKind(NamedTuple):
    """The kind of files that a source reads, for messages: a `name` such as "tar", and the usual `suffix`."""

    name: str
    suffix: str


@dataclass(frozen=True, slots=True)
class File:
    """A file to convert: its path or URL, and its size in bytes.

    `etag` guards reading: it changes when the object is replaced or, for a local file, written to. `content` identifies
    the content for a later run: the ETag of a remote object, or a hash of some blocks of a local file, whose times may
    change when its content does not.
    """

    url: str
    size: int
    etag: str
    content: str

    @property
    def identity(self) -> tuple[str, int, str]:
        """Return what must match for a later run to continue."""
        return self.url, self.size, self.content


def find_files(names: Sequence[str], kind: FileKind, options: StorageOptions | None = None) -> list[File]:
    """Return the files that `names` name, in that order. Raise MissingError if one is missing."""
    urls = [url for name in names for expanded in expand_braces(name) for url in _expand_glob(expanded)]
    if not urls:
        raise UsageError(f"no {kind.name} is named")
    places = [_folder_and_name(url, kind) for url in urls]
    folders: dict[str, set[str]] = defaultdict(set)
    for url, (folder, name) in zip(urls, places, strict=True):
        if name in folders[folder]:
            raise UsageError(f"{kind.name} is named twice", file=url)
        folders[folder].add(name)
    found = {
        folder: (_remote_files(folder, inside, kind, options) if _is_remote(folder) else local_files(folder, inside))
        for folder, inside in folders.items()
    }
    return [found[folder][name] for folder, name in places]


def find_files_below(names: Sequence[str], kind: FileKind, options: StorageOptions | None = None) -> list[File]:
    """Return the files as `find_files` does, and those of this kind below folders, ordered by name.

    Hidden files are left out (see `mdsx.storage.is_visible`). Raise MissingError for a folder without such files.
    """
    names = [open_storage(name).url if name.startswith("file://") else name for name in names]
    paths = [path for name in names for path in ([name] if _is_file(name, kind) else _below(name, kind, options))]
    try:
        return find_files(paths, kind, options)
    except MissingError:  # what looks like a file in a cloud may be a folder, as Spark names them
        paths = [path for name in paths for path in _below_or_itself(name, kind, options)]
    return find_files(paths, kind, options)


def _is_file(name: str, kind: FileKind) -> bool:
    """Return whether a name is that of a file, or of a folder; in a cloud, its suffix decides."""
    return name.endswith(f".{kind.suffix}") if _is_remote(name) else not os.path.isdir(name)


def _below(name: str, kind: FileKind, options: StorageOptions | None) -> list[str]:
    """Return the files of this kind below a folder. Raise MissingError if there are none."""
    storage = open_storage(name, options if _is_remote(name) else None)
    keys = sorted(entry.key for entry in storage.list() if entry.key.endswith(f".{kind.suffix}"))
    below = [f"{storage.url.rstrip('/')}/{key}" for key in keys if is_visible(key)]
    if not below:
        raise MissingError(f"no *.{kind.suffix} is in this folder", file=storage.url)
    return below


def _below_or_itself(name: str, kind: FileKind, options: StorageOptions | None) -> list[str]:
    """Return the files below what may be a folder in a cloud, or else its name."""
    if not _is_remote(name):
        return [name]
    try:
        return _below(name, kind, options)
    except (MissingError, UsageError):  # a web server cannot list
        return [name]


def read_ranges(file: File, ranges: Sequence[tuple[int, int]], options: StorageOptions | None) -> list[bytes]:
    """Return the bytes of some ranges of `file`, fetched at the same time. Raise ChangedError if it was replaced."""
    storage, key = _opened(file, options)
    return list(
        Share(REQUESTS).map(lambda each: storage.get(key, start=each[0], stop=each[1], etag=file.etag).data, ranges)
    )


def read_chunks(
    file: File,
    options: StorageOptions | None = None,
    *,
    count: Callable[[int], object] = lambda size: None,
    first: int = 0,
    stop: int | None = None,
    at_once: int = _RANGE,
) -> Generator[bytes, None, None]:
    """Yield the bytes of `file` from byte `first` to `stop` in chunks of `at_once`, fetched ahead.

    `count` is called with the size of each chunk.

    Raise ChangedError if the file was replaced since it was found.
    """
    storage, key = _opened(file, options)
    end = file.size if stop is None else min(stop, file.size)

    def fetch(start: int, stop: int) -> bytes:
        return storage.get(key, start=start, stop=stop, etag=file.etag).data

    with closing(read_ahead(fetch, at_once, end, first=first)) as chunks:
        for chunk in chunks:
            count(len(chunk))
            yield chunk


def _opened(file: File, options: StorageOptions | None) -> tuple[Storage, str]:
    """Return the storage of a file's folder, and the file's key there."""
    folder, _, name = file.url.rpartition("/")
    return open_storage(folder or "/", options if _is_remote(folder) else None), _key(folder, name)


def _is_remote(url: str) -> bool:
    return "://" in url


def _folder_and_name(url: str, kind: FileKind) -> tuple[str, str]:
    """Return the folder of a file, and its name there."""
    if not url.isascii() and url.encode(errors="ignore").decode() != url:
        raise UsageError("the file's name is not UTF-8", file=printable(url), hint="rename it")
    folder, _, name = (url if _is_remote(url) else os.path.abspath(url)).rpartition("/")
    suffix = name.rpartition(".")[2].lower()
    if suffix != kind.suffix and (hint := _OTHERS.get(suffix)):
        raise UsageError(f"is not a {kind.name}", file=url, hint=hint)
    if not _is_remote(url) and os.path.isdir(url):
        hint = f"name the files: {url.rstrip('/')}/*.{kind.suffix}"
        raise UsageError(f"is not a {kind.name} but a directory", file=url, hint=hint)
    if not _is_remote(url) and os.path.exists(url) and not os.path.isfile(url):
        hint = "it is read more than once: write it to a file first"
        raise UsageError("is not a file but a pipe or a device", file=url, hint=hint)
    if _is_remote(url) and ("?" in url or "@" in folder.partition("://")[2].partition("/")[0]):
        hint = "give a token, or user and password, as --source-option (source_options=)"
        raise UsageError("the URL of a file must not have a login or a query", file=url, hint=hint)
    if not name or folder.endswith(":/"):
        raise UsageError("names no file", file=url)
    return folder or "/", name


def _expand_glob(url: str) -> list[str]:
    if url.startswith("file://"):
        url = open_storage(url).url
    if _is_remote(url) or not glob.has_magic(url) or os.path.exists(url):
        return [url]
    matches = sorted(glob.glob(url))
    if not matches:
        raise MissingError("no file matches", file=url)
    return matches


def local_files(folder: str, names: Iterable[str]) -> dict[str, File]:
    """Return the local files of one folder, by name."""
    storage = open_storage(folder)
    return {name: _local_file(storage, os.path.join(folder, name), name) for name in sorted(names)}


def _local_file(storage: Storage, path: str, name: str) -> File:
    """Return a local file. Its hash covers blocks at the beginning, at the end and evenly between: a rewritten file
    differs in some of them."""
    try:
        piece = storage.get(name, stop=_BLOCK_SIZE)
    except MissingError:
        raise MissingError("there is no such file", file=path, hint="check the name") from None
    content, last = xxhash.xxh3_128(piece.data), max(piece.total - _BLOCK_SIZE, 0)
    for number in range(1, _BLOCKS):
        start = last * number // (_BLOCKS - 1)
        content.update(storage.get(name, start=start, stop=start + _BLOCK_SIZE, etag=piece.etag).data)
    return File(path, piece.total, piece.etag, content.hexdigest())


def _remote_files(folder: str, names: Iterable[str], kind: FileKind, options: StorageOptions | None) -> dict[str, File]:
    """Return the remote files of one folder, by name."""
    storage = open_storage(folder, options)
    keys = {name: _key(folder, name) for name in names}
    entries = find_entries(storage, [*keys.values()])
    for name in sorted(names):
        if keys[name] not in entries:
            hint = "globs are for local paths; name a range like {0000..0099}" if glob.has_magic(name) else None
            raise MissingError(f"there is no such {kind.name}", file=f"{storage.url}/{name}", hint=hint)
    found = {name: entries[key] for name, key in keys.items()}
    return {name: File(f"{storage.url}/{name}", each.size, each.etag, each.etag) for name, each in found.items()}


def _key(folder: str, name: str) -> str:
    """Return the key of the object with this name in the URL of a file in a folder."""
    return unquote(name) if folder.startswith(("http://", "https://")) else name
