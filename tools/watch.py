"""Observers that look again and again in a thread; one of them is an independent witness of how full a cache is."""

from __future__ import annotations

import contextlib
import os
import threading
from abc import ABC, abstractmethod
from typing import Self


class Watch(threading.Thread, ABC):
    """Calls `look` every `interval` seconds while the context lasts. If it raises, the context ends with its error,
    since what was not seen cannot be vouched for."""

    interval: float

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._over = threading.Event()
        self._failure: Exception | None = None

    @abstractmethod
    def look(self) -> None:
        """Look once."""

    def run(self) -> None:
        try:
            self.look()
            while not self._over.wait(self.interval):
                self.look()
        except Exception as error:
            self._failure = error

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._over.set()
        self.join()
        if self._failure is not None and kind is None:
            raise self._failure


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
