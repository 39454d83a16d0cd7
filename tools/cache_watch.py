"""An independent witness of how full a cache is."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Self

_INTERVAL = 0.005  # seconds


class CacheWatch:
    """Adds up all files in a directory every 5 ms while the context lasts.

    Files come and go during a look, so each is two: what both saw existed at the same time.
    """

    def __init__(self, directory: str) -> None:
        self.highest = 0
        self.looks = 0
        self._directory = directory
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(_INTERVAL):
            before, after = _sizes(self._directory), _sizes(self._directory)
            self.highest = max(self.highest, sum(before[file] for file in before.keys() & after.keys()))
            self.looks += 1


def _sizes(directory: str) -> dict[tuple[int, int], int]:
    """The size of each file below `directory`, by inode and change time; some may vanish meanwhile."""
    found = {}
    with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                if entry.is_dir():
                    found.update(_sizes(entry.path))
                else:
                    status = entry.stat()
                    found[status.st_ino, status.st_ctime_ns] = status.st_size
    return found
