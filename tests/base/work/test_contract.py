"""The contract of executors: each promise of mdsx/base/work/contract.py, for every executor."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mdsx.base.process import Counter, Counters, count
from mdsx.base.work import Executor, Processes, Relay, Several, Threads, iterate_ahead
from mdsx.base.work.contract import Stop
from tests.base.work.makers import (
    EXECUTORS,
    IN_THREADS,
    Maker,
    array,
    dying,
    failing,
    failing_once,
    late,
    living_workers,
    made,
    same,
    waiting_for,
)
from tests.forks import forked

N = 100
PATIENCE = 20.0
Make = Callable[..., Executor]


_COSTLY = ("persistent", "relayed processes", "relayed persistent")  # as "processes", a second each


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.slow] * (name in _COSTLY)) for name in EXECUTORS])
def executor(request: pytest.FixtureRequest) -> Make:
    return EXECUTORS[request.param]


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes"
    path.mkdir()
    return path


@pytest.fixture
def flag(tmp_path: Path) -> Path:
    path = tmp_path / "flag"
    path.touch()
    return path


def soon(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def settled(count: Callable[[], int]) -> int:
    """Return `count` once it has not changed for a while."""
    before, since = count(), time.monotonic()
    while time.monotonic() - since < 0.3:
        time.sleep(0.02)
        if (now := count()) != before:
            before, since = now, time.monotonic()
    return before


# --- order and errors


@pytest.mark.parametrize("count", [0, 1, 7, N])
def test_results_come_in_the_order_of_tasks(executor: Make, count: int) -> None:
    assert list(executor(partial(late, 5)).run(range(count))) == [(task, task) for task in range(count)]


@pytest.mark.parametrize("at", [0, 1, 2, 37, N - 1])
def test_an_error_of_making_arrives_at_its_own_task(executor: Make, at: int) -> None:
    """All results before it come first, also where other workers are slower."""
    run, found = executor(partial(failing, at)).run(range(N)), list[int]()
    with pytest.raises(KeyError) as caught:
        found.extend(result for _, result in run)
    assert found == list(range(at))
    assert caught.value.args == ("here", at)
    assert caught.value.__notes__ == ["a note"]
    with pytest.raises(StopIteration):
        next(run)


class Unclosable:
    """Fails at task 5, and when it is closed."""

    def __init__(self, number: int) -> None:
        pass

    def __call__(self, chunk: list[int]) -> Iterator[int]:
        for task in chunk:
            if task == 5:
                raise ValueError("of task 5")
            yield task

    def close(self) -> None:
        raise RuntimeError("of closing")


@pytest.mark.parametrize("count", [1, 3])
def test_an_error_arrives_although_its_maker_cannot_be_closed(count: int) -> None:
    run = Threads(Unclosable, count, ahead=9, longest=2).run(range(20))
    assert [task for task, _ in itertools.islice(run, 5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="of task 5"):
        next(run)


@pytest.mark.parametrize("at", [0, 1, 37])
def test_an_error_of_planning_arrives_at_its_own_task(executor: Make, at: int) -> None:
    def tasks() -> Iterator[int]:
        yield from range(at)
        raise KeyError("planning")

    run, found = executor(partial(late, at - 1)).run(tasks()), list[int]()
    with pytest.raises(KeyError, match="planning"):
        found.extend(result for _, result in run)
    assert found == list(range(at))


def test_a_retry_begins_with_the_task_that_failed(executor: Make, flag: Path) -> None:
    runner, found, errors = executor(partial(failing_once, flag, 41)), list[int](), 0
    while len(found) < N:
        try:
            found.extend(result for _, result in runner.run(range(len(found), N)))
        except KeyError:
            errors += 1
            if errors == 3:
                flag.unlink()
    assert found == list(range(N))
    assert errors == 3
    runner.close()


def test_a_maker_that_yields_too_few_results_is_an_error(executor: Make) -> None:
    runner, found = executor(same, most=3), list[int]()
    with pytest.raises(RuntimeError, match="fewer results"):
        found.extend(result for _, result in runner.run(range(N)))
    assert found == list(range(len(found)))
    runner.close()


class InPieces:
    """Makes results in pieces of three tasks each; nothing of a piece can be made that has task 50."""

    def __init__(self, number: int) -> None:
        pass

    def __call__(self, chunk: list[int]) -> Iterator[Any]:
        for start in range(0, len(chunk), 3):
            piece = chunk[start : start + 3]
            if 50 in piece:
                yield from piece[: piece.index(50)]
                raise KeyError("here")
            yield Several({"a": np.array(piece)}, list(range(len(piece))), number_in)

    def close(self) -> None:
        pass


def number_in(piece: dict[str, Any], place: int) -> int:
    return int(piece["a"][place])


@pytest.mark.parametrize("runner", [Threads(InPieces, ahead=9, longest=8), Processes(InPieces, 2, ahead=20, longest=8)])
def test_several_results_in_one_piece_come_one_by_one(runner: Executor) -> None:
    assert [result for _, result in runner.run(range(50))] == list(range(50))
    found = list[int]()
    with pytest.raises(KeyError, match="here"):
        found.extend(result for _, result in runner.run(range(N)))
    assert found == list(range(50))


# --- ahead


@pytest.mark.parametrize("ahead", [1, 2, 5, 24])
def test_at_most_ahead_results_are_not_handed_out(executor: Make, notes: Path, ahead: int) -> None:
    runner = executor(same, notes, ahead=ahead)
    run = runner.run(range(N))
    for taken in (1, 2, 9, 40):
        for _ in range(taken):
            handed = next(run)[0] + 1
        assert handed <= settled(lambda: made(notes)) <= handed + ahead
    run.close()
    runner.close()


def test_nothing_is_made_before_the_first_result_is_asked_for(executor: Make, notes: Path) -> None:
    run = executor(same, notes).run(range(N))
    time.sleep(0.05)
    assert not made(notes)
    run.close()


def test_a_pause_of_the_consumer_costs_no_cpu(executor: Make, notes: Path) -> None:
    runner = executor(same, notes)
    run = runner.run(range(10**6))
    next(run)
    settled(lambda: made(notes))
    children = [child.pid for child in multiprocessing.active_children()]
    before = time.process_time() + sum(map(cpu, children))
    time.sleep(1.0)
    assert time.process_time() + sum(map(cpu, children)) - before < 0.3
    run.close()
    runner.close()


def cpu(pid: int | None) -> float:
    """Return the processor seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- what the user keeps


def test_kept_results_never_change(executor: Make) -> None:
    runner, kept = executor(array), list[Any]()
    for _ in range(3):
        kept += [result for _, result in runner.run(range(N))]
    runner.close()
    gc.collect()
    assert [result.tolist() for result in kept] == [[task] * 100 for task in range(N)] * 3


def test_writing_to_a_result_changes_no_other(executor: Make) -> None:
    kept = [result for _, result in executor(array).run(range(N))]
    for result in kept[::2]:
        result[:] = -1
    assert all((result == task).all() for task, result in enumerate(kept) if task % 2)


# --- the end


@pytest.mark.parametrize("way", ["closed", "dropped", "error", "finished"])
def test_no_thread_process_or_descriptor_is_left(executor: Make, notes: Path, way: str) -> None:
    list(executor(same).run(range(3)))  # the first one imports modules
    threads_before, descriptors = set(threading.enumerate()), set(os.listdir("/proc/self/fd"))
    runner = executor(partial(failing, 50), notes)
    run = runner.run(range(40 if way == "finished" else N))
    for _ in range(10):
        next(run)
    if way == "closed":
        run.close()
    elif way == "error":
        with pytest.raises(KeyError):
            list(run)
    elif way == "finished":
        list(run)
    del run
    runner.close()
    del runner
    soon(lambda: not set(threading.enumerate()) - threads_before)
    assert not living_workers()
    assert len(os.listdir("/proc/self/fd")) == len(descriptors)
    began = {path.name.split()[1] for path in notes.iterdir() if path.name.startswith("closed")}
    assert began  # makers were closed
    count = made(notes)
    time.sleep(0.05)
    assert made(notes) == count


def test_nothing_of_a_left_run_reaches_the_next_one(executor: Make) -> None:
    runner = executor(same)
    for number in range(20):
        first = 1000 * number
        found = [result for _, result in itertools.islice(runner.run(range(first, first + N)), number)]
        assert found == list(range(first, first + number))
    assert [result for _, result in runner.run(range(N))] == list(range(N))
    runner.close()


def test_closing_does_not_wait_for_a_busy_worker(executor: Make, flag: Path) -> None:
    """A process is killed after a second; a thread ends after the call that it is in."""
    runner = executor(partial(waiting_for, flag))
    run = runner.run(range(N))
    assert next(run) == (0, 0)
    since = time.monotonic()
    run.close()
    runner.close()
    assert time.monotonic() - since < 3.0
    flag.unlink()


def test_a_run_may_be_stopped_by_another_thread_than_its_consumer(executor: Make, flag: Path) -> None:
    """The consumer, which waits for a worker, finds no more tasks; the next run is a whole one."""
    runner, stop = executor(partial(waiting_for, flag)), Stop()
    run, found = runner.run(range(N), stop=stop), list[int]()
    consumer = threading.Thread(target=lambda: found.extend(result for _, result in run))
    consumer.start()
    soon(lambda: found)
    stop()
    consumer.join(PATIENCE)
    assert found == [0]
    flag.unlink()
    assert [result for _, result in runner.run(range(N))] == list(range(N))
    runner.close()


# --- forks and deaths


def test_a_stop_before_a_run_begins_ends_it_at_once() -> None:
    stop, ended = Stop(), list[bool]()
    stop()
    stop.calls(lambda: ended.append(stop.asked))
    assert ended == [True]


def test_a_run_belongs_to_the_process_that_began_it(executor: Make) -> None:
    runner = executor(array)
    run: Any = runner.run(range(N))
    kept = [next(run)[1] for _ in range(5)]

    def child() -> str:
        nonlocal run, runner
        try:
            next(run)
        except RuntimeError as error:
            shown = str(error)
        del run, runner  # ends nothing of the parent's
        gc.collect()
        return shown if [result[0] for result in kept] == list(range(5)) else "changed"

    assert "after a fork" in forked(child)
    assert [int(result[0]) for _, result in run] == list(range(5, N))
    runner.close()


def test_what_a_forked_child_sees_is_never_overwritten(executor: Make) -> None:
    runner = executor(array)
    run = runner.run(range(10**4))
    held = [next(run)[1] for _ in range(30)]
    asked, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go)
        os.read(asked, 1)  # until the parent has taken many more
        os._exit(0 if [result.tolist() for result in held] == [[task] * 100 for task in range(30)] else 1)
    del held
    for _ in itertools.islice(run, 2000):
        pass
    os.close(go)
    os.close(asked)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    run.close()
    runner.close()


@pytest.mark.parametrize("executor", [EXECUTORS["processes"], EXECUTORS["persistent"]], ids=["processes", "persistent"])
@pytest.mark.parametrize("at", [0, 1, 37])
def test_a_worker_that_dies_is_an_error_of_its_first_task(executor: Make, flag: Path, at: int) -> None:
    """The tasks before its chunk come first. A retry starts other workers."""
    runner, found = executor(partial(dying, flag, at)), list[int]()
    with pytest.raises(RuntimeError, match=r"worker \d ended with exit code -9.*memory"):
        found.extend(result for _, result in runner.run(range(N)))
    assert at - 4 < len(found) <= at
    found.extend(result for _, result in runner.run(range(len(found), N)))
    assert found == list(range(N))
    runner.close()


# --- relays


def test_a_relay_is_one_result_ahead_of_its_consumer() -> None:
    """What goes through it is closed in its thread, before a run that was left has ended."""
    done, closed_in = list[int](), list[str]()

    def through(made: Iterator[tuple[int, Any]]) -> Generator[tuple[int, Any], None, None]:
        try:
            for task, result in made:
                done.append(task)
                yield task, -result
        finally:
            closed_in.append(threading.current_thread().name)

    run = Relay(Threads(partial(Maker, same, None, None), ahead=24), through).run(range(N))
    for number in range(5):
        assert next(run) == (number, -number)
        assert settled(lambda: len(done)) == number + 2
    run.close()
    assert closed_in == ["mdsx-batches"]


def test_an_error_on_the_way_through_a_relay_arrives_at_its_own_task() -> None:
    def through(made: Iterator[tuple[int, Any]]) -> Generator[tuple[int, Any], None, None]:
        for task, result in made:
            yield task, failing(7, result)

    found = list[int]()
    with pytest.raises(KeyError):
        found.extend(
            task for task, _ in Relay(Threads(partial(Maker, same, None, None), ahead=24), through).run(range(N))
        )
    assert found == list(range(7))


# --- counters


def test_what_workers_count_is_counted(executor: Make) -> None:
    counters = Counters()
    runner = executor(same, counters=counters) if executor in IN_THREADS else executor(same)
    for _ in range(2):
        assert len(list(runner.run(range(N)))) == N
    found = [sum(pair) for pair in zip(counters.totals, runner.totals, strict=True)]
    assert found[Counter.READ_SAMPLES] == 2 * N
    runner.close()
    assert runner.totals[Counter.READ_SAMPLES] in (0, 2 * N)


def test_waiting_is_measured(executor: Make, flag: Path) -> None:
    class Waiting:
        entered = 0

        def __enter__(self) -> None:
            self.entered += 1

        def __exit__(self, *_: object) -> None:
            pass

    waiting = Waiting()
    runner = executor(same)
    assert len(list(runner.run(range(N), waiting))) == N
    assert 1 <= waiting.entered <= N + 2  # at most once for each result, at the start and at the end
    runner.close()


# --- threads


class Noting:
    """Notes the lengths of chunks."""

    def __init__(self, lengths: list[int], number: int) -> None:
        self._lengths = lengths

    def __call__(self, chunk: list[int]) -> Iterator[int]:
        self._lengths.append(len(chunk))
        return iter(chunk)

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("count", "ahead", "longest", "most"), [(1, 24, 16, 16), (3, 24, 16, 4), (3, 24, 2, 2), (3, 4, 16, 1)]
)
def test_chunks_are_as_long_as_asked_for_unless_other_threads_would_wait(
    count: int, ahead: int, longest: int, most: int
) -> None:
    lengths = list[int]()
    runner = Threads(partial(Noting, lengths), count, ahead=ahead, longest=longest)
    assert [result for _, result in runner.run(range(N))] == list(range(N))
    assert max(lengths) == most


def test_one_thread_makes_each_result_available_at_once(flag: Path) -> None:
    """Unless it is told otherwise. The second chunk has two tasks."""
    begun = list[int]()

    def make(task: int) -> int:
        return task if task < 2 else waiting_for(flag, task)

    def begin(number: int) -> Maker:
        begun.append(number)
        return Maker(make, None, None, number)

    run = Threads(begin, ahead=8, longest=8).run(range(N))
    assert [*itertools.islice(run, 2)] == [(0, 0), (1, 1)]
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "mdsx-batches")
    flag.unlink()
    assert [result for _, result in run] == list(range(2, N))
    assert begun == [0]


@pytest.mark.parametrize("count", [1, 3])
def test_an_error_of_beginning_arrives_at_a_task(count: int) -> None:
    def begin(number: int) -> Maker:
        raise KeyError("no maker")

    with pytest.raises(KeyError, match="no maker"):
        list(Threads(begin, count, ahead=8).run(range(N)))


# --- an iterable ahead of its consumer


@pytest.mark.parametrize("ahead", [1, 3])
def test_a_thread_iterates_up_to_ahead_items_ahead(ahead: int) -> None:
    counters, taken, ended = Counters(), list[int](), list[bool]()

    def items() -> Iterator[int]:
        try:
            for number in range(N):
                taken.append(number)
                count(Counter.READ_SAMPLES)
                yield number
        finally:
            ended.append(True)

    found = iterate_ahead(items(), ahead, counters)
    assert not taken
    assert list(itertools.islice(found, 5)) == list(range(5))
    assert 5 <= settled(lambda: len(taken)) <= 5 + ahead + 1
    found.close()
    soon(lambda: ended)
    assert counters.totals[Counter.READ_SAMPLES] == len(taken)
    assert list(iterate_ahead(range(N), ahead)) == list(range(N))
