"""The least that a cache must fetch, by Belady's MIN."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence


def least_misses(steps: Sequence[Sequence[int]], capacity: int) -> list[int]:
    """Return how many shards have to be fetched at each step, which uses some shards, if the one that is needed last
    leaves whenever there is no room."""
    uses: dict[int, list[int]] = {}  # shard -> its steps, the next one last
    for number in range(len(steps) - 1, -1, -1):
        for shard in steps[number]:
            uses.setdefault(shard, []).append(number)
    kept, last, found = set[int](), list[tuple[float, int]](), []  # last: (-next use, shard), some of them outdated
    for needed in steps:
        missing = [shard for shard in needed if shard not in kept]
        found.append(len(missing))
        kept.update(missing)
        for shard in needed:
            uses[shard].pop()
        while len(kept) > max(capacity, len(needed)):
            use, shard = heapq.heappop(last)
            if shard in kept and shard not in needed and use == _next(uses[shard]):
                kept.remove(shard)
        for shard in needed:
            heapq.heappush(last, (_next(uses[shard]), shard))
    return found


def _next(uses: list[int]) -> float:
    return -uses[-1] if uses else -math.inf
