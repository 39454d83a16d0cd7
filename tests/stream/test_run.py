"""The next pass of a run, in every case of the table, without PyTorch and without data."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdsx import UsageError
from mdsx.order import Position
from mdsx.stream import NOTHING, Cursor, Iteration, Run, SampleSteps, Task

EPOCH = SampleSteps(samples=10, batch_size=2, world_size=2, drop_last=False)  # batches at 0, 4, 8


class Tasks:
    """Batches that are their tasks."""

    def __init__(self, steps: SampleSteps = EPOCH) -> None:
        self.steps = steps

    def begin(self, iteration: Iteration, cursor: Cursor) -> Iterator[tuple[Task, Any]]:
        return ((task, task) for task in self.steps.tasks(cursor))

    def failed(self, error: BaseException, times: int, cursor: Cursor) -> None:
        return

    def close(self) -> None:
        return


class Pass(Iteration):
    """An iteration whose batches are its tasks."""

    def __init__(self, run: Run, steps: SampleSteps = EPOCH, *, batches: Tasks | None = None, warns: bool = False):
        super().__init__(run, batches or Tasks(steps), "loader", warns=warns)

    def take(self, batches: int = 1) -> Pass:
        for _ in range(batches):
            next(self)
        return self


def at(cursor: Cursor) -> tuple[int, int]:
    return cursor.epoch, cursor.position


def state(run: Run) -> tuple[int, int]:
    return at(run.cursor)


def make(*, shuffled: bool = True) -> Run:
    return Run(shuffled=shuffled)


# --- the table: what happened before, and where a new iteration begins


def nothing(run: Run) -> None:
    pass


def exhausted(run: Run) -> None:
    Pass(run).take(3)


def loaded(run: Run) -> None:
    run.load(Cursor(4, Position(4)))


def loaded_over_a_pass(run: Run) -> None:
    Pass(run).take(2)
    run.load(Cursor(4, Position(4)))


def failed(run: Run) -> None:
    iteration = Pass(run).take()
    run.failed(iteration)


def failed_at_first(run: Run) -> None:
    run.failed(Pass(run))


def left(run: Run) -> None:
    Pass(run).take()


def left_and_resumed(run: Run) -> None:
    left(run)
    run.resume()


def left_after_a_failure(run: Run) -> None:
    iteration = Pass(run).take()
    run.failed(iteration)
    iteration.take()


def only_begun(run: Run) -> None:
    run.load(Cursor(2, Position(4)))
    Pass(run)


def set_to_the_loaded_epoch(run: Run) -> None:
    run.load(Cursor(4, Position(4)))
    run.set_epoch(4)


def set_to_the_open_epoch(run: Run) -> None:
    failed(run)
    run.set_epoch(0)


def set_to_another_epoch(run: Run) -> None:
    failed(run)
    run.set_epoch(7)


def set_to_the_epoch_that_was_left(run: Run) -> None:
    left(run)
    run.set_epoch(0)


@pytest.mark.parametrize(
    ("before", "position", "following"),
    [
        (nothing, (0, 0), (0, 0)),
        (exhausted, (1, 0), (1, 0)),
        (loaded, (4, 4), (4, 4)),
        (loaded_over_a_pass, (4, 4), (4, 4)),
        (failed, (0, 4), (0, 4)),
        (failed_at_first, (0, 0), (0, 0)),
        (left, (0, 4), (1, 0)),
        (left_and_resumed, (0, 4), (0, 4)),
        (left_after_a_failure, (0, 8), (1, 0)),
        (only_begun, (2, 4), (2, 4)),
        (set_to_the_loaded_epoch, (4, 4), (4, 4)),
        (set_to_the_open_epoch, (0, 4), (0, 4)),
        (set_to_another_epoch, (7, 0), (7, 0)),
        (set_to_the_epoch_that_was_left, (0, 0), (0, 0)),
    ],
    ids=lambda value: value.__name__ if callable(value) else str(value),
)
def test_the_next_pass_is_as_in_the_table(
    before: Callable[[Run], None], position: tuple[int, int], following: tuple[int, int]
) -> None:
    run = make()
    before(run)
    assert state(run) == position
    assert at(run.coming) == at(run.cursor_of(object())) == following
    run.set_epoch(run.coming_epoch)  # never changes anything
    assert (state(run), at(run.coming)) == (position, following)


def test_an_abandoned_unshuffled_pass_starts_again() -> None:
    run = make(shuffled=False)
    left(run)
    assert state(run) == (0, 4)
    assert at(run.coming) == (0, 0)
    assert run.left_before(object()) is None  # there is nothing to warn of
    Pass(run).take(3)
    assert at(run.coming) == (1, 0)


def test_an_abandoned_pass_reports_its_missed_batches() -> None:
    run = make()
    left(run)
    found = run.left_before(object())
    assert found == (Cursor(0, Position(4), step=1), 1)
    message = r"epoch 0 was left with 2 of its 3 batches .* epoch 1; .* call loader\.resume\(\)"
    with pytest.warns(UserWarning, match=message) as warned:
        Pass(run, warns=True).take()
    assert [warning.filename for warning in warned] == [__file__]  # the caller's line
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Pass(run, warns=False).take()  # another rank has said it


def test_a_pass_continues_until_another_yields_a_batch() -> None:
    run = make()
    first, second = Pass(run).take(), Pass(run)
    assert at(run.coming) == (0, 4)
    assert (at(run.cursor_of(first)), at(run.cursor_of(second))) == ((0, 4), (1, 0))
    run.failed(second)  # nothing came of it
    assert at(run.cursor_of(first)) == (0, 4)
    first.take()
    assert run.has(first)
    second.take()
    assert not run.has(first)
    assert state(run) == (1, 4)


def test_consecutive_failures_of_a_batch_are_counted() -> None:
    run = make()
    iteration = Pass(run).take()
    assert [run.failed(iteration), run.failed(Pass(run)), run.failed(iteration)] == [1, 2, 3]
    iteration.take()
    assert run.failed(iteration) == 1
    run = make()
    first, second = Pass(run).take(), Pass(run)
    assert [run.failed(second), run.failed(first)] == [1, 1], "of different batches"


def test_a_withdrawn_batch_comes_again() -> None:
    run = make()
    iteration = Pass(run).take()
    mark = run.mark()
    iteration.take(2)
    assert state(run) == (1, 0)
    run.back_to(mark)
    assert at(run.cursor_of(iteration)) == (0, 4)


@pytest.mark.parametrize(("error", "counted"), [(ValueError, [1, 2]), (KeyboardInterrupt, [])])
def test_an_error_is_raised_at_its_batch_which_comes_again(error: type[BaseException], counted: list[int]) -> None:
    errors, found = [error(), error()], list[int]()

    class Fails(Tasks):
        def begin(self, iteration: Iteration, cursor: Cursor) -> Iterator[tuple[Task, Any]]:
            for task, made in super().begin(iteration, cursor):
                if task.start == 4 and errors:
                    raise errors.pop()
                yield task, made

        def failed(self, error: BaseException, times: int, cursor: Cursor) -> None:
            found.append(times)

    run = make()
    iteration = Pass(run, batches=Fails()).take()
    for _ in range(2):
        with pytest.raises(error):
            next(iteration)
        assert state(run) == (0, 4)
    assert [task.start for task in iteration] == [4, 8]
    assert found == counted
    assert at(run.coming) == (1, 0)


@pytest.mark.parametrize(
    ("epoch_steps", "cursor", "end"),
    [
        (None, Cursor(3, Position(8), step=5, planned=7), Cursor(4, step=5, planned=7)),
        (4, Cursor(1, Position(3), step=6, part=1), Cursor(1, Position(3), step=8)),
    ],
)
def test_an_epoch_without_a_task_ends(epoch_steps: int | None, cursor: Cursor, end: Cursor) -> None:
    """Such as after a resume into a dropped tail."""

    class Nothing(Tasks):
        def begin(self, iteration: Iteration, cursor: Cursor) -> Iterator[tuple[Task, Any]]:
            return iter(())

    run = Run(epoch_steps=epoch_steps)
    run.load(cursor)
    with pytest.raises(StopIteration):
        next(Pass(run, batches=Nothing()))
    assert run.cursor == end


def test_an_iteration_that_ctrl_c_ended_may_be_continued_or_followed_by_the_next_epoch() -> None:
    """Its traceback may keep it alive."""
    run = make()
    iteration = Pass(run).take()
    assert at(run.coming) == (0, 4)
    run.quit(Pass(run))
    assert at(run.coming) == (0, 4), "another iteration"
    run.quit(iteration)
    assert at(run.coming) == (1, 0)
    iteration.take()
    assert at(run.coming) == (0, 8)


def test_tasks_of_other_ranks_are_passed_over() -> None:
    class Second(Tasks):
        def begin(self, iteration: Iteration, cursor: Cursor) -> Iterator[tuple[Task, Any]]:
            return ((task, task if task.start == 4 else NOTHING) for task in self.steps.tasks(cursor))

    run = make()
    assert [task.start for task in Pass(run, batches=Second())] == [4]
    assert at(run.coming) == (1, 0)


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda run: pickle.loads(pickle.dumps(run))])
def test_a_copy_is_independent_and_begins_at_the_next_batch(how: Callable[[Run], Run]) -> None:
    run = make()
    iteration = Pass(run).take()
    during = how(run)
    assert at(during.coming) == at(run.coming) == (0, 4)
    del iteration
    after = how(run)
    assert at(after.coming) == at(run.coming) == (1, 0)
    Pass(during).take()
    assert (state(during), state(run), state(after)) == ((0, 8), (0, 4), (0, 4))


@pytest.mark.parametrize("epoch", [-1, True, 1.0, "1"])
def test_an_epoch_is_an_integer_of_at_least_0(epoch: int) -> None:
    with pytest.raises(UsageError, match="epoch must be"):
        make().set_epoch(epoch)


def test_an_epoch_without_a_batch_is_refused() -> None:
    with pytest.raises(UsageError, match="no batch of 8 on each of 2 ranks"):
        SampleSteps(15, 8, 2, drop_last=True).check(0)


def test_an_epoch_beyond_all_positions_is_refused() -> None:
    with pytest.raises(UsageError, match="too large"):
        EPOCH.check(2**60)


# --- counting batches that are taken elsewhere, as in the workers of PyTorch's DataLoader


@given(st.integers(0, 60), st.integers(1, 9), st.integers(1, 3), st.booleans(), st.integers(0, 60), st.data())
def test_the_predicted_state_equals_that_after_reading(
    samples: int, batch: int, world: int, drop: bool, position: int, data: st.DataObject
) -> None:
    steps, run = SampleSteps(samples, batch, world, drop), make()
    run.load(Cursor(2, Position(min(position, samples))))
    remaining = steps.count(run.cursor)
    number = data.draw(st.integers(0, remaining))
    ahead = steps.after_batches(run.start, number)
    Pass(run, steps).take(number)
    assert ahead == run.cursor == steps.after_batches(run.start, number)
    with pytest.raises(UsageError, match="the epoch has fewer batches left"):
        steps.after_batches(run.start, remaining + 1)


def test_batches_are_counted_from_the_passs_start() -> None:
    run = make()
    exhausted(run)
    assert at(EPOCH.after_batches(run.start, 3)) == (1, 0)
    run.set_epoch(1)
    assert at(EPOCH.after_batches(run.start, 1)) == (1, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        left(run)
    run.set_epoch(2)
    assert at(EPOCH.after_batches(run.start, 0)) == (2, 0)
