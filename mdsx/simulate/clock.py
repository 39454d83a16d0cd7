"""A simulated clock, by which the loader's real code runs, so that waits take no time.

Each simulated thread is a greenlet. One runs at a time, until it waits; then the clock jumps to the next time at which
one of them has something to do. Nothing depends on real time, so a simulation gives the same result every time.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from types import TracebackType
from typing import Any, Generic, TypeVar

from mdsx.base.process import Kind, ThreadShare
from mdsx.simulate.threads import getcurrent, greenlet

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")


class Event:
    """A call at a time of the clock. A cancelled call is not made."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], object] | None) -> None:
        self.call = call

    def cancel(self) -> None:
        self.call = None


class World:
    """The clock, and what happens next. `now`: seconds since the beginning."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Event]] = []
        self._numbers = count()  # events at the same time happen in the order in which they were requested
        self._ended = False

    def at(self, time: float, call: Callable[[], object]) -> Event:
        """Schedule a call at that time."""
        event = Event(call)
        heapq.heappush(self._events, (max(time, self.now), next(self._numbers), event))
        return event

    def start(self, work: Callable[[], object]) -> None:
        """Begin a simulated thread now."""
        thread = greenlet(work, parent=self._hub)
        self.at(self.now, thread.switch)

    def sleep(self, seconds: float) -> None:
        """Make the calling simulated thread wait."""
        self.at(self.now + seconds, getcurrent().switch)
        self.pause()

    def pause(self) -> None:
        """Make the calling simulated thread wait until an event continues it."""
        self._hub.switch()

    def run(self, work: Callable[[], object]) -> None:
        """Start `work`, and let time pass until `end` is called or nothing is left to do."""
        self._hub = getcurrent()
        self.start(work)
        while self._events and not self._ended:
            time, _, event = heapq.heappop(self._events)
            if event.call is not None:
                self.now = time
                event.call()

    def end(self) -> None:
        """End the simulation, and drop everything in flight."""
        self._ended = True


class SimulatedCondition:
    """A `Condition`. Simulated threads switch only where they wait, so it needs no lock."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._waiting: list[tuple[Event, Event | None]] = []  # of each waiting thread, also its timeout

    def __enter__(self) -> bool:
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        return

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for `notify_all`, or for `timeout` seconds; return whether it was notified."""
        thread = getcurrent()
        woken = Event(thread.switch)
        late = None if timeout is None else self._world.at(self._world.now + timeout, thread.switch)
        self._waiting.append((woken, late))
        self._world.pause()
        notified = woken.call is None
        if not notified:
            self._waiting.remove((woken, late))
        return notified

    def notify_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for woken, late in waiting:
            assert woken.call is not None
            self._world.at(self._world.now, woken.call)
            woken.cancel()
            if late is not None:
                late.cancel()


class SimulatedProcess:
    """A process: a `Scheduler` with the limits of the real thread pools."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._crews: dict[Kind, _Threads] = {}

    def now(self) -> float:
        return self._world.now

    def condition(self) -> SimulatedCondition:
        return SimulatedCondition(self._world)

    def share(self, kind: Kind, *, iteration: bool = False) -> ThreadShare:
        return _Share(self._world, self._crews.setdefault(kind, _Threads(kind)))


class _Threads:
    """How many threads of a kind work."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.busy = 0


class _Share:
    """One user's share of a process's threads."""

    def __init__(self, world: World, threads: _Threads) -> None:
        self._world, self._threads = world, threads
        self._busy = 0
        self._calls: deque[Callable[[], object]] = deque()

    @property
    def may_begin(self) -> bool:
        threads, greed = self._threads.kind.alone
        return self._busy < greed * (threads - self._threads.busy)

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> object:
        self._calls.append(lambda: fn(*args))
        self._begin()
        return None

    def map(self, fn: Callable[[A], B], items: Iterable[A], /) -> Iterator[B]:
        """As `Share.map`: threads begin now, and the caller makes the calls that no thread has begun."""
        calls = [_Call(self._world, fn, item) for item in items]
        for call in calls[1:]:
            self.submit(call.make)
        return _results(calls)

    def shutdown(self, wait: bool = True) -> None:
        self._calls.clear()

    def _begin(self) -> None:
        while self._calls and self.may_begin:
            self._busy += 1
            self._threads.busy += 1
            self._world.start(partial(self._work, self._calls.popleft()))

    def _work(self, call: Callable[[], object]) -> None:
        call()
        self._busy -= 1
        self._threads.busy -= 1
        self._begin()


class _Call(Generic[A, B]):
    """A call that one thread makes."""

    def __init__(self, world: World, fn: Callable[[A], B], item: A) -> None:
        self._fn, self._item = fn, item
        self._begun = False
        self._done: list[B] = []
        self._changed = SimulatedCondition(world)

    def make(self) -> None:
        if not self._begun:
            self._begun = True
            self._done.append(self._fn(self._item))
            self._changed.notify_all()

    @property
    def done(self) -> bool:
        return bool(self._done)

    def result(self) -> B:
        while not self._done:
            self._changed.wait()
        return self._done[0]


def _results(calls: list[_Call[A, B]]) -> Iterator[B]:
    for place, call in enumerate(calls):
        call.make()
        for later in calls[place + 1 :]:  # make one of these instead of waiting for the thread that makes this one
            if call.done:
                break
            later.make()
        yield call.result()


class Line(Generic[T]):
    """A queue between simulated threads, of at most `size` items."""

    def __init__(self, world: World, size: int) -> None:
        self._items: deque[T] = deque()
        self._size = size
        self._changed = SimulatedCondition(world)

    def put(self, item: T) -> None:
        while len(self._items) >= self._size:
            self._changed.wait()
        self._items.append(item)
        self._changed.notify_all()

    def get(self) -> T:
        while not self._items:
            self._changed.wait()
        item = self._items.popleft()
        self._changed.notify_all()
        return item


class Barrier:
    """A barrier at which `parties` simulated threads wait for each other."""

    def __init__(self, world: World, parties: int) -> None:
        self._changed = SimulatedCondition(world)
        self._parties, self._here, self._round = parties, 0, 0

    def wait(self) -> None:
        self._here += 1
        if self._here == self._parties:
            self._here, self._round = 0, self._round + 1
            self._changed.notify_all()
            return
        entered = self._round
        while entered == self._round:
            self._changed.wait()

    def leave(self) -> None:
        """Stop waiting for one of the threads."""
        self._parties -= 1
        if self._here and self._here == self._parties:
            self._here, self._round = 0, self._round + 1
            self._changed.notify_all()
