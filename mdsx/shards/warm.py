"""Fill the cache with a dataset's shards before a run needs them.

Each shard is fetched and checked as in a run. Warming evicts only shards that were not used for a day and that no job
needs within a day, and never the dataset's own.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass

import numpy as np

from mdsx.base.process import PREFETCH, Share
from mdsx.base.progress import Progress
from mdsx.base.sizes import format_size
from mdsx.errors import UsageError
from mdsx.shards.shards import Shards
from mdsx.storage.cache import ShardNames, ShardNeeds, Verdict

_STALE = 86400.0  # seconds
_IN_FLIGHT = 16  # shards that wait for a thread or have one
_LOOK = 0.2  # seconds between two reports
_PATIENCE = 60.0  # seconds without progress while other processes fetch the rest


@dataclass(slots=True)
class Warmed:
    """A dataset's shards in the cache after warming it.

    Attributes:
        shards: The number of different shards to cache.
        size: Their bytes, uncompressed.
        cached: The number of shards in the cache now.
        fetched: The number of shards fetched by this call.
        fetched_size: The bytes of these.
        busy: The number of shards that another process is still fetching.
    """

    shards: int
    size: int
    cached: int = 0
    fetched: int = 0
    fetched_size: int = 0
    busy: int = 0


def warm(shards: Shards, *, first: int | None = None, watch: Callable[[Progress], object]) -> Warmed:
    """Fetch all shards, or the `first` ones, that the cache lacks. Call `watch` several times a second.

    The result does not count shards for which the cache has no room as cached.

    Raises:
        UsageError: The shards exceed the cache's limit, or are read in place.
        MdsxError: A shard is damaged or missing, or storage failed.
    """
    cache, index = shards.cache, shards.index
    if cache is None:
        message = "the dataset is local and uncompressed, so it is read in place, without the cache"
        raise UsageError(message, file=shards.storage.url)
    _, firsts = np.unique(index.raw_hashes[:first], axis=0, return_index=True)
    numbers: list[int] = np.sort(firsts).tolist()  # equal shards are one file
    sizes = index.raw_sizes[numbers]
    done = Warmed(len(numbers), int(sizes.sum()))
    if done.size > (limit := cache.limit):
        fit = int(np.searchsorted(np.cumsum(sizes), limit, side="right"))
        raise UsageError(
            f"{done.shards:,} shards take {format_size(done.size)}, uncompressed, but the cache's limit is "
            f"{format_size(limit)}: the first {fit:,} fit",
            file=shards.storage.url,
            hint=f"give --cache-limit {done.size} (the smallest limit of all running jobs counts), or --shards {fit}",
        )
    needs = {shards.cache_folder: ShardNeeds(ShardNames(index.raw_hashes), np.zeros(len(index.counts)))}
    received: dict[int, int] = {}

    def bring(shard: int) -> Verdict | None:
        def count(size: int) -> None:
            received[shard] = received.get(shard, 0) + size

        verdict = shards.bring(shard, needed_in=_STALE, needs=needs, received=count)
        if verdict is None:
            shards.touch(shard, needed_in=0.0)  # as if it was just used
        return verdict

    def report() -> None:
        under_way = sum(min(received.get(shard, 0), int(index.raw_sizes[shard])) for shard in running.values())
        watch(Progress(samples, size + under_way, done.size, done.cached, done.shards))

    waiting, busy = deque(numbers), []
    running: dict[Future[Verdict | None], int] = {}
    samples = size = 0
    room, deadline, pool = True, time.monotonic() + _PATIENCE, Share(PREFETCH)
    try:
        while running or (waiting and room):
            while waiting and room and len(running) < _IN_FLIGHT:
                shard = waiting.popleft()
                running[pool.submit(bring, shard)] = shard
            ended, _ = wait(running, timeout=_LOOK, return_when=FIRST_COMPLETED)
            for future in ended:
                shard = running.pop(future)
                verdict = future.result()
                room = room and verdict is not Verdict.NO_ROOM
                if verdict is Verdict.BUSY:
                    busy.append(shard)
                if verdict is None:
                    deadline = time.monotonic() + _PATIENCE
                    samples, size = samples + int(index.counts[shard]), size + int(index.raw_sizes[shard])
                    done.cached += 1
                    if shard in received:
                        done.fetched, done.fetched_size = (
                            done.fetched + 1,
                            done.fetched_size + int(index.raw_sizes[shard]),
                        )
            report()
            if busy and room and not running and not waiting and time.monotonic() < deadline:
                time.sleep(_LOOK)
                waiting.extend(busy)
                busy.clear()
    finally:
        for future in running:
            future.cancel()
        pool.shutdown()
    done.busy = len(busy)
    return done
