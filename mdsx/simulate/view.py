"""A view whose shards are only sizes. The reader and the prefetcher run on it, and bytes cross a simulated link."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.base.process import REQUESTS, ThreadShare
from mdsx.format import Schema
from mdsx.shards import Announcer, Columns, Selection, SideNeeds, View
from mdsx.simulate.clock import SimulatedProcess
from mdsx.simulate.link import Connections, Link, pieces
from mdsx.simulate.node import NodeAnnouncer, ProcessCache
from mdsx.simulate.stored import Stored
from mdsx.storage.cache import Needs, ShardNames, Verdict, filenames

_FOLDER = "0" * 32


class _Numbered(ShardNames):
    """Shards whose hashes begin with their numbers."""

    def __init__(self) -> None:
        return

    def numbers(self, raw_hashes: Sequence[str]) -> NDArray[np.int64]:
        return np.array([int(name[:16], 16) if len(name) == 32 else -1 for name in raw_hashes], np.int64)

    def by_head(self, chosen: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        shards = np.flatnonzero(chosen)
        heads = shards.astype(">u8").view(np.uint64)
        order = np.argsort(heads)
        return shards[order], heads[order]


class Fetched:
    """What a node fetched from storage.

    `whole`: shards, in order; `alone`: samples read by range; `once`: bytes of all shards with anything fetched, each
    counted once.
    """

    def __init__(self) -> None:
        self.whole: list[int] = []
        self.alone = self.once = 0
        self._known: set[int] = set()

    def note(self, shard: int, size: int) -> None:
        """Note that something is fetched of a shard of that size."""
        if shard not in self._known:
            self._known.add(shard)
            self.once += size


class SimulatedView(View):
    """The shards of `stored` in one process of a node. Methods do what those of `View` do, without data."""

    def __init__(
        self,
        stored: Stored,
        process: SimulatedProcess,
        cache: ProcessCache,
        link: Link,
        connections: Connections,
        fetched: Fetched,
    ) -> None:
        self.excerpts = ()
        self.parts = ()
        self.component_column = None
        self.schema = Schema.from_columns({"sample": "bytes"})
        self.counts = self.shard_counts = stored.counts
        self.raw_sizes = stored.cached
        self.firsts = np.array([0, len(stored.counts)])
        self.side_needs = SideNeeds(len(stored.counts), [], np.zeros(len(stored.counts), np.bool_))
        self._zipped = False
        self._table = stored
        self._sample_bytes = stored.sample_bytes
        self._cache, self._link, self._connections = cache, link, connections
        self._pool: ThreadShare = process.share(REQUESTS)
        self._fetched = fetched
        self._opened: set[int] = set()
        self._read: set[int] = set()  # shards that had samples read by range
        vars(self)["mean_sizes"] = stored.cached / np.maximum(stored.counts, 1)
        vars(self)["cached_sizes"] = stored.cached

    @property
    def sample_bytes(self) -> int:
        return self._sample_bytes

    @property
    def cache_limit(self) -> int | None:
        return self._cache.limit if bool(self._table.cached.any()) else None

    @property
    def cache_folders(self) -> dict[str, tuple[ShardNames, list[slice]]]:
        return {_FOLDER: (_Numbered(), [slice(None)])}

    def announcer(self, mine: NDArray[np.bool_]) -> Announcer:
        return NodeAnnouncer(self._cache.node, _FOLDER, *_Numbered().by_head(mine))

    def bytes_of(self, shards: int) -> int:
        return int(shards * self.raw_sizes.mean()) if len(self.raw_sizes) else 0

    def cached(self, shard: int) -> bool:
        return bool(self._table.cached[shard])

    def stored(self, shards: NDArray[np.int64], samples: NDArray[np.int64]) -> NDArray[np.int64]:
        return samples

    def file(self, shard: int) -> str:
        return f"shard {shard}"

    # --- whole shards

    def is_open(self, shard: int) -> bool:
        return shard in self._opened

    def open(self, shard: int, *, whole: bool) -> bool:
        if shard in self._opened:
            return True
        if self.cached(shard) and not self._cache.open(_path(shard)):
            return False
        self._opened.add(shard)
        return True

    def fetch(self, shard: int, *, needs: Needs) -> Verdict | None:
        verdict = None if self.open(shard, whole=True) else self._fetch(shard, 0.0, needs, None)
        if verdict is None:
            self.open(shard, whole=True)
        return verdict

    def bring(self, shard: int, *, needed_in: float, needs: Needs, received: Callable[[int], None]) -> Verdict | None:
        if not self.cached(shard):
            return None
        if self._cache.holds(_path(shard)):
            self._cache.set_next_use(_path(shard), 0.0)  # it is opened, and then dated
            self._cache.set_next_use(_path(shard), needed_in)
            return None
        return self._fetch(shard, needed_in, needs, received)

    def is_being_made(self, shard: int) -> bool:
        return self._cache.is_being_made(_path(shard))

    def close(self, shard: int) -> None:
        self._opened.discard(shard)
        self._read.discard(shard)
        if self.cached(shard):
            self._cache.release(_path(shard))

    def touch(self, shard: int, needed_in: float) -> None:
        self._cache.touch(_path(shard), needed_in)

    def _fetch(
        self, shard: int, needed_in: float, needs: Needs, received: Callable[[int], None] | None
    ) -> Verdict | None:
        verdict = self._cache.admit(_path(shard), int(self._table.cached[shard]), needed_in, needs)
        if verdict is None:
            self._download(shard, received)
            self._cache.publish(_path(shard), needed_in)
        return verdict

    def _download(self, shard: int, received: Callable[[int], None] | None = None) -> None:
        self._fetched.whole.append(shard)
        self._fetched.note(shard, int(self._table.sent[shard]))
        self._link.ask(self._connections)
        for size in pieces(int(self._table.sent[shard])):
            self._link.transfer(size)
            if received is not None:
                received(size)
        self._connections.give()

    # --- samples

    def select(self, shard: int, samples: NDArray[np.int64]) -> Selection:
        if shard not in self._opened and not self._cache.holds(_path(shard)):
            self._select_stored(shard, samples)
        found: Any = None  # nothing reads it but `gather`
        return found  # type: ignore[no-any-return]

    def _select_stored(self, shard: int, samples: NDArray[np.int64]) -> None:
        """As `Shards.select_stored`."""
        if not self._table.row_bytes[shard]:  # it can only be read whole
            if self.fetch(shard, needs={}) is not None:
                self._download(shard)
            return
        self._fetched.alone += len(samples)
        self._fetched.note(shard, int(self._table.sent[shard]))
        first = shard not in self._read
        self._read.add(shard)
        for sizes in self._table.rounds(shard, samples, first=first):
            list(self._pool.map(lambda size: self._link.request(size, self._connections), sizes))

    def gather(
        self,
        found: Sequence[tuple[int, Selection]],
        places: NDArray[np.int64],
        sizes: Sequence[int],
        *,
        views: bool = False,
        join: bool = False,
        stored: bool = False,
        seeds: NDArray[np.uint64] | None = None,
    ) -> Iterator[Columns]:
        for _ in sizes:
            yield {}


def _path(shard: int) -> str:
    """Return the path of the shard's file in the cache."""
    return f"/{_FOLDER}/{filenames.shard(f'{shard:016x}{0:016x}')}"
