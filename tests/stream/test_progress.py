"""Where a run stands: ends of epochs, resumption, `set_epoch`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdsx import UsageError
from mdsx.stream import Batching, Progress, Task


def test_an_epoch_is_cut_into_global_batches() -> None:
    batching = Batching(samples=10, batch_size=2, world_size=2, drop_last=False)
    assert list(batching.tasks(3, 0)) == [Task(3, 0, 4), Task(3, 4, 8), Task(3, 8, 10)]
    assert list(batching.tasks(3, 5)) == [Task(3, 5, 9), Task(3, 9, 10)]  # a resume need not be at a multiple


def test_a_tail_is_dropped_or_handed_out_shorter() -> None:
    dropped = Batching(10, 2, 2, drop_last=True)
    assert [task.stop for task in dropped.tasks(0, 0)] == [4, 8]
    assert dropped.last_size(0) == 4
    assert Batching(10, 2, 2, drop_last=False).last_size(0) == 2


@given(st.integers(0, 200), st.integers(1, 20), st.integers(1, 9), st.booleans(), st.integers(0, 220))
def test_tasks_are_adjacent_counted_and_whole(samples: int, batch: int, world: int, drop: bool, position: int) -> None:
    batching = Batching(samples, batch, world, drop)
    tasks = list(batching.tasks(0, position))
    assert len(tasks) == batching.count(position)
    read = [p for task in tasks for p in range(task.start, task.stop)]
    assert read == list(range(position, position + len(read)))
    left = max(samples - position, 0) - len(read)
    assert left == 0 if not drop else 0 <= left < batching.global_batch
    assert batching.last_size(position) == (tasks[-1].stop - tasks[-1].start if tasks else 0)


def hand_out(progress: Progress, batching: Batching, batches: int) -> None:
    for task in list(batching.tasks(progress.epoch, progress.position))[:batches]:
        progress.hand_out(task, batching)


def test_the_last_batch_makes_the_next_epoch_a_dropped_tail_included() -> None:
    for drop_last, batches in ((True, 2), (False, 3)):
        batching, progress = Batching(10, 2, 2, drop_last), Progress()
        progress.begin(batching)
        hand_out(progress, batching, batches)
        assert (progress.epoch, progress.position) == (1, 0)


def test_an_epoch_left_early_is_followed_by_the_next() -> None:
    batching, progress = Batching(10, 2, 2, True), Progress()
    assert progress.begin(batching) == (0, 0)
    assert progress.begin(batching) == (0, 0)  # nothing was handed out: it was not entered
    hand_out(progress, batching, 1)
    assert progress.begin(batching) == (1, 0)


def test_a_loaded_state_is_where_one_iteration_starts() -> None:
    batching, progress = Batching(10, 2, 2, True), Progress()
    progress.load(4, 4)
    assert progress.begin(batching) == (4, 4)
    hand_out(progress, batching, 1)
    assert (progress.epoch, progress.position) == (5, 0)
    assert progress.begin(batching) == (5, 0)


def test_set_epoch_overrides_but_does_not_undo_a_resume_into_that_epoch() -> None:
    progress = Progress()
    progress.load(2, 6)
    progress.set_epoch(2)
    assert (progress.epoch, progress.position) == (2, 6)
    progress.set_epoch(7)
    assert (progress.epoch, progress.position) == (7, 0)
    with pytest.raises(UsageError, match="epoch"):
        progress.set_epoch(-1)


def test_an_epoch_without_a_batch_is_refused_instead_of_looping_for_ever() -> None:
    with pytest.raises(UsageError, match="no batch of 8 on each of 2 ranks"):
        Progress().begin(Batching(15, 8, 2, drop_last=True))


@pytest.mark.parametrize("size", [0, -1, True, 2.0])
def test_a_batch_size_is_a_positive_integer(size: int) -> None:
    with pytest.raises(UsageError, match="batch_size"):
        Batching(10, size, 1, True)


@given(st.integers(0, 60), st.integers(1, 9), st.integers(1, 3), st.booleans(), st.integers(0, 60), st.data())
def test_what_would_be_after_some_batches_is_what_handing_them_out_makes(
    samples: int, batch: int, world: int, drop: bool, position: int, data: st.DataObject
) -> None:
    batching, progress = Batching(samples, batch, world, drop), Progress()
    progress.load(2, min(position, samples))
    left = batching.count(progress.position)
    number = data.draw(st.integers(0, left))
    ahead = progress.after(number, batching)
    hand_out(progress, batching, number)
    assert ahead == (progress.epoch, progress.position) == progress.after(number, batching)
    with pytest.raises(UsageError, match="so many batches are not left"):
        progress.after(left + 1, batching)


def test_batches_are_counted_from_where_the_iteration_began() -> None:
    batching, progress = Batching(10, 2, 2, drop_last=False), Progress()
    progress.begin(batching)
    hand_out(progress, batching, 3)  # to the end
    assert progress.after(3, batching) == (1, 0)
    progress.set_epoch(1)
    assert progress.after(1, batching) == (1, 4)
    progress.begin(batching)
    hand_out(progress, batching, 1)
    progress.set_epoch(2)  # left early
    assert progress.after(0, batching) == (2, 0)
