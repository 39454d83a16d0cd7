"""A storage: objects in a database of SQLite, `sqlite:///path/objects.db/prefix`."""

from __future__ import annotations

import re
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any

from mdsx import ChangedError, MissingError, TransportError, TruncatedError, UsageError
from mdsx.storage import Entry, Piece, check_key

_URL = re.compile(r"sqlite://(?P<path>/[^?#]*?\.db)(?:/(?P<prefix>.*))?")
_TABLE = "CREATE TABLE IF NOT EXISTS objects (key TEXT PRIMARY KEY, etag TEXT, stored REAL, data BLOB)"
_AT_ONCE = 2**20


class SqliteStorage:
    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        if (match := _URL.fullmatch(url.rstrip("/"))) is None or options:
            raise UsageError("expected sqlite:///path/NAME.db/prefix, and no options", file=url)
        self.url, self._path, self._prefix = url.rstrip("/"), match["path"], f"{match['prefix'] or ''}/".lstrip("/")

    def _run(self, command: str, *values: object) -> tuple[list[Any], int]:
        """Return the rows of a command, and how many it changed. Each has a connection of its own."""
        try:
            with closing(sqlite3.connect(self._path, timeout=60)) as database, database:
                database.execute(_TABLE)
                cursor = database.execute(command, values)
                return cursor.fetchall(), cursor.rowcount
        except sqlite3.OperationalError as error:
            raise TransportError(f"SQLite failed: {error}", file=self.url) from error

    def _key(self, key: str) -> str:
        return self._prefix + check_key(key)

    def get(self, key: str, *, start: int = 0, stop: int | None = None, etag: str | None = None) -> Piece:
        length = 2**31 - 1 if stop is None else max(stop - start, 0)
        command = "SELECT etag, length(data), substr(data, ?, ?) FROM objects WHERE key = ?"
        rows, _ = self._run(command, start + 1, length, self._key(key))
        if not rows:
            raise MissingError("there is no such object", file=f"{self.url}/{key}")
        ((found, total, data),) = rows
        if etag not in (None, found):
            raise ChangedError("the object was replaced", file=f"{self.url}/{key}")
        if start > 0 and start >= total:
            raise TruncatedError("the object ends before", file=f"{self.url}/{key}", found=total, expected=start + 1)
        return Piece(data or b"", found, total)

    def download(
        self, key: str, sink: Callable[[bytes], object], *, size: int, etag: str | None = None, room: Any = None
    ) -> None:
        first = self.get(key, stop=_AT_ONCE, etag=etag)
        if first.total != size:
            wrong = TruncatedError if first.total < size else ChangedError
            raise wrong("the object has another size", file=f"{self.url}/{key}", found=first.total, expected=size)
        sink(first.data)
        for start in range(_AT_ONCE, size, _AT_ONCE):
            sink(self.get(key, start=start, stop=start + _AT_ONCE, etag=first.etag).data)

    def put(self, key: str, *pieces: Any) -> None:
        self._run("REPLACE INTO objects VALUES (?, ?, ?, ?)", self._key(key), *_fresh(b"".join(pieces)))

    def create(self, key: str, data: Any) -> None:
        command = "INSERT OR IGNORE INTO objects VALUES (?, ?, ?, ?)"
        self._changed(key, self._run(command, self._key(key), *_fresh(data)))

    def replace(self, key: str, data: Any, *, etag: str) -> None:
        command = "UPDATE objects SET etag = ?, stored = ?, data = ? WHERE key = ? AND etag = ?"
        self._changed(key, self._run(command, *_fresh(data), self._key(key), etag))

    def _changed(self, key: str, result: tuple[list[Any], int]) -> None:
        if result[1] == 0:
            raise ChangedError("another writer was faster", file=f"{self.url}/{key}")

    def list(self, prefix: str = "") -> Iterator[Entry]:
        command = "SELECT key, length(data), etag, stored FROM objects WHERE substr(key, 1, ?) = ? ORDER BY key"
        begin = self._prefix + prefix
        for key, size, etag, stored in self._run(command, len(begin), begin)[0]:
            yield Entry(key[len(self._prefix) :], size, etag, stored)

    def delete(self, key: str) -> None:
        self._run("DELETE FROM objects WHERE key = ?", self._key(key))

    def path(self, key: str) -> None:
        self._key(key)  # raises UsageError; there is no path, because its objects are no files

    def connect(self, key: str, count: int) -> None:
        """There are no connections to open."""

    def discard_unfinished(self, prefix: str = "", *, choose: Any = None) -> None:
        """An object is stored in one transaction: there are no unfinished ones."""


def _fresh(data: Any) -> tuple[str, float, bytes]:
    return secrets.token_hex(8), time.time(), bytes(data)
