"""A rank's batches, made ahead in threads or in worker processes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from copy import copy
from dataclasses import dataclass
from itertools import accumulate, pairwise
from multiprocessing.context import BaseContext
from typing import Any, NamedTuple, Protocol

from mdsx.base.arguments import check_count
from mdsx.base.process import Counter, Owner
from mdsx.base.warn import leave_warnings_to_others
from mdsx.base.work import Executor, Processes, Relay, Several, Threads, WorkerInfo, context_of
from mdsx.errors import UsageError, shown
from mdsx.loader.making import BatchMaker
from mdsx.loader.reading import Reading
from mdsx.stream import Cursor, Meter, Pace, RankReader, Steps, Task

_READY_BYTES = 2**23  # batches that a thread keeps ready, at about this many bytes
_READY_BATCHES = 64
PREFETCH = 2  # chunks that each worker prepares ahead
_ZEROS = (0,) * len(Counter)

_HINT = (
    "return tensors, arrays, numbers, str or bytes (of a memory view that zero_copy gave, bytes(view)), "
    "or use num_threads instead of num_workers"
)


class Workforce(NamedTuple):
    """What makes batches: `num_threads` threads, or `num_workers` processes.

    `seed`: from an epoch to the seed of workers that start in it; `setup`: called in each worker process before
    `worker_init_fn`. The other fields are options of PyTorch's `DataLoader`.
    """

    num_threads: int = 1
    num_workers: int = 0
    prefetch_factor: int | None = None
    persistent_workers: bool = False
    multiprocessing_context: str | BaseContext | None = None
    worker_init_fn: Callable[[int], object] | None = None
    timeout: float = 0
    seed: Callable[[int], int] = int
    setup: Callable[[WorkerInfo], object] | None = None

    def check(self) -> None:
        """Raise UsageError for options that are invalid or exclude each other."""
        for name, least in (("num_threads", 1), ("num_workers", 0), ("prefetch_factor", 1)):
            value = getattr(self, name)
            if value is not None:
                check_count(name, value, least)
        if self.num_workers and self.num_threads > 1:
            hint = "give only one of the two: each worker process makes batches in one thread"
            raise UsageError("num_threads and num_workers exclude each other", hint=hint)
        if not self.num_workers and (self.prefetch_factor is not None or self.persistent_workers):
            raise UsageError("prefetch_factor and persistent_workers need num_workers > 0")
        if isinstance(self.timeout, bool) or not isinstance(self.timeout, int | float) or not self.timeout >= 0:
            raise UsageError("timeout must be a number of at least 0", found=shown(self.timeout))
        if self.num_workers:
            context_of(self.multiprocessing_context)


class Carrier(Protocol):
    """Moves batches, such as to a device. A copy, also by pickle, has no batches in flight."""

    def carry(self, made: Iterator[tuple[Any, Any]]) -> Generator[tuple[Any, Any], None, None]:
        """Yield tasks with batches in flight, one by one. Called in the consumer's thread; the generator runs, and is
        closed, in a thread of its own."""
        ...

    def arrived(self, batch: Any) -> Any:
        """Return a batch that was in flight. Called in the consumer's thread."""
        ...


class Ahead:
    """Makes the batches of one loader ahead. A copy, also by pickle, starts its own threads or processes."""

    def __init__(self, workforce: Workforce, carrier: Carrier | None = None) -> None:
        workforce.check()
        self._workforce, self._carrier, self._pace = workforce, carrier, Pace()
        self._now: tuple[Executor | None, tuple[int, ...]] = None, _ZEROS  # with the totals of earlier executors
        self._steps: Steps | None = None
        self._owner: Owner | None = None  # the process whose executor it is

    def __getstate__(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "_now": (None, _ZEROS),
            "_steps": None,
            "_owner": None,
            "_pace": Pace(),
            "_carrier": copy(self._carrier),
        }

    @property
    def totals(self) -> tuple[int, ...]:
        """Return a total for each Counter over the worker processes."""
        executor, before = self._now
        return before if executor is None else tuple(map(sum, zip(before, executor.totals, strict=True)))

    def forget(self) -> None:
        """Start new workers for the next batches, even if the present ones are persistent."""
        if (executor := self._now[0]) is not None:
            executor.close()
            self._now = None, self.totals

    def batches(
        self, reading: Reading, steps: Steps, cursor: Cursor, meter: Meter
    ) -> Generator[tuple[Task, Any], None, None]:
        """Yield the tasks up to the epoch's end with their batches, as `arrived` takes them. `meter` counts the work of
        threads, and measures the time spent waiting."""
        executor = self._now[0] if self._owner is not None and self._owner.here else None
        if executor is None or self._steps != steps or not self._workforce.persistent_workers:
            self.forget()
            reading.warn_of_costs(steps)
            if self._workforce.num_workers:
                executor = self._processes(reading, steps, cursor)
            else:
                executor = self._threads(reading, steps, meter)
            if self._carrier is not None:
                executor = Relay(executor, self._carrier.carry)
            self._now, self._steps, self._owner = (executor, self._now[1]), steps, Owner()
        return executor.run(steps.tasks(cursor), meter.waiting)

    def arrived(self, batch: Any) -> Any:
        """Return a batch for the consumer, as the carrier delivers it."""
        return batch if self._carrier is None else self._carrier.arrived(batch)

    def _threads(self, reading: Reading, steps: Steps, meter: Meter) -> Threads:
        threads, together = self._workforce.num_threads, reading.together(steps)
        return Threads(
            _InThread(reading, steps, threads, self._pace),
            threads,
            ahead=threads * (max(batches_ready(reading.batch_bytes(steps)), together) + 2 * together),
            longest=reading.reader(steps, threads).longest_chunk,
            together=together,
            counters=meter.counters,
        )

    def _processes(self, reading: Reading, steps: Steps, cursor: Cursor) -> Processes:
        force, maker = self._workforce, reading.maker
        together = reading.together(steps, force.num_workers)
        zero_copy = reading.spec.zero_copy
        reader = reading.reader(
            steps, force.num_workers, views=maker.packing is None and (zero_copy or not maker.one_by_one)
        )
        context = context_of(force.multiprocessing_context)
        if context.get_start_method() == "fork":
            reader.prepare(reading.reached(cursor))
        return Processes(
            _InProcess(maker, reader),
            force.num_workers,
            ahead=force.num_workers * (force.prefetch_factor or PREFETCH) * together,
            longest=together,
            seed=lambda: force.seed(cursor.epoch),
            persistent=force.persistent_workers,
            context=context,
            setup=force.setup,
            init=force.worker_init_fn,
            timeout=force.timeout,
            views=zero_copy,
            hint=_HINT,
        )


def batches_ready(batch_bytes: int) -> int:
    """Return how many batches of that size a thread keeps ready."""
    return min(max(_READY_BYTES // batch_bytes, 2), _READY_BATCHES)


@dataclass(frozen=True, slots=True)
class _Maker:
    """Makes the batches of one worker."""

    maker: BatchMaker
    reader: RankReader

    def __call__(self, chunk: list[Task]) -> Iterator[Any]:
        return self.maker.assembled(self.reader, chunk)

    def close(self) -> None:
        self.reader.close()


@dataclass(frozen=True, slots=True)
class _JoinedMaker(_Maker):
    """Makes the batches of a worker process. Columns of several batches cross together."""

    def __call__(self, chunk: list[Task]) -> Iterator[Any]:
        maker, reader = self.maker, self.reader
        if maker.one_by_one or maker.packing is not None or maker.buckets is not None:
            yield from maker.assembled(reader, chunk)
            return
        try:
            batches = reader.read(chunk, joined=True)  # it ends after the batch was sent
            batch = next(batches)
        except Exception:  # one of the batches failed: yield those before it first
            yield from maker.assembled(reader, chunk)
            return
        edges = accumulate(reader.shares(chunk), initial=0)
        yield Several(maker.assemble(batch), list(pairwise(edges)), _cut)


def _cut(columns: dict[str, Any], edges: tuple[int, int]) -> dict[str, Any]:
    """Return the batch between these edges."""
    start, stop = edges
    return {
        name: _cut(values, edges) if isinstance(values, dict) else values[start:stop]
        for name, values in columns.items()
    }


@dataclass(frozen=True, slots=True)
class _InThread:
    """Begins the work of one of `threads` threads. With several threads, each has its own pace."""

    reading: Reading
    steps: Steps
    threads: int
    pace: Pace

    def __call__(self, number: int) -> _Maker:
        pace = self.pace if self.threads == 1 else Pace()
        return _Maker(self.reading.maker, self.reading.reader(self.steps, self.threads, pace=pace))


@dataclass(frozen=True, slots=True)
class _InProcess:
    """Begins the work of a process, with objects that were prepared before a fork."""

    maker: BatchMaker
    reader: RankReader

    def __call__(self, number: int) -> _Maker:
        if number > 0:
            leave_warnings_to_others()
        return _JoinedMaker(self.maker, self.reader)
