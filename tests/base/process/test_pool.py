"""Tasks in worker processes: results in order, reports, the first error, and a worker's death."""

from __future__ import annotations

import multiprocessing
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mdsx import MdsxError, UsageError
from mdsx.base.process.pool import Report, _noticing_death, map_in_processes


def square(task: int, report: Report) -> tuple[int, int]:
    if task < 0:
        raise UsageError("negative", found=task)
    if task > 100:
        os._exit(task)
    report(task, "begun")
    return task * task, os.getpid()


@pytest.mark.parametrize("processes", [1, 2])
def test_results_are_in_order_and_reports_arrive(processes: int) -> None:
    reports: list[Any] = []
    found = map_in_processes(square, [3, 1, 2], processes, lambda *values: reports.append(values), name="test")
    assert [result for result, _ in found] == [9, 1, 4]
    assert sorted(reports) == [(1, "begun"), (2, "begun"), (3, "begun")]
    assert (os.getpid() in {process for _, process in found}) == (processes == 1)


def test_no_task_needs_no_process() -> None:
    assert map_in_processes(square, [], 4, print, name="test") == []


def test_a_tasks_error_is_raised_in_the_parent() -> None:
    with pytest.raises(UsageError, match="negative") as raised:
        map_in_processes(square, [-1, -1], 2, lambda *values: None, name="test")
    assert raised.value.found == -1


def test_workers_end_in_a_program_that_ignores_sigterm() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        found = map_in_processes(square, [3, 1], 2, lambda *values: None, name="test")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert [result for result, _ in found] == [9, 1]


def test_a_dead_worker_raises_an_error() -> None:
    with pytest.raises(MdsxError, match="a worker died with exit code 101"):
        map_in_processes(square, [101, 101], 2, lambda *values: None, name="test")


def between_messages(pipe: Any) -> None:
    os._exit(3)


def in_the_middle_of_one(pipe: Any) -> None:
    os.write(pipe.fileno(), struct.pack("!i", 100) + b"some of it")
    os._exit(3)


def before_it_read_ours(pipe: Any) -> None:
    while not pipe.poll():
        time.sleep(0.001)
    os._exit(3)


@pytest.mark.parametrize("die", [between_messages, in_the_middle_of_one, before_it_read_ours])
def test_a_death_is_noticed_whatever_the_state_of_the_pipe(die: Callable[[Any], None]) -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    worker = context.Process(target=die, args=(theirs,))
    worker.start()
    theirs.close()
    with pytest.raises(MdsxError, match="a worker died with exit code 3; see its error"), _noticing_death(worker):  # noqa: PT012
        ours.send("a part")
        ours.recv()
    ours.close()


def reporting(task: int, report: Report) -> None:
    while True:
        report(task)


PARENT = """
import os, sys
from mdsx.base.process.pool import map_in_processes
from tests.base.process.test_pool import reporting

if __name__ == "__main__":
    left = iter(range(100))
    map_in_processes(reporting, [1, 2], 2, lambda task: next(left, None) is None and os._exit(9), name="test")
"""


def test_workers_whose_parent_died_end_without_a_word(tmp_path: Path) -> None:
    """Also if they are about to report."""
    (tmp_path / "parent.py").write_text(PARENT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(tmp_path / "parent.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert (done.returncode, done.stderr) == (9, "")
