"""The simulated clock: real code waits, and no time passes but the clock's."""

from __future__ import annotations

import pytest

from mdsx.base.process import PREFETCH, REQUESTS
from mdsx.simulate.clock import Barrier, Line, SimulatedCondition, SimulatedProcess, World


def test_waits_take_simulated_time_and_events_come_in_their_order() -> None:
    world, seen = World(), list[tuple[str, float]]()

    def sleeper(name: str, seconds: float) -> None:
        for _ in range(2):
            world.sleep(seconds)
            seen.append((name, world.now))

    def begin() -> None:
        world.start(lambda: sleeper("slow", 3600.0))
        world.start(lambda: sleeper("fast", 3599.0))

    world.run(begin)
    assert seen == [("fast", 3599.0), ("slow", 3600.0), ("fast", 7198.0), ("slow", 7200.0)]


def test_a_condition_wakes_its_waiters_or_times_out() -> None:
    world, seen = World(), list[tuple[bool, float]]()
    changed = SimulatedCondition(world)

    def wait(timeout: float | None) -> None:
        with changed:
            seen.append((changed.wait(timeout), world.now))

    def begin() -> None:
        world.start(lambda: wait(1.0))
        world.start(lambda: wait(None))
        world.start(lambda: wait(5.0))
        world.sleep(2.0)
        changed.notify_all()

    world.run(begin)
    assert seen == [(False, 1.0), (True, 2.0), (True, 2.0)]
    assert world.now == 2.0, "a timeout that was not needed takes no time"


def test_a_waiter_wakes_once_if_its_timeout_comes_at_the_same_time() -> None:
    world, seen = World(), list[tuple[bool, float]]()
    changed = SimulatedCondition(world)

    def wait() -> None:
        seen.append((changed.wait(2.0), world.now))
        world.sleep(5.0)
        seen.append((True, world.now))

    def begin() -> None:
        world.at(2.0, changed.notify_all)
        world.start(wait)

    world.run(begin)
    assert seen == [(True, 2.0), (True, 7.0)]


@pytest.mark.parametrize(("kind", "most"), [(PREFETCH, 8), (REQUESTS, 64)])
def test_one_user_gets_as_many_threads_as_of_the_real_crew(kind: object, most: int) -> None:
    """The real ones: tests/base/process/test_threads.py."""
    world, ended = World(), list[float]()
    share = SimulatedProcess(world).share(kind)  # type: ignore[arg-type]

    def work() -> None:
        world.sleep(1.0)
        ended.append(world.now)

    def begin() -> None:
        for _ in range(most + 1):
            share.submit(work)

    world.run(begin)
    assert ended == [1.0] * most + [2.0]


def test_a_call_begins_one_thread() -> None:
    world, free = World(), list[bool]()
    share = SimulatedProcess(world).share(PREFETCH)

    def begin() -> None:
        for _ in range(8):
            free.append(share.may_begin)
            share.submit(lambda: world.sleep(1.0))
        free.append(share.may_begin)

    world.run(begin)
    assert free == [True] * 8 + [False]


def test_the_caller_of_a_map_makes_calls_while_it_waits() -> None:
    world, made = World(), list[float]()
    share = SimulatedProcess(world).share(REQUESTS)

    def work(seconds: float) -> None:
        world.sleep(seconds)
        made.append(world.now)

    # The caller and 64 threads begin with the first 65. After 1 second, the caller has the 66th instead of waiting.
    world.run(lambda: list(share.map(work, [1.0] + [3.0] * 64 + [1.0])))
    assert made == [1.0, 2.0] + [3.0] * 64


def test_a_map_works_in_the_threads_and_in_the_caller() -> None:
    world, found = World(), list[int]()
    share = SimulatedProcess(world).share(REQUESTS)

    def double(number: int) -> int:
        world.sleep(1.0)
        return 2 * number

    world.run(lambda: found.extend(share.map(double, range(65))))
    assert found == [2 * number for number in range(65)]
    assert world.now == 1.0, "64 threads, and the caller"


def test_a_line_holds_back_its_producer() -> None:
    world, made = World(), list[float]()
    line: Line[int] = Line(world, 2)

    def produce() -> None:
        for number in range(4):
            line.put(number)
            made.append(world.now)

    def begin() -> None:
        world.start(produce)
        for number in range(4):
            world.sleep(1.0)
            assert line.get() == number

    world.run(begin)
    assert made == [0.0, 0.0, 1.0, 2.0]


def test_a_barrier_waits_for_all_that_did_not_leave() -> None:
    world, passed = World(), list[float]()
    barrier = Barrier(world, 2)

    def rank(seconds: float, steps: int) -> None:
        for _ in range(steps):
            world.sleep(seconds)
            barrier.wait()
            passed.append(world.now)
        barrier.leave()

    def begin() -> None:
        world.start(lambda: rank(1.0, 3))
        world.start(lambda: rank(5.0, 1))

    world.run(begin)
    assert passed == [5.0, 5.0, 6.0, 7.0]


def test_an_error_ends_the_simulation() -> None:
    world = World()

    def fail() -> None:
        world.sleep(1.0)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        world.run(lambda: world.start(fail))
