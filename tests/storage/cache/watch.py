"""A process that watches a directory's size, and checks of a cache after a fresh process has read it."""

from __future__ import annotations

import mmap
import os
import re
import signal
import struct
import time
from pathlib import Path
from types import TracebackType

import xxhash

from mdsx.storage.cache import filenames

_FORMAT = struct.Struct("QQQ")


class Watch:
    """Adds up all files below `directory`, again and again: `highest` bytes of files, `blocks` of the disk, `looks`.

    Only files that exist in two successive looks count, because they existed together at the instant between them.
    So a file is not counted together with its replacement.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)
        self._seen = mmap.mmap(-1, mmap.PAGESIZE)
        self._child = 0

    def __enter__(self) -> Watch:
        self._child = os.fork()
        if self._child == 0:
            try:
                self._watch()
            finally:
                os._exit(1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.kill(self._child, signal.SIGKILL)
        os.waitpid(self._child, 0)

    @property
    def highest(self) -> int:
        found: int = _FORMAT.unpack_from(self._seen)[0]
        return found

    @property
    def blocks(self) -> int:
        found: int = _FORMAT.unpack_from(self._seen)[1]
        return found

    @property
    def looks(self) -> int:
        found: int = _FORMAT.unpack_from(self._seen)[2]
        return found

    def _watch(self) -> None:
        before: dict[int, tuple[int, int]] = {}
        highest = blocks = looks = 0
        parent = os.getppid()
        while os.getppid() == parent:
            now = dict(_files(self._directory))
            both = [before[inode] for inode in before.keys() & now.keys()]
            highest, blocks = max(highest, sum(size for size, _ in both)), max(blocks, sum(size for _, size in both))
            before, looks = now, looks + 1
            _FORMAT.pack_into(self._seen, 0, highest, blocks, looks)
            time.sleep(0.002)


def _files(directory: str) -> list[tuple[int, tuple[int, int]]]:
    """inode -> bytes of the file, bytes of its blocks."""
    found = []
    for place, _, names in os.walk(directory):
        for name in names:
            try:
                status = os.lstat(os.path.join(place, name))
            except FileNotFoundError:
                continue
            found.append((status.st_ino, (status.st_size, 512 * status.st_blocks)))
    return found


def check(directory: Path, limit: int) -> None:
    """Assert that only whole shards remain, the tally agrees with the directory, and the limit is kept."""
    files = {path: path.stat().st_size for path in directory.rglob("*") if path.is_file()}
    shards = {
        path: size
        for path, size in files.items()
        if path.parent.parent == directory and len(path.parent.name) == 32 and filenames.url_of(path.name) is None
    }
    for path in shards:
        assert path.suffix == ".mdsx", f"leaked: {path}"
        assert xxhash.xxh3_128_hexdigest(path.read_bytes()) == path.stem, f"not whole: {path}"
    assert sum(files.values()) == sum(shards.values()) <= limit
    (tally,) = directory.glob("tally.*")
    assert re.fullmatch(rf"tally\.[^.]+\.{sum(shards.values())}", tally.name)
