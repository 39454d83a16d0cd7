"""A dataset in memory: a test can change each byte quickly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mdsx.errors import ChangedError, MissingError
from mdsx.storage import Entry, Piece, Room
from mdsx.storage.base import Sink


class MemoryStorage:
    """The part of `Storage` that reading a dataset needs."""

    url = "memory"

    def __init__(self, root: Path) -> None:
        self.files = {path.name: path.read_bytes() for path in root.iterdir()}

    def path(self, key: str) -> None:
        return None

    def get(self, key: str, *, start: int = 0, stop: int | None = None, etag: str | None = None) -> Piece:
        data = self._data(key)
        return Piece(data[start:stop], "", len(data))

    def download(self, key: str, sink: Sink, *, size: int, etag: str | None = None, room: Room | None = None) -> None:
        if len(self._data(key)) != size:
            raise ChangedError("another size", file=key)
        sink(self._data(key))

    def list(self, prefix: str = "") -> Iterator[Entry]:
        for key in sorted(self.files):
            if key.startswith(prefix):
                yield Entry(key, len(self.files[key]), "")

    def _data(self, key: str) -> bytes:
        if key not in self.files:
            raise MissingError("not found", file=key)
        return self.files[key]
