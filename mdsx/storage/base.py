"""The seam between mdsx and where bytes lie: a few verbs on keys below one root URL.

A backend implements `Storage`; each passes the same contract tests. Keys are relative, '/'-separated names; a byte
range is half-open. Errors are MissingError, ForbiddenError, TruncatedError, ChangedError, or another TransportError,
and name the URL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mdsx.errors import UsageError, shown

if TYPE_CHECKING:
    from typing_extensions import Buffer

Sink = Callable[[bytes], object]


@dataclass(frozen=True, slots=True)
class Entry:
    """An object in a listing. `etag` changes when its content does."""

    key: str
    size: int
    etag: str


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of an object whose whole size is `total`. `etag` is "" where a server has none."""

    data: bytes
    etag: str
    total: int


class Storage(Protocol):
    """Objects below `url` (safe to print: without credentials). Can be pickled, forked, and shared by threads."""

    @property
    def url(self) -> str: ...

    def get(self, key: str, *, start: int = 0, stop: int | None = None, etag: str | None = None) -> Piece:
        """Bytes [start, stop) of an object, or what there is of them; `start` must lie within it.

        With `etag`, raises ChangedError where the object has another one.
        """

    def download(self, key: str, sink: Sink, *, size: int, etag: str | None = None) -> None:
        """All `size` bytes of an object into `sink`, in order, each once. A broken stream is continued where it broke.

        Raises TruncatedError or ChangedError where the object has another size.
        """

    def connect(self, key: str, count: int) -> None:
        """Open `count` connections in the background, for requests that will be made at once; `key` is an object.

        What goes wrong shows in those requests. Nothing where there are no connections.
        """
        ...

    def put(self, key: str, data: Buffer) -> None:
        """Store an object: it is there whole and durable when this returns, and not at all before."""

    def list(self, prefix: str = "") -> Iterator[Entry]:
        """The objects whose key starts with `prefix`, in the order of their keys, without unfinished ones."""

    def delete(self, key: str) -> None:
        """Remove an object for good; one that is not there is fine."""

    def discard_unfinished(self, prefix: str = "") -> None:
        """Remove what writers that died left of objects below `prefix` which they did not finish."""

    def path(self, key: str) -> Path | None:
        """The local file of an object, where there can be one."""


_COMPONENT = re.compile(r"[^/\\\x00]+")


def check_key(key: str) -> str:
    """`key`, which must be components joined by single '/', none of them '.' or '..': nothing leads outside."""
    for component in key.split("/"):
        if component in (".", "..") or not _COMPONENT.fullmatch(component):
            raise UsageError("a key is names joined by '/', without '.', '..', backslashes", found=shown(key))
    return key
