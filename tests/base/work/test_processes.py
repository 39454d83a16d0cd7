"""Worker processes: how they start, what they know, what they send, and how they end."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsx
from mdsx.base.work import Processes, WorkerInfo, worker_info
from tests.base.work.makers import Maker, array, drawn, living_workers, processes, relayed, same, waiting_for

N = 40
METHODS = ["fork", "spawn", "forkserver"]


def results(runner: Any, count: int = N) -> list[Any]:
    return [result for _, result in runner.run(range(count))]


# --- start


@pytest.mark.parametrize("method", METHODS)
def test_every_start_method_makes_the_same(method: str) -> None:
    runner = processes(array, count=2, context=method)
    assert [found.tolist() for found in results(runner)] == [[task] * 100 for task in range(N)]


def test_the_default_start_method_is_the_platforms() -> None:
    assert processes(same)._context.get_start_method() == multiprocessing.get_start_method()  # type: ignore[attr-defined]


@pytest.mark.parametrize("context", ["thread", 3])
def test_another_start_method_is_refused(context: Any) -> None:
    with pytest.raises(mdsx.UsageError, match="multiprocessing_context"):
        processes(same, context=context)


def test_what_cannot_be_pickled_is_named_with_the_way_out() -> None:
    runner = processes(lambda task: task, count=1, context="spawn")
    with pytest.raises(mdsx.UsageError, match=r"'spawn'.*lambda.*in a module.*notebook.*'fork'"):
        results(runner)
    assert not living_workers()


def test_workers_that_started_without_the_others_serve_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    start, may_start = BaseProcess.start, iter([True, False])

    def limited(process: BaseProcess) -> None:
        if not next(may_start, True):
            raise OSError(11, "Resource temporarily unavailable")
        start(process)

    monkeypatch.setattr(BaseProcess, "start", limited)
    runner = relayed(processes, same, count=2, persistent=True)
    with pytest.raises(OSError, match="unavailable"):
        results(runner)
    assert not living_workers()
    assert results(runner) == list(range(N))
    runner.close()


SCRIPT = """
from functools import partial
from tests.base.work.makers import Maker, same
from mdsx.base.work import Processes

print([result for _, result in Processes(partial(Maker, same, None, None), 1, ahead=4, context="spawn").run(range(3))])
"""

NOTEBOOK = """
from functools import partial
from tests.base.work.makers import Maker
from mdsx.base.work import Processes

def double(task):
    return 2 * task

for method in ("fork", "spawn"):
    try:
        runner = Processes(partial(Maker, double, None, None), 1, ahead=4, context=method)
        print([found for _, found in runner.run(range(3))])
    except AttributeError as error:
        print("".join(error.__notes__))
"""


def test_a_script_without_main_names_the_rule(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = run([str(script)])
    assert done.returncode == 1
    assert done.stderr.count("below `if __name__ == '__main__':`") >= 2  # in the worker, and in the script
    script.write_text(SCRIPT.replace("print(", "if __name__ == '__main__': print("))
    assert run([str(script)]).stdout == "[0, 1, 2]\n"


def test_a_function_of_a_notebook_names_the_way_out() -> None:
    done = run(["-c", NOTEBOOK])  # it has no file that a worker could import, as a notebook
    forked, spawned = done.stdout.splitlines()
    assert forked == "[0, 2, 4]", done.stderr
    assert "not in a notebook" in spawned
    assert "multiprocessing_context='fork'" in spawned


def run(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=120, check=False, env=environment
    )


BOOTSTRAPPING = "An attempt ... before the current process has finished its bootstrapping phase."


@pytest.mark.parametrize(
    ("error", "expected", "says"),
    [
        (RuntimeError(BOOTSTRAPPING), mdsx.UsageError, r"^a worker would start workers.*; .*__main__"),
        (RuntimeError("can't start new thread"), RuntimeError, "can't start new thread"),
        (ValueError("bootstrapping"), ValueError, "bootstrapping"),
        (AssertionError("daemonic"), mdsx.UsageError, r"^this process may not start.*; give num_workers=0"),
        (TypeError("cannot pickle 'lock'"), mdsx.UsageError, r"pickled for 'fork'.*lock.*define the function"),
    ],
)
def test_a_worker_that_cannot_start_says_why(
    monkeypatch: pytest.MonkeyPatch, error: Exception, expected: type[Exception], says: str
) -> None:
    def refused(process: BaseProcess) -> None:
        raise error

    monkeypatch.setattr(BaseProcess, "start", refused)
    with pytest.raises(expected, match=says):
        results(processes(same, count=1, context="fork"))


def test_a_daemonic_process_is_told_to_start_none() -> None:
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()

    def child() -> None:
        try:
            results(processes(same))
        except mdsx.UsageError as error:
            answers.put(str(error))

    process = context.Process(target=child, daemon=True)
    process.start()
    assert "daemonic process" in answers.get()
    process.join()


# --- what a worker knows


def raising(number: int) -> None:
    raise ValueError(f"in worker {number}")


def test_an_error_of_its_start_is_that_of_its_first_task() -> None:
    with pytest.raises(ValueError, match="in worker 0") as caught:
        results(processes(same, init=raising))
    assert re.fullmatch(r"(?s)in a worker process:\nTraceback .*raising.*: in worker 0\n", str(caught.value.__cause__))


def remembering(value: int, number: int) -> None:
    os.environ["REMEMBERED"] = f"{value + number}"


def remembered(_: int) -> str:
    return os.environ["REMEMBERED"]


@pytest.mark.parametrize("method", METHODS[:2])
def test_the_init_function_is_called_in_each_worker(method: str) -> None:
    assert set(results(processes(remembered, count=2, context=method, init=partial(remembering, 7)))) == {"7", "8"}


def test_workers_know_their_number_and_have_seeds_of_their_own() -> None:
    runner = processes(drawn, count=2, seed=iter([2**40 + 3, 9]).__next__, persistent=True)
    found = results(runner, 2)
    for number, (info, uniform, normal) in enumerate(found):
        assert info == WorkerInfo(number, 2, 2**40 + 3 + number)
        assert uniform == random.Random(2**40 + 3 + number).random()
        state = np.random.SeedSequence([number, 3, 2**8, 0]).generate_state(4)
        assert normal == np.random.RandomState(state).random()
    again = results(runner, 2)
    assert [info for info, _, _ in again] == [info for info, _, _ in found]  # the same workers continue
    assert not {draw for _, draw, _ in again} & {draw for _, draw, _ in found}
    runner.close()
    assert [info.seed for info, _, _ in results(runner, 2)] == [9, 10]
    runner.close()
    assert worker_info() is None


def ids(_: int) -> int:
    return os.getpid()


def test_persistent_workers_serve_the_next_run() -> None:
    runner = processes(ids, persistent=True)
    found = set(results(runner))
    next(run := runner.run(range(N)))
    run.close()
    assert set(results(runner)) == found
    assert len(found) == 3
    runner.close()
    assert not {child.pid for child in multiprocessing.active_children()} & found


def test_workers_begin_the_next_run_at_once() -> None:
    runner = processes(same, persistent=True)
    results(runner)
    took = []
    for _ in range(20):
        since = time.perf_counter()
        next(run := runner.run(range(N)))
        took.append(time.perf_counter() - since)
        for _ in run:
            pass
    runner.close()
    assert min(took) < 0.5, "2 ms measured; a wait that runs into its limit takes longer"


# --- what they send


def large(task: int) -> dict[str, Any]:
    """Be larger from time to time: images of some size, one much larger."""
    size = 2**22 if task % 7 == 3 else 2**10
    return {"image": [bytes([task]) * size, b"x"], "pixels": np.full(size, task, np.uint8), "text": ["a" * size]}


def test_results_of_any_size_cross() -> None:
    for task, found in processes(large, count=2).run(range(N)):
        expected = large(task)
        assert np.array_equal(found.pop("pixels"), expected.pop("pixels"))
        assert found == expected


def pages(task: int) -> Any:
    return np.full(2**14, task, np.uint8)


def test_short_first_messages_leave_no_slots_that_are_too_small() -> None:
    runner = processes(pages, count=1, ahead=16, longest=8, persistent=True)
    results(runner)
    (worker,) = runner._workers  # type: ignore[attr-defined]
    sizes = [len(memory) for memory in worker._slots._memory.values()]
    assert min(sizes) >= 8 * 2**14
    runner.close()


def lock(_: int) -> Any:
    return [threading.Lock()]


def test_a_result_that_pickle_cannot_copy_is_an_error_of_its_task() -> None:
    with pytest.raises(mdsx.UsageError, match=r"cannot be pickled.*lock.*return numbers"):
        results(processes(lock, hint="return numbers"))


class Odd(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__("odd")


def odd(_: int) -> None:
    raise Odd(1, 2)


def test_an_error_that_pickle_cannot_copy_comes_as_text() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)in a worker process:.*Odd: odd"):
        results(processes(odd))


def leaving(code: int, at: int, task: int) -> int:
    """End the process in one task: by a signal if `code` is negative."""
    if task == at:
        os.kill(os.getpid(), -code) if code < 0 else os._exit(code)
    return task


@pytest.mark.parametrize(
    ("code", "at", "says"),
    [
        (-9, 1, "exit code -9 while it made a batch; was it killed because memory ran out"),
        (-9, 0, "exit code -9 before its first batch; was it killed because memory ran out"),
        (3, 1, "exit code 3 while it made a batch; see its error above"),
        (3, 0, "exit code 3 before its first batch; see its error above"),
        (0, 1, "exit code 0 while it made a batch; see its error above"),
    ],
)
def test_a_worker_that_ends_is_reported_with_its_exit_code(code: int, at: int, says: str) -> None:
    with pytest.raises(RuntimeError, match=f"worker 0 ended with {says}"):
        results(processes(partial(leaving, code, at), count=1, longest=1))


def out_of_memory() -> None:
    raise MemoryError


class Unreadable:
    def __reduce__(self) -> Any:
        return out_of_memory, ()


def test_a_worker_that_cannot_read_a_request_ends(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match=r"worker 0 ended with exit code .* before its first batch; see its error"):
        list(processes(same, count=1).run([Unreadable()]))
    assert "MemoryError" in capfd.readouterr().err


def test_a_spawned_worker_that_ends_early_names_the_rule_for_scripts() -> None:
    with pytest.raises(RuntimeError, match=r"exit code 3 before its first batch; with spawn.*__main__"):
        results(processes(partial(leaving, 3, 0), count=1, context="spawn"))


def test_a_spawned_worker_of_a_program_on_stdin_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "<stdin>", raising=False)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    with pytest.raises(RuntimeError, match=r"before its first batch; .*from a program on stdin: save it as a file"):
        results(processes(same, count=1, context="spawn"))


def wait(_: int) -> None:
    time.sleep(60)


def test_timeout_ends_a_wait() -> None:
    since = time.monotonic()
    with pytest.raises(RuntimeError, match=r"no batch within timeout=0.3 seconds"):
        results(processes(wait, timeout=0.3))
    assert time.monotonic() - since < 10
    assert not living_workers()


def test_many_results_are_kept_with_few_descriptors() -> None:
    from tests.forks import forked

    def limited() -> bool:
        import resource

        most = max(map(int, os.listdir("/proc/self/fd"))) + 50
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        kept = results(processes(array, count=2), 3000)
        return [int(found[0]) for found in kept] == list(range(3000))

    assert forked(limited)


# --- their end

KILLED = """
import os, sys
from functools import partial
from pathlib import Path
from tests.base.work.makers import processes, waiting_for
import multiprocessing

runner = processes(partial(waiting_for, Path(sys.argv[2])), count=2, context=sys.argv[1])
run = runner.run(range(100))
next(run)
print(*(child.pid for child in multiprocessing.active_children()), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("method", ["fork", "forkserver"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_a_killed_parent(method: str, number: int, tmp_path: Path) -> None:
    """They may be busy, and a child that the parent forked may live on."""
    flag = tmp_path / "flag"
    flag.touch()
    parent = subprocess.Popen(
        [sys.executable, "-c", KILLED, method, str(flag)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert parent.stdout is not None
    workers = list(map(int, parent.stdout.readline().split()))
    assert len(workers) == 2
    parent.send_signal(number)
    parent.wait()
    deadline = time.monotonic() + 20
    while any(map(alive, workers)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    for pipe in (parent.stdin, parent.stdout):
        assert pipe is not None
        pipe.close()


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.parametrize("delay", [0.001, 0.01, 0.3])
def test_ctrl_c_ends_the_start_or_a_wait_and_the_workers(delay: float) -> None:
    """Only the consumer handles it. Workers get the signal too, and ignore it."""
    runner = processes(wait, count=4)
    timer = threading.Timer(delay, lambda: os.kill(os.getpid(), signal.SIGINT))

    def begin() -> None:
        timer.start()
        results(runner)

    with pytest.raises(KeyboardInterrupt):
        begin()
    timer.join()
    assert not living_workers()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_only_the_parent_decides_what_signals_mean(number: int, tmp_path: Path) -> None:
    """A terminal sends Ctrl-C to all processes of a command, and a scheduler SIGTERM to all of a job."""
    flag, notes = tmp_path / "flag", tmp_path / "notes"
    flag.touch()
    notes.mkdir()
    runner = processes(partial(waiting_for, flag), notes, count=2, persistent=True)
    run = runner.run(range(N))
    next(run)
    while not (notes / "made 1").exists():  # the second worker may still start
        time.sleep(0.005)
    for child in multiprocessing.active_children():
        os.kill(child.pid or 0, number)
    time.sleep(0.1)
    flag.unlink()
    assert [result for _, result in run] == list(range(1, N))
    runner.close()


LEFT = """
import multiprocessing, signal, sys
from functools import partial
from tests.base.work.makers import processes, same

signal.signal(signal.SIGTERM, lambda number, frame: None)  # to save a checkpoint, say

def leave():
    global runner, run
    runner = processes(same, count=2, context="fork", persistent=True)
    run = runner.run(range(100))
    next(run)

if sys.argv[1] == "main":
    leave()
else:
    process = multiprocessing.get_context("fork").Process(target=leave)
    process.start()
    process.join()
    sys.exit(process.exitcode)
"""


@pytest.mark.parametrize("process", ["main", "child"])
def test_a_program_that_handles_sigterm_ends_while_workers_run(process: str) -> None:
    """At its exit, multiprocessing sends SIGTERM to daemons, and waits for them."""
    subprocess.run(
        [sys.executable, "-c", LEFT, process], check=True, timeout=30, env={**os.environ, "PYTHONPATH": os.getcwd()}
    )


def test_the_runner_may_be_dropped_in_any_state() -> None:
    for taken in (0, 1, 30):
        runner: Any = Processes(partial(Maker, same, None, None), 2, ahead=8, persistent=True)
        run = runner.run(range(N))
        assert len(list(itertools.islice(run, taken))) == taken
        del run, runner
        assert not living_workers()
