"""Makes room in the cache, by what this process knows of all files in it. Used with the ledger's lock held.

A scan of the directory costs time, so its result is used for a while. Meanwhile shards that this process let go join
the candidates at once, as they are often the ones needed last; what others let go is seen by the next scan.
"""

from __future__ import annotations

import time
import weakref
from bisect import insort_right
from collections import deque
from operator import attrgetter
from pathlib import Path

from mdsx.storage.cache import filenames
from mdsx.storage.cache.ledger import Ledger
from mdsx.storage.cache.policy import Candidate, Foresight, candidates, distance, may_evict
from mdsx.storage.cache.shard_files import evict, look_at

_RESCAN = 50.0  # times as long as it takes, a scan stays true: which shards are needed last
_RETRY = 5.0  # as many times, that none of them may go
_LET_GO = 1024  # shards remembered until room is needed; the next scan finds the others


class Evictor:
    """Who leaves the cache for whom, in one process."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._candidates: list[Candidate] = []  # the last is the first to go
        self._scanned = 0.0  # when the last scan was over, monotonic
        self._took = 0.0  # seconds that it took
        self._let_go: deque[str] = deque(maxlen=_LET_GO)  # appended to without any lock
        self._foresights: weakref.WeakValueDictionary[str, Foresight] = weakref.WeakValueDictionary()

    def foresee(self, fingerprint: str, foresight: Foresight) -> None:
        """Judge a dataset's shards by `foresight`, as long as somebody else keeps it."""
        self._foresights[fingerprint] = foresight
        self._scanned = 0.0

    def let_go(self, path: Path) -> None:
        """This process does not need the shard for now. The only method that needs no lock."""
        self._let_go.append(str(path))

    def scan(self) -> int:
        """Look at all files anew; returns their bytes."""
        started = time.monotonic()
        self._let_go.clear()
        files = self._ledger.scan()
        self._candidates = candidates(files, time.time(), dict(self._foresights))
        self._scanned = time.monotonic()
        self._took = self._scanned - started
        return sum(file.size for file in files)

    def shrink(self, limit: int) -> int:
        """Remove what the dead began, and evict what nobody holds as far as needed for the limit; returns the bytes
        then in use."""
        total = self.scan()
        for _, file, _ in self._candidates:
            if filenames.is_unfinished(file.path) and evict(file.path):
                total -= file.size
        return self.make(total, 0, limit, 0.0)

    def make(self, total: int, size: int, limit: int, needed_in: float) -> int:
        """Evict until `size` more bytes fit into `limit`, or nothing is left that may go for a shard needed in so many
        seconds; from `total` bytes in use, returns those then in use."""
        fresh = False
        while total + size > limit:
            self._join()
            age = 0.0 if fresh else time.monotonic() - self._scanned
            if age <= _RESCAN * self._took and self._candidates and self._may_go(self._candidates[-1], needed_in):
                total -= self._evict(self._candidates.pop())
            elif fresh or (needed_in > 0 and age <= _RETRY * self._took):
                break
            else:
                total, fresh = self.scan(), True
        return total

    def _may_go(self, candidate: Candidate, needed_in: float) -> bool:
        """As things stand now: the run has gone on since."""
        return may_evict(distance(candidate, time.time(), self._foresights), needed_in)

    def _evict(self, candidate: Candidate) -> int:
        """The bytes that were freed."""
        _, file, position = candidate
        found = look_at(file.path)
        if found is None:
            return 0
        if position is None and found.needed != file.needed:  # somebody used it
            self._let_go.append(file.path)
            return 0
        return found.size if evict(file.path) else 0

    def _join(self) -> None:
        """The shards that were let go become candidates."""
        files = []
        while self._let_go:
            if (file := look_at(self._let_go.popleft())) is not None:
                files.append(file)
        for candidate in candidates(files, time.time(), self._foresights):
            insort_right(self._candidates, candidate, key=attrgetter("distance"))
