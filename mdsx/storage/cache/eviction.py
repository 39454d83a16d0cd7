"""Makes room in the cache, by the needs that the caller knows. Use it with the ledger's lock held.

A scan of the directory costs time, so its result is kept for a while. Meanwhile shards that this process releases join
the candidates at once, as they are often the ones needed last; the next scan sees those of other processes.
"""

from __future__ import annotations

import time
from bisect import insort_right
from collections import deque
from operator import attrgetter
from pathlib import Path

from mdsx.storage.cache import filenames
from mdsx.storage.cache.ledger import Ledger
from mdsx.storage.cache.policy import Candidate, Needs, candidates, may_evict
from mdsx.storage.cache.shard_files import evict, look_at

_RESCAN = 50.0  # a scan is used for this many times as long as it took
_RETRY = 5.0  # the same, if it found nothing to evict
_LET_GO = 1024  # released shards to remember; the next scan finds the others


class Evictor:
    """Decides in one process which shards to evict for which."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._candidates: list[Candidate] = []  # evict from the end
        self._known: set[str] = set()  # fingerprints of the datasets whose needs the last scan had
        self._scanned = 0.0  # when the last scan ended, monotonic
        self._took = 0.0  # seconds that it took
        self._let_go: deque[str] = deque(maxlen=_LET_GO)  # appended to without any lock

    def let_go(self, path: Path) -> None:
        """Note that this process does not need the shard for now. Only this method needs no lock."""
        self._let_go.append(str(path))

    def scan(self, needs: Needs) -> int:
        """Scan all files again; return their bytes."""
        started = time.monotonic()
        self._let_go.clear()
        files = self._ledger.scan()
        self._candidates, self._known = candidates(files, time.time(), needs), set(needs)
        self._scanned = time.monotonic()
        self._took = self._scanned - started
        return sum(file.size for file in files)

    def shrink(self, limit: int) -> int:
        """Remove what dead processes began, and evict unleased shards until the limit holds; return the bytes then in
        use."""
        total = self.scan({})
        for _, file, _ in self._candidates:
            if filenames.is_unfinished(file.path) and evict(file.path):
                total -= file.size
        return self.make_room(total, 0, limit, 0.0, {})

    def make_room(self, total: int, size: int, limit: int, needed_in: float, needs: Needs) -> int:
        """Evict until `size` more bytes fit into `limit`, or nothing may be evicted for a shard needed in `needed_in`
        seconds. `total` bytes are in use; return those then in use."""
        fresh = False
        if set(needs) != self._known:
            self._scanned = 0.0
        while total + size > limit:
            self._join(needs)
            age = 0.0 if fresh else time.monotonic() - self._scanned
            if age <= _RESCAN * self._took and self._candidates and _may_go(self._candidates[-1], needed_in, needs):
                total -= self._evict(self._candidates.pop())
            elif fresh or (needed_in > 0 and age <= _RETRY * self._took):
                break
            else:
                total, fresh = self.scan(needs), True
        return total

    def _evict(self, candidate: Candidate) -> int:
        """Return the freed bytes."""
        _, file, known = candidate
        found = look_at(file.path)
        if found is None:
            return 0
        if not known and found.needed != file.needed:  # a process used it
            self._let_go.append(file.path)
            return 0
        return found.size if evict(file.path) else 0

    def _join(self, needs: Needs) -> None:
        """Make the released shards candidates."""
        files = []
        while self._let_go:
            if (file := look_at(self._let_go.popleft())) is not None:
                files.append(file)
        for candidate in candidates(files, time.time(), needs):
            insort_right(self._candidates, candidate, key=attrgetter("distance"))


def _may_go(candidate: Candidate, needed_in: float, needs: Needs) -> bool:
    """Return whether the candidate may be evicted now: the run has advanced since the scan."""
    ((distance, _, _),) = candidates([candidate.file], time.time(), needs)
    return may_evict(distance, needed_in)
