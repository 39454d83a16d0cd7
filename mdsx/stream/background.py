"""A thread that makes batches ahead of `next()`.

A handover costs some 20 us between threads, more than making a small batch. So several batches are handed over
together.
"""

from __future__ import annotations

import atexit
import queue
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from itertools import repeat
from typing import Any, Generic, TypeVar

from mdsx.process import Counters, Owner, work_for
from mdsx.stream.batching import Task, in_lists
from mdsx.stream.meter import Meter
from mdsx.stream.reader import RankReader

T = TypeVar("T")

_READY_BYTES = 2**23  # batches kept ready by the thread, at about this many bytes
_READY_BATCHES = 64
_LOOK = 5.0  # seconds after which a wait checks that the thread is alive
_FAREWELL = 2.0  # seconds that threads have to finish their work when the interpreter ends


def batches_ahead(
    reader: RankReader,
    tasks: Iterable[Task],
    make: Callable[[list[Task]], Iterator[T]],
    *,
    meter: Meter,
    batch_bytes: int,
    together: int,
) -> Generator[tuple[Task, T], None, None]:
    """Yield `tasks` with what `make` returns for runs of them, made in a thread; close `reader`, which `make` uses.

    `meter` counts the work of the thread, and waiting for it. `batch_bytes`: the size of a batch; `together`: how many
    to hand over at once.
    """
    lists = partial(_lists_of_runs, reader, tasks, make, together, meter.counters)
    background, waiting = Background(lists, lists_ahead(batch_bytes, together)), meter.waiting
    try:
        while True:
            with waiting:
                batches = next(background, None)
            if batches is None:
                return
            yield from batches
    finally:
        background.close()


def lists_ahead(batch_bytes: int, together: int) -> int:
    """Return how many lists of `together` batches are kept ready."""
    return max(min(max(_READY_BYTES // batch_bytes, 2), _READY_BATCHES) // together, 1)


def _lists_of_runs(
    reader: RankReader,
    tasks: Iterable[Task],
    make: Callable[[list[Task]], Iterator[T]],
    count: int,
    counters: Counters,
) -> Iterator[list[tuple[Task, T]]]:
    """Yield `tasks` with their batches, in lists of up to `count`. It must not hold the loader, whose end stops the
    thread."""
    work_for(counters)
    try:
        for run in reader.runs(tasks):
            yield from in_lists(zip(run, make(run), strict=True), repeat(count))
    finally:
        reader.close()


class _End:
    def __init__(self, error: BaseException | None) -> None:
        self.error = error  # None: the iterator ended


class Background(Generic[T]):
    """Iterates `make()` in a thread, at most `depth` results ahead; `next()` raises its exception in its place.

    The thread blocks while the queue is full (it does not poll), and ends when this object is closed or dropped. At the
    interpreter's end it gets a moment to finish: PyTorch aborts a process that ends while a thread runs its code.
    """

    def __init__(self, make: Callable[[], Iterator[T]], depth: int) -> None:
        self._ready: queue.Queue[T | _End] = queue.Queue(max(depth, 1))
        stop = threading.Event()
        self._thread = threading.Thread(
            target=_produce, args=(make, self._ready, stop), name="mdsx-batches", daemon=True
        )
        self._end = weakref.finalize(self, _release, self._ready, stop, Owner())
        self._thread.start()
        _alive[self._thread] = self._end

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if not self._end.alive:
            raise StopIteration
        item = self._take()
        if not isinstance(item, _End):
            return item
        self.close()
        if item.error is None:
            raise StopIteration
        raise item.error

    def _take(self) -> T | _End:
        while True:
            alive = self._thread.is_alive()  # check first: what it put before it ended is there
            try:
                return self._ready.get(timeout=_LOOK if alive else 0)
            except queue.Empty:
                if not alive:
                    raise RuntimeError(
                        "the thread that makes the batches is not here: an iteration cannot be used in a forked process"
                    ) from None

    def close(self) -> None:
        """End the thread once it has finished its current work."""
        self._end()


_alive: weakref.WeakKeyDictionary[threading.Thread, weakref.finalize[..., Background[Any]]] = (
    weakref.WeakKeyDictionary()
)


@atexit.register
def _finish() -> None:
    deadline = time.monotonic() + _FAREWELL
    for thread, end in list(_alive.items()):
        end()
        if thread.is_alive():  # false in a forked child
            thread.join(max(deadline - time.monotonic(), 0))


def _produce(make: Callable[[], Iterator[T]], ready: queue.Queue[T | _End], stop: threading.Event) -> None:
    try:
        for item in make():
            if stop.is_set():
                return
            ready.put(item)
            if stop.is_set():
                return
        last = _End(None)
    except BaseException as error:  # any exception: the reader raises it
        last = _End(error)
    if not stop.is_set():
        ready.put(last)


def _release(ready: queue.Queue[T | _End], stop: threading.Event, owner: Owner) -> None:
    if not owner.here:  # a forked child lacks the thread, but may inherit its locked lock
        return
    stop.set()
    while True:  # make room for the thread's put, at most one
        try:
            ready.get_nowait()
        except queue.Empty:
            return
