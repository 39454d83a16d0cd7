"""The machine for prefetch, eviction and closing, tested in a simulation, call by call, and as a state machine."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mdsx.order import DatasetCourse, Order, Tick
from mdsx.stream.machine import Outcome, Pace, ShardMachine
from tests.stream.simulation import Simulation

SHARDS, SAMPLES, SIZE = 40, 20, 1000
BLOCK = 8 * SAMPLES


def course(shards: int = SHARDS) -> DatasetCourse:
    return DatasetCourse(Order([SAMPLES] * shards, seed=1, lanes=4, shuffle_block=BLOCK))


def simulation(part: float, *, bandwidth: float = 1e9, shards: int = SHARDS) -> Simulation:
    sizes = np.full(shards, SIZE)
    limit = int(part * sizes.sum())
    look_ahead = max(min(limit // 4, 64 * SIZE), 10 * SIZE)
    return Simulation(course(shards), sizes, limit, bandwidth, run=40, seconds=1.0, look_ahead=look_ahead)


# --- in the simulation


@pytest.mark.parametrize(("part", "least"), [(0.5, 0.5), (0.75, 0.25), (0.9, 0.1)])
def test_a_small_cache_is_nearly_optimal(part: float, least: float) -> None:
    shards, epochs = 200, 3
    run = simulation(part, shards=shards)
    n = run.course.samples
    run.read(0, n)
    before = run.downloads
    run.read(n, (1 + epochs) * n)
    assert run.downloads - before <= (least + 0.03) * shards * epochs
    assert run.late <= 0.02 * (1 + epochs) * n / run.run


def test_a_whole_cache_downloads_each_shard_once() -> None:
    run = simulation(1.0)
    run.read(0, 3 * run.course.samples)
    assert run.downloads == SHARDS


@pytest.mark.parametrize(("spare", "late"), [(2.0, 0.05), (1.1, 0.25)])
def test_shards_arrive_before_they_are_needed(spare: float, late: float) -> None:
    """If the network is `spare` times as fast as the reader needs, few runs wait after the first ones."""
    run = simulation(1.0, shards=200)
    n = run.course.samples
    run.bandwidth = spare * 200 * SIZE / (n / run.run * run.seconds)
    run.read(0, n)
    assert run.late <= late * n / run.run
    assert run.now < 1.1 * n / run.run * run.seconds


def test_a_network_that_is_too_slow_is_never_idle() -> None:
    run = simulation(1.0, shards=200)
    run.bandwidth = SIZE
    run.read(0, run.course.samples)
    run.idle()
    assert run.now <= 200 * 1.02 + 2 * run.seconds


def test_all_shards_are_closed_at_the_end() -> None:
    run = simulation(0.5)
    n = run.course.samples
    run.read(0, n - BLOCK // 2)
    assert run.cache.leased
    for shard in run.machine.close():
        run.cache.leased.discard(shard)
    assert not run.cache.leased
    assert not run.machine.open


# --- one by one


def machine(look_ahead: int = 3 * SIZE, share: int = 10**9) -> ShardMachine:
    """Shard k is drawn on in positions 20 k up to 20 k + 20."""
    order = DatasetCourse(Order([SAMPLES] * SHARDS, shuffle=False))
    sizes, mine = np.full(SHARDS, SIZE), np.ones(SHARDS, np.bool_)
    return ShardMachine(
        order.next_needs, sizes, mine, Pace(), samples=order.samples, look_ahead=look_ahead, share=share
    )


def brought(found: ShardMachine, now: float = 0.0) -> list[int]:
    """Return the shards that it downloads, until there is nothing to do."""
    shards = []
    while (bring := found.next(now)) is not None:
        shards.append(bring.shard)
        assert bring.needed_in > 0, "a need of now could evict anything"
    return shards


def test_after_a_jump_shards_come_in_reading_order() -> None:
    found = course()
    machine_ = ShardMachine(
        found.next_needs,
        np.full(SHARDS, SIZE),
        np.ones(SHARDS, np.bool_),
        Pace(),
        samples=found.samples,
        look_ahead=10**9,
        share=10**9,
    )
    machine_.reading(0, 10, [7, 3], 0.0)
    active = np.flatnonzero(found.next_needs(Tick(0)) == 0)
    read = active[::-1].copy()
    machine_.first_reads(np.arange(len(read)) * 5, read, BLOCK)
    order = brought(machine_)
    assert order[:2] == [3, 7]
    assert [shard for shard in order[2:] if shard in active] == [shard for shard in read if shard not in (3, 7)]


def test_a_shard_is_closed_with_its_next_need() -> None:
    found = machine()
    found.reading(0, 20, [0], 0.0)
    assert found.consumed(10, [0], 1.0) == []
    found.reading(10, 20, [0], 1.0)
    ((shard, needed_in),) = found.consumed(20, [0], 2.0)
    assert shard == 0
    assert needed_in == pytest.approx((SHARDS * SAMPLES - 20) / 10)
    assert not found.open


def test_the_least_recently_used_are_closed_beyond_the_share() -> None:
    order = course()
    sizes, mine = np.full(SHARDS, SIZE), np.ones(SHARDS, np.bool_)
    found = ShardMachine(order.next_needs, sizes, mine, Pace(), samples=order.samples, look_ahead=SIZE, share=2 * SIZE)
    active = np.flatnonzero(order.next_needs(Tick(5)) == 5).tolist()
    assert len(active) > 4
    found.reading(0, 5, active[:3], 0.0)
    assert found.consumed(4, active[:3], 1.0) == []
    found.reading(4, 5, active[3:5], 1.0)
    closed = found.consumed(5, active[3:5], 2.0)
    assert [shard for shard, _ in closed] == active[:3]
    assert {needed_in for _, needed_in in closed} == {None}


def test_shards_read_in_place_are_never_downloaded_or_closed() -> None:
    order = course()
    sizes = np.where(np.arange(SHARDS) % 2, SIZE, 0)
    found = ShardMachine(
        order.next_needs, sizes, np.ones(SHARDS, np.bool_), Pace(), samples=order.samples, look_ahead=10**9, share=1
    )
    found.reading(0, 5, range(SHARDS), 0.0)
    assert sorted(brought(found)) == list(range(1, SHARDS, 2))
    closed = found.consumed(order.samples, range(0, SHARDS, 2), 1.0)
    assert closed == []


def test_a_shard_of_another_rank_is_not_prefetched() -> None:
    order = DatasetCourse(Order([SAMPLES] * SHARDS, shuffle=False))
    mine = np.arange(SHARDS) < 3
    found = ShardMachine(
        order.next_needs, np.full(SHARDS, SIZE), mine, Pace(), samples=order.samples, look_ahead=10**9, share=10**9
    )
    found.reading(0, 5, [0, 9], 0.0)
    assert brought(found) == [0, 9, 1, 2]


def test_little_is_read_by_range_while_shards_come() -> None:
    """All bytes that readers do not wait for are read twice. So each epoch has a limit for them."""
    order = DatasetCourse(Order([SAMPLES] * SHARDS, shuffle=False))
    sizes, mine, epoch = np.full(SHARDS, SIZE), np.ones(SHARDS, np.bool_), order.samples
    found = ShardMachine(
        order.next_needs, sizes, mine, Pace(), samples=epoch, look_ahead=SIZE, share=10**9, twice=100.0
    )
    found.reading(0, 20, [0], 0.0)
    found.ranged(60.0)
    assert found.may_range(40.0)
    assert not found.may_range(41.0)
    found.reading(epoch - 20, epoch, [0], 1.0)
    assert not found.may_range(41.0)
    found.reading(epoch, epoch + 20, [0], 2.0)
    found.ranged(60.0)
    found.reading(epoch + 20, epoch + 40, [1], 3.0)
    assert found.may_range(40.0)
    assert not found.may_range(41.0)


def test_the_first_batch_counts_as_read_by_range() -> None:
    """It never waits: the machine learns of it before it learns which positions are read."""
    order = DatasetCourse(Order([SAMPLES] * SHARDS, shuffle=False))
    sizes, mine, epoch = np.full(SHARDS, SIZE), np.ones(SHARDS, np.bool_), order.samples
    for start in (0, 20, epoch, epoch + 20):
        found = ShardMachine(
            order.next_needs, sizes, mine, Pace(), samples=epoch, look_ahead=SIZE, share=10**9, twice=100.0
        )
        found.ranged(60.0)
        found.reading(start, start + 20, [0], 0.0)
        assert found.may_range(40.0)
        assert not found.may_range(41.0)


def test_the_pace_is_that_of_the_last_epoch() -> None:
    pace = Pace()
    pace.reached(0, 0.0, 1000)
    assert 500 / pace.rate(1000) < 86400  # not known yet
    for position in range(10, 3001, 10):
        pace.reached(position, position / 100 - (0.09 if position % 100 else 0), 1000)
    assert 500 / pace.rate(1000) == pytest.approx(5, rel=0.02)
    for position in range(3010, 6001, 10):  # ten times slower
        pace.reached(position, 30 + (position - 3000) / 10, 1000)
    assert 500 / pace.rate(1000) == pytest.approx(50, rel=0.02)
    pace.reached(100, 331.0, 1000)  # a state was loaded: the pace is kept until there is a new one
    assert 500 / pace.rate(1000) == pytest.approx(50, rel=0.02)
    pace.reached(200, 332.0, 1000)
    assert 500 / pace.rate(1000) == pytest.approx(5, rel=0.02)


def test_the_order_of_needs_is_independent_of_the_pace() -> None:
    orders = []
    for now in (1e-9, 10.0, 9999.0):
        found = machine()
        found.reading(0, 5, [], 0.0)
        found.consumed(5, [], now)
        orders.append(np.argsort(found.seconds(), kind="stable").tolist())
    assert orders == [orders[0]] * 3


# --- as a state machine


class MachineStates(RuleBasedStateMachine):
    """Compare a reader, threads and a cache that take any allowed step with a model."""

    LIMIT = 12 * SIZE

    def __init__(self) -> None:
        super().__init__()
        self.course = course()
        self.machine = ShardMachine(
            self.course.next_needs,
            np.full(SHARDS, SIZE),
            np.ones(SHARDS, np.bool_),
            Pace(),
            samples=self.course.samples,
            look_ahead=4 * SIZE,
            share=self.LIMIT // 2,
        )
        self.now = 0.0
        self.position = 0
        self.reading: tuple[int, list[int]] | None = None  # stop, shards
        self.under_way: set[int] = set()
        self.here: set[int] = set()
        self.leased: set[int] = set()
        self.tried: dict[int, int] = {}  # shard -> its next need when it was brought
        self.across: dict[int, int] = {}  # tried or under way at a jump: need; it may be tried again, or not
        self.furthest = 0  # since the last jump

    def shards(self, start: int, stop: int) -> list[int]:
        return np.unique(self.course.locate(np.arange(start, stop))[0]).tolist()  # type: ignore[no-any-return]

    @precondition(lambda self: self.reading is None)
    @rule(length=st.sampled_from([1, 8, 40, 200]))
    def read(self, length: int) -> None:
        stop = self.position + length
        if self.machine.jumps(self.position):
            self.tried, self.across = {}, self._needs(self.under_way)
            self.furthest = 0
        wanted = self.shards(self.position, stop)
        self.machine.reading(self.position, stop, wanted, self.now)
        self.reading = stop, wanted

    @precondition(lambda self: self.reading is not None)
    @rule(more=st.floats(0, 10))
    def consume(self, more: float) -> None:
        assert self.reading is not None
        self.now += more
        self.position, wanted = self.reading
        self.reading = None
        used = [shard for shard in wanted if shard in self.here]
        self.leased.update(used)
        closed = self.machine.consumed(self.position, used, self.now)
        for shard, needed_in in closed:
            assert shard in self.leased
            self.leased.discard(shard)
            assert shard not in used or needed_in is not None, "closed while it is being read"
        exact = self.course.next_needs(Tick(self.position))
        for tried in (self.tried, self.across):
            for shard, need in list(tried.items()):
                if exact[shard] > max(need, self.position) and shard not in self.under_way:
                    del tried[shard]  # its use is over
        if self.position >= self.furthest:
            self.furthest = self.position
            assert (self.machine.needs <= exact).all(), "a need is never expected too late"

    @precondition(lambda self: self.reading is None)
    @rule(position=st.integers(0, 3 * SHARDS * SAMPLES))
    def jump(self, position: int) -> None:
        """Load a state, or set an epoch."""
        if self.machine.jumps(position):
            self.position = position
        elif position > self.position:  # the machine learns of uses that were passed over with the next positions
            self.position = position
            self.across |= self._needs({*self.tried, *self.under_way})
            self.tried.clear()

    def _needs(self, shards: set[int]) -> dict[int, int]:
        exact = self.course.next_needs(Tick(self.position))
        return {shard: int(exact[shard]) for shard in shards}

    @rule()
    def begin(self) -> None:
        bring = self.machine.next(self.now)
        if bring is None:
            return
        assert bring.shard not in self.under_way, "fetched twice at once"
        assert bring.needed_in > 0
        assert bring.shard not in self.tried, "tried twice for one use"
        self.tried[bring.shard] = int(self.machine.needs[bring.shard])
        self.under_way.add(bring.shard)

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), outcome=st.sampled_from(["here", "failed", "no room"]))
    def end(self, data: st.DataObject, outcome: str) -> None:
        shard = data.draw(st.sampled_from(sorted(self.under_way)))
        self.under_way.discard(shard)
        self.now += 0.1
        exact = self.course.next_needs(Tick(self.position))
        reached = self.position if self.reading is None else self.reading[0]
        if exact[shard] > max(self.tried.get(shard, 0), reached):
            self.tried.pop(shard, None)  # its use was over before it came
        if outcome == "here":
            if len(self.here) * SIZE >= self.LIMIT:
                seconds = self.machine.seconds()
                last = max(self.here - self.leased, key=lambda here: float(seconds[here]), default=None)
                if last is None:
                    outcome = "no room"
                else:
                    self.here.discard(last)
            if outcome == "here":
                self.here.add(shard)
                self.machine.received(SIZE)
        self.machine.ended(shard, Outcome.NO_ROOM if outcome == "no room" else Outcome.DONE, self.now)
        if outcome == "no room":
            self.tried.pop(shard, None)
            assert self.machine.next(self.now) is None, "it keeps trying without room"

    @invariant()
    def the_model_holds(self) -> None:
        assert set(self.machine.under_way) == self.under_way
        assert set(self.machine.open) == self.leased
        assert len(self.here) * SIZE <= self.LIMIT

    @invariant()
    def nothing_that_is_needed_is_forgotten(self) -> None:
        """A shard that is being read is in the cache, was tried for this use, or comes next."""
        if self.reading is not None:
            for shard in self.reading[1]:
                coming = self.machine.is_coming(shard, may_begin=True)
                tried = shard in self.tried or shard in self.across
                assert coming or tried or self.machine.blocked or shard in self.here

    def teardown(self) -> None:
        for shard in self.machine.close():
            self.leased.discard(shard)
        assert not self.leased, "everything is closed at the end"


TestMachineStates = MachineStates.TestCase
TestMachineStates.settings = settings(max_examples=15, stateful_step_count=30, deadline=None)
