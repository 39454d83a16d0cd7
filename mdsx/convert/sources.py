"""The tars to convert: named by path or URL, with braces or globs, each known to be there before anything is written.

`{0000..0099}` and `{a,b}` are expanded everywhere, `*`, `?` and `[...]` in local paths. A source's `etag` changes when
its content does, so that neither a reader nor a rerun takes bytes of another file. Reading is streamed: a few MiB are
held, never a tar.
"""

from __future__ import annotations

import glob
import os
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from mdsx.convert.braces import expand_braces
from mdsx.convert.tape import printable
from mdsx.errors import MissingError, UsageError
from mdsx.storage import open_storage

_RANGE = 2**23  # bytes asked for at once; as many are read ahead while these are converted


@dataclass(frozen=True, slots=True)
class Source:
    """One tar: its path or URL, its size in bytes, and what tells its content apart from a later one's."""

    url: str
    size: int
    etag: str


def find_sources(names: Sequence[str], *, connect_timeout: float | None = None) -> list[Source]:
    """The tars that `names` stand for, in that order. Raises MissingError for one that is not there."""
    urls = [url for name in names for expanded in expand_braces(name) for url in _globbed(expanded)]
    if not urls:
        raise UsageError("no tar is named")
    places = [_split(url) for url in urls]
    folders: dict[str, set[str]] = defaultdict(set)
    for url, (folder, name) in zip(urls, places, strict=True):
        if name in folders[folder]:
            raise UsageError("tar is named twice", file=url)
        folders[folder].add(name)
    found = {
        folder: _list(folder, inside, connect_timeout) if _is_remote(folder) else _look(folder, inside)
        for folder, inside in folders.items()
    }
    return [found[folder][name] for folder, name in places]


def read_chunks(source: Source, count: Callable[[int], object]) -> Generator[bytes, None, None]:
    """The bytes of `source` in chunks; `count` is called with the size of each."""
    folder, name = _split(source.url)
    storage = open_storage(folder)

    def fetch(start: int) -> bytes:
        return storage.get(name, start=start, stop=min(start + _RANGE, source.size), etag=source.etag).data

    with ThreadPoolExecutor(1, thread_name_prefix="mdsx-source") as ahead:
        coming = ahead.submit(fetch, 0)
        for start in range(0, source.size, _RANGE):
            chunk = coming.result()
            if start + _RANGE < source.size:
                coming = ahead.submit(fetch, start + _RANGE)
            count(len(chunk))
            yield chunk


def _is_remote(url: str) -> bool:
    return "://" in url


def _split(url: str) -> tuple[str, str]:
    """The folder that a tar lies in, and its name there."""
    if not url.isascii() and url.encode(errors="ignore").decode() != url:
        raise UsageError("the tar's name is not UTF-8", file=printable(url), hint="rename it")
    folder, _, name = (url if _is_remote(url) else os.path.abspath(url)).rpartition("/")
    if not _is_remote(url) and os.path.isdir(url):
        raise UsageError("is not a tar but a directory", file=url, hint=f"name the tars: {url.rstrip('/')}/*.tar")
    if not _is_remote(url) and os.path.exists(url) and not os.path.isfile(url):
        hint = "a tar is read more than once: write it to a file first"
        raise UsageError("is not a file but a pipe or a device", file=url, hint=hint)
    if not name or folder.endswith(":/"):
        raise UsageError("names no tar", file=url)
    return folder or "/", name


def _globbed(url: str) -> list[str]:
    if url.startswith("file://"):
        url = open_storage(url).url
    if _is_remote(url) or not glob.has_magic(url) or os.path.exists(url):
        return [url]
    matches = sorted(glob.glob(url))
    if not matches:
        raise MissingError("no file matches", file=url)
    return matches


def _look(folder: str, names: Iterable[str]) -> dict[str, Source]:
    """Local sources by name, each opened to see that it can be."""
    storage = open_storage(folder)
    pieces = {name: storage.get(name, stop=1) for name in names}
    return {name: Source(os.path.join(folder, name), piece.total, piece.etag) for name, piece in pieces.items()}


def _list(folder: str, names: Iterable[str], connect_timeout: float | None) -> dict[str, Source]:
    """Remote sources of one folder by name, found by listing what begins as all their names do."""
    storage = open_storage(folder, connect_timeout=connect_timeout)
    first, last = min(names), max(names)  # what these two share, all share
    shared = next((first[:size] for size in range(len(first)) if first[: size + 1] != last[: size + 1]), first)
    entries = {entry.key: entry for entry in storage.list(shared)}
    for name in names:
        if name not in entries:
            hint = "globs are for local paths; name a range like {0000..0099}" if glob.has_magic(name) else None
            raise MissingError("there is no such tar", file=f"{storage.url}/{name}", hint=hint)
    return {name: Source(f"{storage.url}/{name}", entries[name].size, entries[name].etag) for name in names}
