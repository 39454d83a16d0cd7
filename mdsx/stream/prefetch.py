"""The threads that carry out what `machine.py` decides: they fetch shards into the caches ahead of the reader.

They never hold a lease. They never raise a storage failure: the next read of that shard raises it. If a shard failed
its check, `Shards` keeps the error for that read. The reader's next call raises any other error. All prefetchers of a
process share their threads (see mdsx/base/process/threads.py).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from mdsx.base.process import PREFETCH, THREADS, Scheduler
from mdsx.errors import MdsxError
from mdsx.order import Course, Tick, block_bytes, room_ahead
from mdsx.shards import View
from mdsx.storage.cache import ShardNeeds, Verdict
from mdsx.stream.machine import Outcome, Pace, ShardMachine
from mdsx.stream.steps import Steps

_LONGEST_WAIT = 30.0  # seconds
_TWICE = 1 / 400  # of an epoch's bytes may be read by range while their shards are fetched; headers and gaps add to it
_LOOK_AGAIN = 1.0  # seconds after which a wait checks how fast shards arrive
_LOOK_ELSEWHERE = 0.02  # seconds after which it looks for a shard that another process fetches


class Prefetcher:
    """Fetches the shards of `view` for one reader; `machine` decides which, and when. Only the reader's thread calls
    the methods."""

    def __init__(self, view: View, machine: ShardMachine, scheduler: Scheduler = THREADS) -> None:
        self._shared = _Shared(view, machine, scheduler)
        self._end = weakref.finalize(self, _close, self._shared)

    def reading(self, start: int, stop: int, shards: Iterable[int], first_reads: FirstReads | None = None) -> None:
        """Note that ticks `start` up to `stop` are being read, with `shards`.

        After a jump, it calls `first_reads(stop)`: see ShardMachine.first_reads.
        """
        shared = self._shared
        if shared.error is not None:
            raise shared.error
        machine = shared.machine
        jumps = machine.jumps(start)
        found = first_reads(stop) if jumps and first_reads is not None else None
        with shared.changed:
            machine.reading(start, stop, shards, shared.now())
            if found is not None:
                machine.first_reads(*found)
            shared.ask()

    def consumed(self, stop: int, shards: Iterable[int]) -> None:
        """Close shards after everything before `stop` was returned. `shards`: those that were open for it."""
        shared = self._shared
        with shared.changed:
            closed = shared.machine.consumed(stop, shards, shared.now())
        for shard, needed_in in closed:
            shared.view.close(shard)
            if needed_in is not None:
                shared.view.touch(shard, needed_in)
        if any(needed_in is not None for _, needed_in in closed):
            shared.announcer.announce(self.needs)
        with shared.changed:  # there may be room now
            shared.changed.notify_all()
            shared.ask()

    def ranged(self, size: float) -> None:
        """Note that the reader reads `size` bytes by range without waiting for their shards."""
        with self._shared.changed:
            self._shared.machine.ranged(size)

    def wait_for(self, shards: Sequence[int], size: float = 0.0) -> None:
        """Wait until none of `shards`, which are needed now, is in flight, here or in another process, or until that
        takes too long. `size`: bytes of them that the reader would otherwise read by range."""
        shared, deadline = self._shared, self._shared.now() + _LONGEST_WAIT
        machine = shared.machine
        with shared.changed:
            while not shared.closed:
                may_begin = shared.threads.may_begin
                here = [shard for shard in shards if machine.is_coming(shard, may_begin=may_begin)]
                elsewhere = [shard for shard in set(shards).difference(here) if shared.view.is_being_made(shard)]
                now = shared.now()
                if not here and not elsewhere:
                    return
                slow = not machine.is_worth_waiting(here, now, elsewhere=elsewhere)
                if now > deadline or (slow and machine.may_range(size)):
                    machine.ranged(size)
                    return
                shared.changed.wait(_LOOK_ELSEWHERE if elsewhere else _LOOK_AGAIN)

    def needs(self) -> Mapping[str, ShardNeeds]:
        """Return the needs by which the caches evict."""
        with self._shared.changed:
            return self._shared.needs()

    def close(self) -> None:
        """Stop fetching, and close the open shards. Downloads in flight continue."""
        self._end()
        self._shared.threads.shutdown()
        self._shared.announcer.withdraw()
        with self._shared.changed:
            shards = self._shared.machine.close()
        for shard in shards:
            self._shared.view.close(shard)


FirstReads = Callable[[int], tuple[NDArray[np.int64], NDArray[np.int64], int]]
"""start -> ticks, shards, until: when shards are first read from `start` up to `until`."""


class _Shared:
    """The state that the reader and the threads share. Call methods with the lock held."""

    def __init__(self, view: View, machine: ShardMachine, scheduler: Scheduler) -> None:
        self.view = view
        self.machine = machine
        self.now = scheduler.now
        self.threads = scheduler.share(PREFETCH)
        self.changed = scheduler.condition()
        self.asked = False  # whether a thread was requested that has not started yet
        self.closed = False
        self.error: BaseException | None = None
        self.announcer = view.announcer(machine.mine)
        self._folders = view.cache_folders

    def ask(self) -> None:
        """Request a thread to look for work; it then requests the next thread."""
        if not self.asked and not self.closed:
            self.asked = True
            self.threads.submit(_work, self)

    def needs(self) -> dict[str, ShardNeeds]:
        seconds, epoch = self.machine.seconds(), self.machine.epoch()
        return {  # with one part, the seconds are not copied
            folder: ShardNeeds(names, reduce(np.minimum, [seconds[part] for part in parts]), epoch)
            for folder, (names, parts) in self._folders.items()
        }


def _close(shared: _Shared) -> None:
    """Take no lock: the garbage collector may call this at any point. A wait looks again in time."""
    shared.closed = True


def _work(shared: _Shared) -> None:
    """Fetch one shard."""
    machine = shared.machine
    with shared.changed:
        shared.asked = False
        bring = None if shared.closed else machine.next(shared.now())
        if bring is None:
            return
        shared.ask()
        needs = shared.needs()

    def received(size: int) -> None:
        with shared.changed:
            machine.received(size)

    outcome = Outcome.DONE
    try:
        shared.announcer.announce(lambda: needs)
        if shared.view.bring(bring.shard, needed_in=bring.needed_in, needs=needs, received=received) is Verdict.NO_ROOM:
            outcome = Outcome.NO_ROOM
    except (MdsxError, OSError):
        pass  # the next read of the shard raises it
    except BaseException as error:  # not a storage failure: the reader raises it
        shared.error = error
        shared.closed = True
    with shared.changed:
        machine.ended(bring.shard, outcome, shared.now())
        shared.changed.notify_all()
        shared.ask()


def prefetcher_of(
    view: View,
    course: Course,
    steps: Steps,
    *,
    start: Tick,
    rank: int,
    processes: int,
    pace: Pace,
    scheduler: Scheduler = THREADS,
) -> Prefetcher | None:
    """Return a prefetcher for a rank that reads from `start` on; None if all shards are read in place.

    `processes`: how many processes of this node read through the same cache.
    """
    limit = view.cache_limit
    if limit is None:
        return None

    def next_needs(tick: Tick, shards: NDArray[np.int64] | None) -> NDArray[np.int64]:
        needs, end = course.next_needs(tick, shards), steps.window_end(tick)
        return np.where(needs < end, tick, needs) if end > tick else needs

    machine = ShardMachine(
        view.side_needs.next_needs(next_needs),
        view.cached_sizes,
        view.side_needs.spread(
            course.shards_of(start, steps.period, rank // steps.node, steps.world_size // steps.node)
        ),
        pace,
        samples=course.samples,
        look_ahead=_look_ahead(view, course, steps, limit, processes),
        share=limit // (2 * processes),
        twice=_TWICE * int(view.raw_sizes.sum()) / max(processes, steps.world_size),
    )
    return Prefetcher(view, machine, scheduler)


def _look_ahead(view: View, course: Course, steps: Steps, limit: int, processes: int) -> int:
    """Return how many bytes of shards a process may fetch ahead, in the room that the shards in use on the node
    leave."""
    sizes, samples = view.raw_sizes, course.samples
    lanes = max(processes // steps.node, 1) * -(-course.lanes * steps.node // steps.world_size)
    active = view.bytes_of(course.active_shards(lanes)) if samples else 0
    block = block_bytes(int(sizes.sum()), samples=samples, lanes=course.lanes, shuffle_block=course.shuffle_block)
    return max(int(room_ahead(block, int(sizes.max(initial=0)), max(limit - active, 0) // processes)), 1)
