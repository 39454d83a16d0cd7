"""A thread between an executor and its consumer that processes each result further."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from operator import itemgetter
from typing import Any, TypeAlias

from mdsx.base.work.contract import UNMEASURED, Executor, Stop, Task, Waiting
from mdsx.base.work.items import Items
from mdsx.base.work.threads import Threads

Through: TypeAlias = Callable[[Iterator[tuple[Any, Any]]], Generator[tuple[Any, Any], None, None]]
"""From pairs (task, result) to as many pairs with new results. A relay calls it in the consumer's thread, and iterates
and closes the returned generator in its own thread."""

_AHEAD = 2  # results: the one that the consumer uses, and the next one
_FAREWELL = 5.0  # seconds that closing a run waits for its thread


class Relay:
    """Runs an executor in a thread, and passes its results through `through`, one ahead of the consumer. Worker
    processes start from the consumer's thread."""

    def __init__(self, executor: Executor, through: Through) -> None:
        self._executor, self._through = executor, through

    def run(
        self, tasks: Iterable[Task], waiting: Waiting = UNMEASURED, stop: Stop | None = None
    ) -> Generator[tuple[Task, Any], None, None]:
        with waiting:
            self._executor.start()
        ends = Stop()
        made = self._executor.run(tasks, stop=ends)
        relayed = _closing(self._through(made), made)
        thread = Threads(Items, ahead=_AHEAD, interrupt=ends, farewell=_FAREWELL)
        run = thread.run(relayed, waiting, stop)
        del made, relayed  # the thread closes them
        try:
            yield from map(itemgetter(0), run)  # no variable keeps a result alive
        finally:
            run.close()

    @property
    def totals(self) -> tuple[int, ...]:
        return self._executor.totals

    def start(self) -> None:
        self._executor.start()

    def close(self) -> None:
        self._executor.close()


def _closing(items: Generator[Any, None, None], source: Generator[Any, None, None]) -> Generator[Any, None, None]:
    """Yield `items`. At the end, close them and their source."""
    try:
        yield from items
    finally:
        items.close()
        source.close()
