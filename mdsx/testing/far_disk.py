"""A folder that is read like remote storage, through the cache and by range. It records the requests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar, NamedTuple

from mdsx.storage import Piece, Room, Storage, StorageOptions, open_storage
from mdsx.storage.base import Sink
from mdsx.storage.local import LocalStorage

SCHEME = "far://"


class Request(NamedTuple):
    key: str
    start: int
    stop: int | None


class FarDisk(LocalStorage):
    requests: ClassVar[list[Request]] = []

    def path(self, key: str) -> Path | None:
        return None

    def get(self, key: str, *, start: int = 0, stop: int | None = None, etag: str | None = None) -> Piece:
        self.requests.append(Request(key, start, stop))
        return super().get(key, start=start, stop=stop, etag=etag)

    def download(self, key: str, sink: Sink, *, size: int, etag: str | None = None, room: Room | None = None) -> None:
        self.requests.append(Request(key, 0, size))
        super().download(key, sink, size=size, etag=etag, room=room)


def open_far(url: str | os.PathLike[str], options: StorageOptions | None = None, *, write: bool = False) -> Storage:
    text = os.fspath(url)
    if text.startswith(SCHEME):
        return FarDisk(text.removeprefix(SCHEME))
    return open_storage(url, options, write=write)
