"""Make room in the cache: choose which shards to evict, and evict them.

The rules are pure functions. The shards that are needed last are evicted first. A process that reads a dataset in order
gives the cache a `ShardNeeds` of each dataset. For other files, the cache uses the access time, which is the time of
the next need (in the future) or of the last use (in the past). The file furthest from now, in either direction, is
probably needed last. Processes that read a dataset in order announce their needs to each other (`announced.py`): the
soonest need counts. Without announcements, a future need that another process has noted in a file counts for known
shards too. For needs that this process has noted itself, its present knowledge counts instead. A `.part` is evicted
before all others: if it can be locked, its maker is dead.

A scan of the directory takes time, so the `Evictor` reuses its result for a while. Meanwhile, shards that this process
releases become candidates at once, as they are often the ones needed last. The next scan finds those of other
processes.
"""

from __future__ import annotations

import math
import re
import time
from bisect import insort
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mdsx.base.process import Counter, count
from mdsx.storage.cache import filenames
from mdsx.storage.cache.announced import Announced, Announcements, heads_of, soonest
from mdsx.storage.cache.files import Cached, evict, look_at, set_next_use
from mdsx.storage.cache.ledger import Ledger

_RESCAN = 50.0  # reuse a scan for this many times as long as it took
_SOONER = 0.5  # a file whose distance shrank below this share since the scan is ranked again
_RETRY = 5.0  # like _RESCAN, if the scan found nothing to evict
_LET_GO = 1024  # released shards to remember; the next scan finds the others
_NOTED = 2**16  # files to remember whose needs this process has noted
_SAME = 1e-3  # seconds: file systems round times
_FURTHEST = 1e8  # seconds: the furthest time that file systems can store
_HASH = re.compile("[0-9a-f]{32}")
_NOBODY: Mapping[str, Sequence[Announced]] = MappingProxyType({})


# --- the rules


class ShardNames:
    """The shards of a dataset, by their files' names."""

    def __init__(self, raw_hashes: NDArray[np.uint8]) -> None:
        """`raw_hashes`: uint8 [shards, 16]."""
        self._hashes = raw_hashes
        heads = heads_of(raw_hashes)
        self._by_head = np.argsort(heads)
        self._sorted_heads = heads[self._by_head]

    def numbers(self, raw_hashes: Sequence[str]) -> NDArray[np.int64]:
        """Return int64 [n]: the numbers of the shards with these hashes; -1 for unknown hashes."""
        if not len(self._by_head):
            return np.full(len(raw_hashes), -1)
        hashes = _parsed(raw_hashes)
        places = np.minimum(np.searchsorted(self._sorted_heads, heads_of(hashes)), len(self._by_head) - 1)
        numbers = self._by_head[places]
        return np.where((self._hashes[numbers] == hashes).all(axis=1), numbers, -1)

    def by_head(self, chosen: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Return the numbers of the `chosen` shards (bool [shards]) and the first bytes of their raw hashes, both [n]
        and sorted by the latter. Processes announce their needs by them."""
        here = chosen[self._by_head]
        return self._by_head[here], self._sorted_heads[here]


def _parsed(raw_hashes: Sequence[str]) -> NDArray[np.uint8]:
    """Return uint8 [n, 16]; zeros for a text that is not a hash."""
    names = [name if _HASH.fullmatch(name) else "0" * 32 for name in raw_hashes]
    return np.frombuffer(bytes.fromhex("".join(names)), np.uint8).reshape(-1, 16)


class ShardNeeds(NamedTuple):
    """When a process needs each shard of a dataset next, in seconds from now; 0 means now. `epoch`: the seconds of its
    epoch; 0 if unknown."""

    names: ShardNames
    seconds: NDArray[np.float64]
    epoch: float = 0.0

    def of(self, raw_hashes: Sequence[str]) -> list[float | None]:
        """Return the seconds of each of these shards; None for shards that the dataset does not have."""
        numbers = self.names.numbers(raw_hashes)
        if not len(self.seconds):
            return [None] * len(raw_hashes)
        seconds = self.seconds[numbers].tolist()
        return [known if number >= 0 else None for number, known in zip(numbers.tolist(), seconds, strict=True)]


Needs = Mapping[str, ShardNeeds]
"""By fingerprint."""


class Candidate(NamedTuple):
    """A file that may be evicted, and, at the time of the scan, the seconds to its next need or since its last use."""

    distance: float
    file: Cached


def candidates(
    files: Iterable[Cached],
    now: float,
    needs: Needs,
    own: Callable[[Cached], bool] = lambda file: False,
    announced: Mapping[str, Sequence[Announced]] = _NOBODY,
) -> list[Candidate]:
    """Return `files`, the last to evict first. Ties are ordered by name, so that processes agree. `own(file)`: whether
    this process has noted the need in the file. `announced`: the announcements of processes, by fingerprint.

    Processes that read the same dataset are compared by epochs, as paces measured at a start differ more than jobs do.
    """
    by_dataset: dict[str, list[Cached]] = {}
    for file in files:
        by_dataset.setdefault(_fingerprint(file), []).append(file)
    found = []
    for fingerprint, members in by_dataset.items():
        names = [filenames.raw_hash(file.path) for file in members]
        known: Sequence[float | None] = [None] * len(members)
        others, epoch = [math.inf] * len(members), 0.0
        if fingerprint in needs:
            known, epoch = needs[fingerprint].of(names), needs[fingerprint].epoch
        if announced.get(fingerprint):
            others = soonest(announced[fingerprint], heads_of(_parsed(names)), epoch).tolist()
        for file, seconds, other in zip(members, known, others, strict=True):
            if other < math.inf:
                seconds = other if seconds is None else min(seconds, other)
            elif seconds is None:
                seconds = _distance(file, now)
            elif now < file.needed < now + seconds and not own(file):  # another process needs it sooner
                seconds = file.needed - now
            found.append(Candidate(seconds, file))
    found.sort()
    return found


def _distance(file: Cached, now: float) -> float:
    return math.inf if filenames.is_unfinished(file.path) else abs(now - file.needed)


def _fingerprint(file: Cached) -> str:
    return file.path.rsplit("/", 2)[-2] if "/" in file.path else ""


def may_evict(distance: float, needed_in: float) -> bool:
    """Return whether a shard that is needed in `needed_in` seconds (0: now) may replace one at this distance."""
    return needed_in <= 0 or distance > needed_in


def replaces(then: float, needed: float, now: float, *, own: bool) -> bool:
    """Return whether to change a file's date from `needed` to `then`, which is `now` or later.

    Of several future needs, the soonest stays, unless this process has noted it itself (`own`). A use now does not
    replace a future need.
    """
    if needed > now:
        return then > now and (own or then <= needed)
    return then > now or needed < now


# --- evicting


class Files(Protocol):
    """The files of a cache, and the time."""

    def scan(self) -> list[Cached]:
        """Return all shards and lengths, including unfinished ones."""

    def look_at(self, path: str) -> Cached | None:
        """Return the file's present state; None if it is missing."""

    def announced(self) -> Mapping[str, Sequence[Announced]]:
        """Return the announcements, by fingerprint."""

    def evict(self, path: str) -> bool:
        """Remove a file unless it is held. Return whether it was removed."""

    def set_next_use(self, path: str, then: float) -> None:
        """Note in a file that it is used next at the time `then`."""

    def time(self) -> float:
        """Return the time of the clock that dates files, in seconds."""

    def monotonic(self) -> float:
        """Return the seconds of a monotonic clock."""


class DiskFiles:
    """The files of a directory."""

    def __init__(self, ledger: Ledger, announcements: Announcements) -> None:
        self.scan = ledger.scan
        self.announced = announcements.scan

    def look_at(self, path: str) -> Cached | None:
        return look_at(path)

    def evict(self, path: str) -> bool:
        return evict(path)

    def set_next_use(self, path: str, then: float) -> None:
        set_next_use(path, then)

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


class Evictor:
    """Decides in one process which shards to evict. Unless noted otherwise, call its methods with the ledger's lock
    held."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._candidates: list[Candidate] = []  # evict from the end
        self._announced: Mapping[str, Sequence[Announced]] = {}
        self._known: set[str] = set()  # fingerprints of the datasets whose needs the last scan used
        self._scanned = 0.0  # when the last scan ended, monotonic
        self._took = 0.0  # seconds that it took
        self._let_go: deque[str] = deque(maxlen=_LET_GO)  # appended to without any lock
        self._noted: OrderedDict[str, float] = OrderedDict()  # the needs that this process has noted, by path

    def release(self, path: Path, needed_in: float) -> None:
        """Note that this process does not need the shard now, but in `needed_in` seconds. Needs no lock."""
        self.set_next_use(path, needed_in)
        self._let_go.append(str(path))

    def set_next_use(self, path: Path, needed_in: float) -> None:
        """Note in a file that this process needs it in `needed_in` seconds, or uses it now (0). Needs no lock."""
        now, name = self._files.time(), str(path)
        then = now + min(max(needed_in, 0.0), _FURTHEST)
        with suppress(OSError):  # only a hint: the file may be removed, or another user's
            file = self._files.look_at(name)
            if file is not None and replaces(then, file.needed, now, own=self._is_own(file)):
                self._files.set_next_use(name, then)
                self._noted[name] = then
                if len(self._noted) > _NOTED:
                    self._noted.popitem(last=False)

    def _is_own(self, file: Cached) -> bool:
        """Return whether this process has noted the file's date."""
        return abs(self._noted.get(file.path, -math.inf) - file.needed) < _SAME

    def _ranked(self, files: Iterable[Cached], needs: Needs) -> list[Candidate]:
        return candidates(files, self._files.time(), needs, self._is_own, self._announced)

    def scan(self, needs: Needs) -> int:
        """Scan all files again. Return their bytes."""
        started = self._files.monotonic()
        self._let_go.clear()
        files, self._announced = self._files.scan(), self._files.announced()
        self._candidates, self._known = self._ranked(files, needs), set(needs)
        self._scanned = self._files.monotonic()
        self._took = self._scanned - started
        return sum(file.size for file in files)

    def shrink(self, limit: int) -> int:
        """Remove unfinished files of dead processes, and evict unleased shards down to the limit. Return the bytes then
        in use."""
        total = self.scan({})
        for _, file in self._candidates:
            if filenames.is_unfinished(file.path) and self._files.evict(file.path):
                total -= file.size
        return self.make_room(total, 0, limit, 0.0, {})

    def make_room(self, total: int, size: int, limit: int, needed_in: float, needs: Needs) -> int:
        """Evict until `size` more bytes fit into `limit`, or nothing more may be evicted for a shard needed in
        `needed_in` seconds. `total`: the bytes in use before. Return the bytes in use after."""
        fresh = False
        if set(needs) != self._known:
            self._scanned = 0.0
        while total + size > limit:
            self._join(needs)
            age = 0.0 if fresh else self._files.monotonic() - self._scanned
            if age <= _RESCAN * self._took and self._candidates:
                last = self._candidates.pop()
                distance = self._distance_now(last.file, needs)
                if distance + age < _SOONER * last.distance:  # a process has announced a need since the scan
                    insort(self._candidates, Candidate(distance + age, last.file))
                    continue
                if may_evict(distance, needed_in):
                    total -= self._evict(last)
                    continue
                self._candidates.append(last)
            if fresh or (needed_in > 0 and age <= _RETRY * self._took):
                break
            total, fresh = self.scan(needs), True
        return total

    def _evict(self, candidate: Candidate) -> int:
        """Evict a candidate. Return the freed bytes."""
        file = candidate.file
        found = self._files.look_at(file.path)
        if found is None:
            return 0
        if found.needed != file.needed:  # a process has used it, or noted a need
            self._let_go.append(file.path)
            return 0
        if not self._files.evict(file.path):
            return 0
        count(Counter.EVICTIONS)
        return found.size

    def _join(self, needs: Needs) -> None:
        """Make the released shards candidates."""
        files = []
        while self._let_go:
            if (file := self._files.look_at(self._let_go.popleft())) is not None:
                files.append(file)
        for candidate in self._ranked(files, needs):
            insort(self._candidates, candidate)

    def _distance_now(self, file: Cached, needs: Needs) -> float:
        """Return a file's present distance: the run has advanced since the scan."""
        return self._ranked([file], needs)[0].distance
