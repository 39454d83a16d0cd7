"""Iterate an iterable in a thread, ahead of its consumer."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator

from mdsx.base.process import Counters
from mdsx.base.work.contract import T
from mdsx.base.work.threads import Threads


class Items:
    """A maker whose results are the tasks."""

    def __init__(self, number: int) -> None:
        pass

    def __call__(self, chunk: list[T]) -> Iterator[T]:
        return iter(chunk)

    def close(self) -> None:
        pass


def iterate_ahead(items: Iterable[T], ahead: int, counters: Counters | None = None) -> Generator[T, None, None]:
    """Yield `items`, which a thread iterates up to `ahead` items ahead. `counters`: count the thread's work."""
    run = Threads(Items, ahead=ahead, counters=counters).run(items)
    try:
        for item, _ in run:
            yield item
    finally:
        run.close()
