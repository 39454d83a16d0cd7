"""Observers that look again and again in a thread; one of them is an independent witness of how full a cache is."""

from __future__ import annotations

import contextlib
import os
import threading
from abc import ABC, abstractmethod
from typing import Self


class Watch(ABC):
    """Calls `look` every `interval` seconds while the context lasts."""

    interval: float

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @abstractmethod
    def look(self) -> None:
        """Look once."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        self.look()
        while not self._stop.wait(self.interval):
            self.look()


class CacheWatch(Watch):
    """Adds up all files in a directory every 5 ms.

    Files come and go during a look, so each is two: what both saw existed at the same time.
    """

    interval = 0.005

    def __init__(self, directory: str) -> None:
        super().__init__()
        self.highest = self.looks = 0
        self._directory = directory

    def look(self) -> None:
        before, after = self._sizes(), self._sizes()
        self.highest = max(self.highest, sum(before[file] for file in before.keys() & after.keys()))
        self.looks += 1

    def _sizes(self) -> dict[tuple[int, int], int]:
        """The size of each file, by inode and change time; some may vanish meanwhile."""
        found = {}
        for directory, _, names in os.walk(self._directory):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    status = os.stat(os.path.join(directory, name))
                    found[status.st_ino, status.st_ctime_ns] = status.st_size
        return found
