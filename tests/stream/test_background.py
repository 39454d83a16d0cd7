"""The thread that prepares results: it keeps their order, raises errors in place, and ends with its reader."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mdsx.stream.background import Background


def test_results_come_in_order_and_end() -> None:
    assert list(Background(lambda: iter(range(100)), depth=3)) == list(range(100))


def test_an_error_comes_in_its_place() -> None:
    def make() -> Iterator[int]:
        yield 1
        raise KeyError("here")

    results = Background(make, depth=5)
    assert next(results) == 1
    with pytest.raises(KeyError, match="here"):
        next(results)
    with pytest.raises(StopIteration):
        next(results)


def endless(made: list[int], ended: threading.Event) -> Iterator[int]:
    try:
        while True:
            made.append(len(made))
            yield made[-1]
    finally:
        ended.set()


@pytest.mark.parametrize("way", ["closed", "dropped"])
def test_the_thread_is_bounded_and_ends_with_its_reader(way: str) -> None:
    made: list[int] = []
    ended = threading.Event()
    before = set(threading.enumerate())
    results = Background(lambda: endless(made, ended), depth=2)
    (thread,) = set(threading.enumerate()) - before
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    if way == "closed":
        results.close()
    del results
    gc.collect()
    assert ended.wait(10)
    thread.join(10)
    assert not thread.is_alive()
    assert len(made) <= 3 + 2 + 1  # handed out, ready, in hand


def test_reading_in_a_forked_process_raises() -> None:
    made: list[int] = []

    def make() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            yield number

    results = Background(make, depth=1)
    assert next(results) == 0
    while len(made) < 3:  # handed out, ready, in hand
        time.sleep(0.01)
    time.sleep(0.1)  # the thread waits for room, and holds no lock
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # a wait without end would outlive this test
        try:
            for _ in range(3):
                next(results)
            os._exit(1)
        except RuntimeError as error:
            os._exit(0 if "forked" in str(error) else 2)
    assert os.waitpid(child, 0)[1] == 0
    assert list(results) == list(range(1, 100))


LEAVES_AT_ONCE = """
import sys, time
from pathlib import Path

from mdsx.stream.background import Background


def make():
    yield 1
    time.sleep(0.2)  # it is at the second one
    Path(sys.argv[1]).touch()
    yield 2


results = Background(make, 2)
next(results)
"""


def test_the_thread_finishes_its_call_at_interpreter_exit(tmp_path: Path) -> None:
    """PyTorch aborts a process that ends while a thread is in its code."""
    command = [sys.executable, "-c", LEAVES_AT_ONCE, str(tmp_path / "made")]
    assert subprocess.run(command, timeout=60, check=False).returncode == 0
    assert (tmp_path / "made").exists()
