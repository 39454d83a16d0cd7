"""The interface between mdsx and storage: a few verbs on keys below one root URL.

Each backend implements `Storage` and passes the same contract tests. Keys are relative, '/'-separated names; a byte
range is half-open. Errors are MissingError, ForbiddenError, TruncatedError, ChangedError, or another TransportError,
and name the URL.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mdsx.base.process import REQUESTS, Share
from mdsx.errors import MissingError, UsageError, shown

if TYPE_CHECKING:
    from typing_extensions import Buffer

Sink = Callable[[bytes], object]
Room = Callable[[int], memoryview]
"""Returns memory for an object of this many bytes."""


class MissingBucketError(MissingError):
    """The whole bucket, container, repository or revision does not exist."""


class NoListingError(UsageError):
    """The storage cannot list its objects: a web server."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An object in a listing. `etag` changes when its content does.

    `modified`: when it was stored, in seconds since 1970 by the storage's clock; 0 if unknown.
    """

    key: str
    size: int
    etag: str
    modified: float = 0.0


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of an object whose full size is `total`. `etag` is "" if the server has none."""

    data: bytes
    etag: str
    total: int


Choose = Callable[[Entry], bool]


class Storage(Protocol):
    """Objects below `url` (safe to print: without credentials). Can be pickled, forked, and shared by threads."""

    @property
    def url(self) -> str: ...

    def get(self, key: str, *, start: int = 0, stop: int | None = None, etag: str | None = None) -> Piece:
        """Return bytes [start, stop) of an object, or those of them that exist. `start` must be 0 or within the object.

        With `etag`, raise ChangedError if the object's ETag differs.
        """

    def download(self, key: str, sink: Sink, *, size: int, etag: str | None = None, room: Room | None = None) -> None:
        """Pass all `size` bytes of an object to `sink`, in order, each once. Continue a broken stream where it broke.

        With `room`, bytes may be read into its memory, at their offsets; `sink` then gets views of it.
        Raise TruncatedError or ChangedError if the object has another size.
        """

    def connect(self, key: str, count: int) -> None:
        """Open `count` connections in the background for requests that follow soon. `key`: an existing object.

        Failures show in those requests. A storage without connections does nothing.
        """
        ...

    def put(self, key: str, *pieces: Buffer) -> None:
        """Store an object: the bytes of `pieces`, concatenated.

        When this returns, the object is complete and durable. It is not visible before.
        """

    def create(self, key: str, data: Buffer) -> None:
        """Store a new object, as `put` does.

        Raise ChangedError if it exists already. A remote storage may succeed if the object has the same bytes, because
        the response to a PUT can be lost. Of several concurrent calls with different bytes, one succeeds. On a server
        that ignores conditions of a PUT, simultaneous calls may all succeed.
        """

    def replace(self, key: str, data: Buffer, *, etag: str) -> None:
        """Replace the object that has `etag`, as `put` does.

        Raise ChangedError if the object has changed or was removed. Of several calls with the same etag, one succeeds.
        On a server that ignores conditions of a PUT, simultaneous calls may all succeed.
        """

    def list(self, prefix: str = "") -> Iterator[Entry]:
        """Yield the objects whose keys start with `prefix`, sorted by key, without unfinished ones."""

    def delete(self, key: str) -> None:
        """Remove an object durably. Do nothing if it does not exist."""

    def discard_unfinished(self, prefix: str = "", *, choose: Choose | None = None) -> None:
        """Remove unfinished objects below `prefix` whose writers have died and for which `choose` returns True.

        The argument of `choose` has the object's key, the bytes stored so far, and when the upload began. A storage
        that cannot know which writers have died (S3) removes all unfinished objects.
        """

    def path(self, key: str) -> Path | None:
        """Return the path of an object's local file; None if the storage is not a disk."""


_COMPONENT = re.compile(r"[^/\\\x00]+")


def file_of(storage: Storage, key: str) -> str:
    """Return the object's full name, for messages."""
    return f"{storage.url.rstrip('/')}/{key}"


def check_key(key: str) -> str:
    """Return `key`. Raise UsageError unless it consists of names joined by single '/', none of them '.' or '..'."""
    for component in key.split("/"):
        if component in (".", "..") or not _COMPONENT.fullmatch(component):
            raise UsageError("a key must be names joined by '/', without '.', '..' or backslashes", found=shown(key))
    return key


def find_entries(storage: Storage, keys: Collection[str]) -> dict[str, Entry]:
    """Return the entries of the objects with these `keys`, and maybe of others, by key. Missing objects are left out.

    One listing finds them all. A web server cannot list: there, each object is requested, and a missing one raises
    MissingError.
    """
    shared = os.path.commonprefix([min(keys), max(keys)])  # noqa: RUF071  # of the text, and so that of all keys
    try:
        found = list(storage.list(shared))
    except NoListingError:
        found = list(Share(REQUESTS).map(lambda key: describe(storage, key), sorted(keys)))
    return {entry.key: entry for entry in found}


def describe(storage: Storage, key: str) -> Entry:
    """Return the entry of an object, without a listing. Raise MissingError."""
    piece = storage.get(key, stop=1)
    return Entry(key, piece.total, piece.etag)


def is_visible(key: str) -> bool:
    """Return whether engines read an object in a folder of data.

    They skip hidden objects, and those whose name or folder begins with "_", except for folders of partitioned data
    such as `_year=2024`.
    """
    *folders, name = key.split("/")
    return not name.startswith((".", "_")) and not any(map(_is_hidden, folders))


def _is_hidden(folder: str) -> bool:
    return folder.startswith(".") or (folder.startswith("_") and "=" not in folder)
