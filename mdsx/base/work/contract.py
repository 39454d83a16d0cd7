"""What executors and makers promise each other.

An *executor* runs *makers* ahead of their consumer: in a thread, in n threads, or in n processes. `run` takes *tasks*,
cuts them into *chunks* of successive tasks, gives each chunk to a maker, and yields each task with its result.

- Results come in the order of the tasks.
- An error arrives at its own task, whether planning the task or making its result failed. All results before it come
  first, and it ends the run: a retry is another run, from that task on.
- At most `ahead` results are prepared and not handed out.
- A run that is closed, or dropped, ends at once for its consumer. What its workers still make never reaches the user.
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
    """Ends a run when it is called, in any thread: the run's consumer, which may wait, finds no more tasks."""

    def __init__(self) -> None:
        self.asked = False
        self._end: Callable[[], object] = int

    def calls(self, end: Callable[[], object]) -> None:
        """Have `end` called when the run is to end; at once, if it is already. It may be called twice."""
        self._end = end
        if self.asked:
            end()

    def __call__(self) -> None:
        self.asked = True
        self._end()


class Several(NamedTuple):
    """The results of successive tasks in one piece, which is taken apart where it is handed out: `cut(whole, each)` for
    each of `cuts`. A function of a module, as it goes to another process."""

    whole: Any
    cuts: list[Any]
    cut: Callable[[Any, Any], Any]


def results_of(made: Iterator[Any]) -> Iterator[Any]:
    """Yield what a maker made, with each Several taken apart."""
    for result in made:
        if type(result) is Several:
            yield from map(partial(result.cut, result.whole), result.cuts)
        else:
            yield result


class Maker(Protocol[Task, Result_co]):
    """Makes results in one worker. `begin`, which an executor is given, makes it there."""

    def __call__(self, chunk: list[Task], /) -> Iterator[Result_co]:
        """Yield a result for each task of a chunk, in order; or Several at once. An error belongs to the first task
        without a result."""
        ...

    def close(self) -> None:
        """Release what the maker holds. It makes nothing more."""
        ...


Begin: TypeAlias = Callable[[int], Maker[Any, Any]]
"""From a worker's number to its maker; it is called in the worker, a thread or a process."""


class Executor(Protocol):
    """Runs makers ahead."""

    def run(
        self, tasks: Iterable[Task], waiting: Waiting = UNMEASURED, stop: Stop | None = None
    ) -> Generator[tuple[Task, Any], None, None]:
        """Yield each task with its result, until `stop` is called. One run at a time."""
        ...

    def start(self) -> None:
        """Start worker processes now, in this thread; without it, the first result that is asked for starts them."""
        ...

    @property
    def totals(self) -> tuple[int, ...]:
        """Return what all workers so far have counted, a total for each Counter, beside the caller's own counters."""
        ...

    def close(self) -> None:
        """End the workers that stay for the next run."""
        ...


def chunk_lengths(workers: int, most: int) -> Iterator[int]:
    """Yield the length of each chunk, of those that `workers` get in turn: first one task for each worker, then twice
    as many each time, up to `most`.

    So the first result comes soon. Handing over a result costs 66 us, and 20 us each in chunks of 16.
    """
    return (min(1 << min(number // workers, 30), max(most, 1)) for number in count())


class Chunks(Iterator[list[T]]):
    """Cuts `tasks` into chunks of these lengths, the last one maybe shorter. Before an error come the tasks before it.

    `length` is the most that the next chunk has.
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
