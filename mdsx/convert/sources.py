"""The tars to convert: named by path or URL, with braces or globs, each known to be there before anything is written.

A source's `etag` changes when its content does (for a local file: modification time), so that a rerun notices. Reading
is streamed: a few MiB are held, never a tar. `{0000..0099}` and `{a,b}` are expanded everywhere, `*`, `?` and `[...]`
in local paths.
"""

from __future__ import annotations

import glob
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from mdsx.convert.braces import expand_braces
from mdsx.errors import ChangedError, ForbiddenError, MissingError, UsageError
from mdsx.storage import open_storage

_CHUNK = 2**20
_RANGE = 2**23  # of a remote tar; one is read ahead while one is converted


@dataclass(frozen=True, slots=True)
class Source:
    """One tar: its path or URL, its size in bytes, and what tells its content apart from a later one's."""

    url: str
    size: int
    etag: str


def find_sources(names: Sequence[str]) -> list[Source]:
    """The tars that `names` stand for, in that order. Raises MissingError for the first that is not there."""
    urls = [url for name in names for expanded in expand_braces(name) for url in _globbed(expanded)]
    if not urls:
        raise UsageError("no tar is named")
    seen: set[str] = set()
    for url in urls:
        if url in seen:
            raise UsageError("tar is named twice", file=url)
        seen.add(url)
    remote = _list_remote([url for url in urls if _is_remote(url)])
    return [remote[url] if _is_remote(url) else _stat(url) for url in urls]


def read_chunks(source: Source, count: Callable[[int], object]) -> Iterator[bytes]:
    """The bytes of `source` in chunks; `count` is called with the size of each."""
    for chunk in _remote_chunks(source) if _is_remote(source.url) else _local_chunks(source):
        count(len(chunk))
        yield chunk


def _is_remote(url: str) -> bool:
    return "://" in url and not url.startswith("file://")


def _local_path(url: str) -> Path:
    path = open_storage(url).path("x") if url.startswith("file://") else None
    return path.parent if path else Path(url)


def _globbed(url: str) -> list[str]:
    if _is_remote(url) or not glob.has_magic(url) or _local_path(url).exists():
        return [url]
    matches = sorted(glob.glob(str(_local_path(url))))
    if not matches:
        raise MissingError("no file matches", file=url)
    return matches


def _stat(url: str) -> Source:
    path = _local_path(url)
    try:
        found = path.stat()
        with path.open("rb"):
            pass
    except FileNotFoundError:
        raise MissingError("there is no such tar", file=url) from None
    except IsADirectoryError:
        raise UsageError("is a directory", file=url, hint=f"name the tars in it: {url.rstrip('/')}/*.tar") from None
    except OSError as error:
        raise ForbiddenError(f"cannot be read: {error.strerror}", file=url) from None
    return Source(url, found.st_size, f"{found.st_mtime_ns:x}")


def _list_remote(urls: list[str]) -> dict[str, Source]:
    """The sources behind remote `urls`: one listing for each folder, narrowed by what the names have in common."""
    folders: dict[str, list[str]] = defaultdict(list)
    for url in urls:
        folder, _, name = url.rpartition("/")
        folders[folder].append(name)
    found: dict[str, Source] = {}
    for folder, names in folders.items():
        wanted = set(names)
        for entry in open_storage(folder).list(_common_start(names)):
            if entry.key in wanted:
                found[f"{folder}/{entry.key}"] = Source(f"{folder}/{entry.key}", entry.size, entry.etag)
    for url in urls:
        if url not in found:
            raise MissingError("there is no such tar", file=url)
    return found


def _common_start(names: Sequence[str]) -> str:
    first, last = min(names), max(names)  # what these two share, all share
    return next((first[:size] for size in range(len(first)) if first[: size + 1] != last[: size + 1]), first)


def _local_chunks(source: Source) -> Iterator[bytes]:
    left = source.size
    with _local_path(source.url).open("rb") as file:
        while left and (chunk := file.read(min(_CHUNK, left))):
            left -= len(chunk)
            yield chunk
        if left or file.read(1):
            raise ChangedError("tar changed its size while it was read", file=source.url)


def _remote_chunks(source: Source) -> Iterator[bytes]:
    folder, _, name = source.url.rpartition("/")
    storage = open_storage(folder)

    def fetch(start: int) -> bytes:
        return storage.get(name, start=start, stop=min(start + _RANGE, source.size), etag=source.etag).data

    with ThreadPoolExecutor(1, thread_name_prefix="mdsx-source") as ahead:
        starts = range(0, source.size, _RANGE)
        coming = ahead.submit(fetch, 0) if starts else None
        for start in starts:
            assert coming is not None
            chunk = coming.result()
            coming = ahead.submit(fetch, start + _RANGE) if start + _RANGE < source.size else None
            yield chunk
