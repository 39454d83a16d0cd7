"""A crew of threads that all users of a process share. It is fair, makes progress, and ends with its last user."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest

from mdsx.base.process.threads import Bounds, Kind, Share
from tests.forks import forked
from tests.waiting import wait_until

PATIENCE = 30.0
_NUMBERS = itertools.count()


class Gate:
    """Calls that wait until the gate opens."""

    def __init__(self) -> None:
        self.inside = 0
        self.entered = threading.Condition()
        self.open = threading.Event()

    def enter(self, number: int = 0) -> int:
        with self.entered:
            self.inside += 1
            self.entered.notify_all()
        assert self.open.wait(PATIENCE)
        return number

    def wait_for(self, count: int) -> None:
        with self.entered:
            assert self.entered.wait_for(lambda: self.inside >= count, PATIENCE)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open.set()


@pytest.fixture
def small() -> Kind:
    """Up to 6 threads, or 3; no other test has used them."""
    return Kind(f"test-{next(_NUMBERS)}", alone=Bounds(6, 2), together=Bounds(3, 2))


def threads_of(kind: Kind) -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == kind.name}


def test_results_come_in_order_and_errors_in_place(small: Kind) -> None:
    share = Share(small)
    assert list(share.map(lambda number: number * 2, range(100))) == list(range(0, 200, 2))
    results = share.map(lambda number: 1 // number, [1, 2, 0, 4])
    assert [next(results), next(results)] == [1, 0]
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert share.submit(os.getpid).result() == os.getpid()


def test_a_stalled_user_leaves_threads_to_others(small: Kind, gate: Gate) -> None:
    stalled, other = Share(small), Share(small)
    for number in range(50):
        stalled.submit(gate.enter, number)
    gate.wait_for(4)  # 4 of 6 threads: twice as many as remain
    both = threading.Barrier(2)
    first, second = (other.submit(both.wait, PATIENCE) for _ in range(2))
    assert sorted([first.result(PATIENCE), second.result(PATIENCE)]) == [0, 1], "two at the same time"
    assert gate.inside == 4


def test_waiting_users_take_turns(gate: Gate) -> None:
    single = Kind("test-single", alone=Bounds(1, 1), together=Bounds(1, 1))
    shares = [Share(single) for _ in range(3)]
    shares[0].submit(gate.enter)
    gate.wait_for(1)
    done: list[int] = []
    futures = [share.submit(done.append, number) for number, share in enumerate(shares) for _ in range(4)]
    gate.open.set()
    for future in futures:
        future.result(PATIENCE)
    assert done == [0, 1, 2] * 4


def test_map_progresses_without_any_free_thread(small: Kind, gate: Gate) -> None:
    for share in (stalled := [Share(small) for _ in range(8)]):
        for _ in range(9):
            share.submit(gate.enter)
    wait_until(lambda: len(threads_of(small)) == 6 and gate.inside == 6)
    assert list(Share(small).map(str, range(20))) == list(map(str, range(20)))
    assert stalled


def test_nested_maps_never_deadlock(small: Kind) -> None:
    share = Share(small)

    def tree(depth: int) -> int:
        return 1 if depth == 0 else sum(share.map(tree, [depth - 1] * 4))

    assert tree(5) == 4**5


def test_many_iterations_share_fewer_threads(small: Kind, gate: Gate) -> None:
    shares = [Share(small, iteration=True) for _ in range(3)]
    for share in shares:
        for _ in range(9):
            share.submit(gate.enter)
    gate.wait_for(3)
    assert len(threads_of(small)) == 3
    del shares[1:], share
    shares[0].submit(gate.enter)
    wait_until(lambda: len(threads_of(small)) > 3)


@pytest.mark.parametrize("drop", [False, True])
def test_threads_end_with_their_last_user(small: Kind, drop: bool) -> None:
    share, other = Share(small), Share(small)
    list(share.map(time.sleep, [0.01] * 6))
    other.shutdown()
    assert threads_of(small)
    if drop:
        del share
        gc.collect()
    else:
        share.shutdown()
        with pytest.raises(RuntimeError, match="ended"):
            share.submit(os.getpid)
    for thread in threads_of(small):
        thread.join(PATIENCE)
    assert not threads_of(small)


def test_idle_threads_end_though_they_have_users(small: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdsx.base.process.threads._LINGER", 0.01)
    share = Share(small)
    for _ in range(5):
        assert list(share.map(abs, [-1, -2])) == [1, 2]
        wait_until(lambda: not threads_of(small))


def test_no_call_is_lost_while_threads_come_and_end(small: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdsx.base.process.threads._LINGER", 1e-5)
    shares = [Share(small) for _ in range(4)]
    futures = []
    for number in range(3000):
        futures.append(shares[number % 4].submit(abs, -number))
        if number % 7 == 0:
            futures[-1].result(PATIENCE)
    assert [future.result(PATIENCE) for future in futures] == list(range(3000))


def test_an_interrupt_while_a_thread_starts_reaches_the_caller(
    small: Kind, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python looks for signals while it waits for a thread that it has started."""
    start, starts = threading.Thread.start, itertools.count(1)

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        if threading.current_thread() is threading.main_thread() and next(starts) == 2:
            signal.raise_signal(signal.SIGINT)

    share = Share(small)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            share.map(gate.enter, range(6))
    gate.open.set()
    assert list(share.map(gate.enter, range(20))) == list(range(20))
    share.shutdown()
    wait_until(lambda: not threads_of(small))
    assert_raises_if_no_thread_can_start(small, monkeypatch)


def assert_raises_if_no_thread_can_start(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", failing)
        with pytest.raises(RuntimeError, match="can't start"):
            Share(kind).submit(int)


def test_without_another_thread_those_that_run_make_all_calls(
    small: Kind, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_raises_if_no_thread_can_start(small, monkeypatch)
    share, start, can_start = Share(small), threading.Thread.start, iter([True])

    def limited(thread: threading.Thread) -> None:
        if not next(can_start, False):
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", limited)
        calls = [share.submit(gate.enter, number) for number in range(6)]
        gate.open.set()
        assert [call.result(PATIENCE) for call in calls] == list(range(6))


def test_a_forked_child_makes_its_own(small: Kind, gate: Gate) -> None:
    share = Share(small)
    for _ in range(9):
        share.submit(gate.enter)
    gate.wait_for(1)
    assert forked(partial(_in_child, share, small)) == [2, 4, 6]


def _in_child(share: Share, small: Kind) -> list[int]:
    with pytest.raises(RuntimeError, match="forked"):
        share.submit(os.getpid)
    share.shutdown()
    return list(Share(small).map(lambda number: 2 * number, [1, 2, 3]))


STALLED = """
import threading, time
from mdsx.base.process.threads import REQUESTS, Share
from tests.waiting import wait_until
share, begun = Share(REQUESTS), threading.Barrier(9)
for _ in range(8):
    share.submit(lambda: (begun.wait(), time.sleep(3600)))
begun.wait()
"""


def test_stalled_calls_do_not_hold_up_the_exit() -> None:
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", STALLED], timeout=PATIENCE, check=True)
    assert time.monotonic() - began < PATIENCE
