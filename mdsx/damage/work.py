"""Shards read several at once, and told in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from mdsx.errors import MdsxError

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a verification or a repair is. `size` counts the bytes of stored objects. `damages`: those of the last
    shard, of a verification."""

    shards: int
    samples: int
    size: int
    of_shards: int
    of_size: int
    damages: tuple[MdsxError, ...] = ()


def in_order(work: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Iterator[Result]:
    """The result for each item; as many items as threads are at work, counting one that waits to be taken."""
    running: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="mdsx-damage") as pool:
        try:
            for item in items:
                if len(running) == threads:
                    yield running.popleft().result()
                running.append(pool.submit(work, item))
            while running:
                yield running.popleft().result()
        finally:
            for future in running:
                future.cancel()
