"""The contract between executors and makers.

An *executor* runs *makers* ahead of their consumer, in threads or in processes. `run` takes *tasks*, cuts them into
*chunks* of successive tasks, gives each chunk to a maker, and yields each task with its result.

- Results come in the order of the tasks.
- An error arrives at its own task, whether planning the task or making its result failed, after all earlier results.
  It ends the run. To retry, begin another run at that task.
- At most `ahead` prepared results wait for the consumer.
- A run that is closed or dropped ends at once for its consumer, who never gets what the workers still make.
- A run belongs to the process that began it, not to a forked child.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import count
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

T = TypeVar("T")
Task = TypeVar("Task")
Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)

Waiting: TypeAlias = AbstractContextManager[Any]
"""Entered while the consumer waits for a result."""

UNMEASURED: Waiting = nullcontext()


class Stop:
    """Ends a run when called, from any thread: the run yields no more tasks, even to a consumer that is waiting."""

    def __init__(self) -> None:
        self.asked = False
        self._end: Callable[[], object] = int

    def calls(self, end: Callable[[], object]) -> None:
        """Register `end` to be called when the run must end; at once if it must already. It may be called twice."""
        self._end = end
        if self.asked:
            end()

    def __call__(self) -> None:
        self.asked = True
        self._end()


class Several(NamedTuple):
    """The results of successive tasks in one object, which the executor splits when it hands them out: the results are
    `cut(whole, each)` for each of `cuts`. `cut` is pickled, so it must be a module's function."""

    whole: Any
    cuts: list[Any]
    cut: Callable[[Any, Any], Any]


def results_of(made: Iterator[Any]) -> Iterator[Any]:
    """Yield the results of a maker, with each Several split."""
    for result in made:
        if type(result) is Several:
            yield from map(partial(result.cut, result.whole), result.cuts)
        else:
            yield result


class Maker(Protocol[Task, Result_co]):
    """Makes results in one worker. An executor's `begin` creates it there."""

    def __call__(self, chunk: list[Task], /) -> Iterator[Result_co]:
        """Yield the result of each task of a chunk, in order, or Several at once. An error belongs to the first task
        without a result."""
        ...

    def close(self) -> None:
        """Release the maker's resources. It is not called again."""
        ...


Begin: TypeAlias = Callable[[int], Maker[Any, Any]]
"""From a worker's number to its maker. Called in the worker, a thread or a process."""


class Executor(Protocol):
    """Runs makers ahead."""

    def run(
        self, tasks: Iterable[Task], waiting: Waiting = UNMEASURED, stop: Stop | None = None
    ) -> Generator[tuple[Task, Any], None, None]:
        """Yield each task with its result, until `stop` is called. One run at a time."""
        ...

    def start(self) -> None:
        """Start worker processes now, from this thread. Otherwise they start when the first result is requested."""
        ...

    @property
    def totals(self) -> tuple[int, ...]:
        """Return the totals of all workers so far, one for each Counter. The caller's own counters are not included."""
        ...

    def close(self) -> None:
        """End the workers that were kept for the next run."""
        ...


def chunk_lengths(workers: int, most: int) -> Iterator[int]:
    """Yield the lengths of successive chunks, which `workers` get in turn: first one task for each worker, then twice
    as many in each round, up to `most`.

    So the first result comes soon. Handing over a result takes 66 us alone, and 20 us in a chunk of 16.
    """
    return (min(1 << min(number // workers, 30), max(most, 1)) for number in count())


class Chunks(Iterator[list[T]]):
    """Cuts `tasks` into chunks of these lengths; the last one may be shorter. If planning fails, the tasks before the
    error come first.

    `length`: the most tasks that the next chunk may have.
    """

    def __init__(self, tasks: Iterable[T], lengths: Iterable[int]) -> None:
        self._tasks, self._lengths = iter(tasks), iter(lengths)
        self._error: BaseException | None = None
        self.length = next(self._lengths)

    def __next__(self) -> list[T]:
        found: list[T] = []
        if self._error is None:
            try:
                for task in self._tasks:
                    found.append(task)
                    if len(found) == self.length:
                        break
            except Exception as error:
                self._error = error
        if found:
            self.length = next(self._lengths, self.length)
            return found
        if self._error is None:
            raise StopIteration
        planning, self._error = self._error, None
        try:
            raise planning
        finally:
            del planning  # it would keep itself alive, and all frames in its traceback

    def close(self) -> None:
        """Close the tasks, if they are a generator. No thread may be in `next()`."""
        getattr(self._tasks, "close", int)()
