"""Find the tars to convert, named by paths or URLs with braces or globs, and read them in chunks.

All tars must exist before anything is written. Braces are expanded as in the shell: `{0000..0099}`, `{a,b}`, nested,
several in one text. A brace without a range or a comma is left alone. If an end of a range has leading zeros, all its
numbers get that many digits. `{0..100..10}` steps, `{9..0}` counts down, `{a..e}` are letters. `*`, `?` and `[...]` are
expanded in local paths.

Reading holds a few MiB, never a whole tar.
"""

from __future__ import annotations

import glob
import math
import os
import re
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product

import xxhash

from mdsx.convert.tar_blocks import printable
from mdsx.errors import MissingError, UsageError
from mdsx.storage import Entry, Storage, StorageOptions, open_storage

_RANGE = 2**23  # bytes fetched at once; while they are converted, the next ones are fetched
_OTHERS = {
    "parquet": "Parquet files are read in place: make an index of them with `mdsx index parquet`",
    "mds": "MDS datasets are read in place: give the folder to mdsx.Dataset",
    "mdsx": "this is a shard of a dataset: give the folder to mdsx.Dataset",
}
_BLOCKS, _BLOCK_SIZE = 8, 4096  # of a local tar that are hashed, to recognize its content


@dataclass(frozen=True, slots=True)
class Source:
    """One tar: its path or URL, and its size in bytes.

    `etag` guards reading: it changes when the object is replaced or, for a local file, written to. `content` lets a
    later run recognize the same content: the ETag of a remote object, a hash of some blocks of a local file, because
    the times of a file may change when its content does not.
    """

    url: str
    size: int
    etag: str
    content: str

    @property
    def identity(self) -> tuple[str, int, str]:
        """Return what must match for a later run to continue."""
        return self.url, self.size, self.content


def find_sources(names: Sequence[str], options: StorageOptions | None = None) -> list[Source]:
    """Return the tars that `names` name, in that order. Raise MissingError if one is missing."""
    urls = [url for name in names for expanded in expand_braces(name) for url in _expand_glob(expanded)]
    if not urls:
        raise UsageError("no tar is named")
    places = [_folder_and_name(url) for url in urls]
    folders: dict[str, set[str]] = defaultdict(set)
    for url, (folder, name) in zip(urls, places, strict=True):
        if name in folders[folder]:
            raise UsageError("tar is named twice", file=url)
        folders[folder].add(name)
    found = {
        folder: (_remote_sources(folder, inside, options) if _is_remote(folder) else _local_sources(folder, inside))
        for folder, inside in folders.items()
    }
    return [found[folder][name] for folder, name in places]


def read_chunks(
    source: Source, count: Callable[[int], object], options: StorageOptions | None = None
) -> Generator[bytes, None, None]:
    """Yield the bytes of `source` in chunks; `count` is called with the size of each."""
    folder, name = _folder_and_name(source.url)
    storage = open_storage(folder, options if _is_remote(folder) else None)

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


def _folder_and_name(url: str) -> tuple[str, str]:
    """Return the folder of a tar, and its name there."""
    if not url.isascii() and url.encode(errors="ignore").decode() != url:
        raise UsageError("the tar's name is not UTF-8", file=printable(url), hint="rename it")
    folder, _, name = (url if _is_remote(url) else os.path.abspath(url)).rpartition("/")
    if hint := _OTHERS.get(name.rpartition(".")[2].lower()):
        raise UsageError("is not a tar", file=url, hint=hint)
    if not _is_remote(url) and os.path.isdir(url):
        raise UsageError("is not a tar but a directory", file=url, hint=f"name the tars: {url.rstrip('/')}/*.tar")
    if not _is_remote(url) and os.path.exists(url) and not os.path.isfile(url):
        hint = "a tar is read more than once: write it to a file first"
        raise UsageError("is not a file but a pipe or a device", file=url, hint=hint)
    if _is_remote(url) and ("?" in url or "@" in folder.partition("://")[2].partition("/")[0]):
        hint = "give a token, or user and password, as --source-option (source_options=)"
        raise UsageError("the URL of a tar has neither a login nor a query", file=url, hint=hint)
    if not name or folder.endswith(":/"):
        raise UsageError("names no tar", file=url)
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


def _local_sources(folder: str, names: Iterable[str]) -> dict[str, Source]:
    """Return the local sources of one folder, by name."""
    storage = open_storage(folder)
    return {name: _local_source(storage, os.path.join(folder, name), name) for name in names}


def _local_source(storage: Storage, path: str, name: str) -> Source:
    """Hash blocks at the beginning, at the end and evenly between: a rewritten tar differs in some of them."""
    piece = storage.get(name, stop=_BLOCK_SIZE)
    content, last = xxhash.xxh3_128(piece.data), max(piece.total - _BLOCK_SIZE, 0)
    for number in range(1, _BLOCKS):
        start = last * number // (_BLOCKS - 1)
        content.update(storage.get(name, start=start, stop=start + _BLOCK_SIZE, etag=piece.etag).data)
    return Source(path, piece.total, piece.etag, content.hexdigest())


def _remote_sources(folder: str, names: Iterable[str], options: StorageOptions | None) -> dict[str, Source]:
    """Return the remote sources of one folder, by name, from a listing of their common prefix."""
    storage = open_storage(folder, options)
    first, last = min(names), max(names)  # the common prefix of these two is that of all
    shared = next((first[:size] for size in range(len(first)) if first[: size + 1] != last[: size + 1]), first)
    if folder.startswith(("http://", "https://")):
        entries = {name: _asked_for(storage, name) for name in names}  # a web server has no listing
    else:
        entries = {entry.key: entry for entry in storage.list(shared)}
    for name in names:
        if name not in entries:
            hint = "globs are for local paths; name a range like {0000..0099}" if glob.has_magic(name) else None
            raise MissingError("there is no such tar", file=f"{storage.url}/{name}", hint=hint)
    return {
        name: Source(f"{storage.url}/{name}", entries[name].size, entries[name].etag, entries[name].etag)
        for name in names
    }


def _asked_for(storage: Storage, name: str) -> Entry:
    piece = storage.get(name, stop=1)
    return Entry(name, piece.total, piece.etag)


# --- braces

_MOST_NAMES = 1_000_000
_MOST_CHARACTERS = 2**28  # in all names
_LONGEST = 4096  # characters of a text with braces; a path has no more
_NUMBERS = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?", re.ASCII)
_LETTERS = re.compile(r"([A-Za-z])\.\.([A-Za-z])(?:\.\.(-?\d+))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Choice:
    """The texts to which a piece expands, and their count."""

    count: int
    texts: Callable[[], Iterable[str]]


def expand_braces(text: str) -> list[str]:
    """Return the texts to which `text` expands, in order; only itself if it has no braces. Raise UsageError."""
    if "{" not in text:
        return [text]
    shown = repr(text[:80])
    if len(text) > _LONGEST:
        raise UsageError("a name with braces is too long", found=shown, expected=f"at most {_LONGEST} characters")
    try:
        choice = _parse(text)
        if choice.count > _MOST_NAMES:
            raise UsageError(f"braces expand to more than {_MOST_NAMES:,} names", found=shown)
        if choice.count * len(text) > _MOST_CHARACTERS:
            raise UsageError("braces expand to too many long names", found=shown)
        return list(choice.texts())
    except RecursionError:
        raise UsageError("braces are nested too deeply", found=shown) from None


def _parse(text: str) -> _Choice:
    """Return the texts to which `text` expands, counted but not yet made."""
    pieces, start, done = [], 0, 0
    while (opening := text.find("{", start)) >= 0:
        start = opening + 1
        split = _split(text, start)
        choice = _choice(split[0]) if split else None
        if split and choice:
            pieces += [_literal(text[done:opening]), choice]
            start = done = split[1]
    pieces.append(_literal(text[done:]))
    count = math.prod(piece.count for piece in pieces)
    return _Choice(count, lambda: map("".join, product(*(piece.texts() for piece in pieces))))


def _literal(text: str) -> _Choice:
    return _Choice(1, lambda: (text,))


def _split(text: str, start: int) -> tuple[list[str], int] | None:
    """Return the items of the brace opened before `start`, and where it ends; None if it is never closed."""
    depth, items = 0, []
    for place in range(start, len(text)):
        match text[place]:
            case "{":
                depth += 1
            case "}" if depth:
                depth -= 1
            case "," if not depth:
                items.append(text[start:place])
                start = place + 1
            case "}":
                return [*items, text[start:place]], place + 1
    return None


def _choice(items: list[str]) -> _Choice | None:
    if len(items) > 1:
        parsed = [_parse(item) for item in items]
        return _Choice(sum(item.count for item in parsed), lambda: (text for item in parsed for text in item.texts()))
    if match := _NUMBERS.fullmatch(items[0]):
        padded = any(end.lstrip("-").startswith("0") and len(end.lstrip("-")) > 1 for end in match.group(1, 2))
        width = max(map(len, match.group(1, 2))) if padded else 0
        return _range(int(match[1]), int(match[2]), match[3], lambda number: f"{number:0{width}}")
    if match := _LETTERS.fullmatch(items[0]):
        return _range(ord(match[1]), ord(match[2]), match[3], chr)
    return None


def _range(first: int, last: int, step: str | None, text: Callable[[int], str]) -> _Choice:
    size = abs(int(step)) if step and int(step) else 1

    def texts() -> Iterator[str]:
        return map(text, range(first, last + 1, size) if first <= last else range(first, last - 1, -size))

    return _Choice(abs(last - first) // size + 1, texts)
