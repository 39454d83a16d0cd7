"""How epochs are cut into batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdsx import UsageError
from mdsx.order import DatasetCourse, Order, Position
from mdsx.stream import SAMPLES, Cursor, SampleSteps
from mdsx.stream.steps import RankGroups


def cuts(steps: SampleSteps, cursor: Cursor) -> list[tuple[int, int, int]]:
    return [(task.epoch, task.start, task.stop) for task in steps.tasks(cursor)]


def test_an_epoch_is_cut_into_global_batches() -> None:
    batching = SampleSteps(samples=10, batch_size=2, world_size=2, drop_last=False)
    assert cuts(batching, Cursor(3)) == [(3, 30, 34), (3, 34, 38), (3, 38, 40)]
    assert cuts(batching, Cursor(3, Position(5))) == [(3, 35, 39), (3, 39, 40)]  # a resume need not be at a multiple


def test_a_tail_is_dropped_or_shorter() -> None:
    dropped = SampleSteps(10, 2, 2, drop_last=True)
    assert [task.stop for task in dropped.tasks(Cursor())] == [4, 8]
    assert dropped.last_size(Cursor()) == 4
    assert SampleSteps(10, 2, 2, drop_last=False).last_size(Cursor()) == 2


@given(st.integers(0, 200), st.integers(1, 20), st.integers(1, 9), st.booleans(), st.integers(0, 220))
def test_tasks_are_adjacent_counted_and_whole(samples: int, batch: int, world: int, drop: bool, position: int) -> None:
    batching = SampleSteps(samples, batch, world, drop)
    cursor = Cursor(0, Position(position))
    tasks = [task for task in batching.tasks(cursor) if not task.skip]
    assert len(tasks) == batching.count(cursor)
    read = [p for task in tasks for p in range(task.start, task.stop)]
    assert read == list(range(position, position + len(read)))
    left = max(samples - position, 0) - len(read)
    assert left == 0 if not drop else 0 <= left < batching.global_batch_size
    assert batching.last_size(cursor) == (tasks[-1].stop - tasks[-1].start if tasks else 0)


@pytest.mark.parametrize("micro", [None, 3])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_reads_its_part_of_each_step_but_nothing_of_skipped_ones(micro: int | None, rank: int) -> None:
    course = DatasetCourse(Order([40] * 5, lanes=4, shuffle_block=16))
    steps = SampleSteps(course.samples, 8, 2, drop_last=True, micro=micro, skip=((1, 3),))
    tasks = list(steps.tasks(Cursor()))
    expected = []
    for task in tasks:
        ticks, _ = course.rank_ticks(np.array([task.start]), np.array([task.stop]), rank, 2)
        own = ticks if micro is None else ticks[task.part * micro : (task.part + 1) * micro]
        expected.append([] if task.skip else own.tolist())
    found = steps.rank_share(tasks, course, rank)
    assert found.ticks.tolist() == [tick for part in expected for tick in part]
    assert found.counts.tolist() == [len(part) for part in expected] == [steps.share(task, rank) for task in tasks]
    assert [] in expected


@pytest.mark.parametrize("batches", [-1, 4, True, 1.0])
def test_a_run_goes_on_by_a_number_of_batches_that_the_epoch_has(batches: Any) -> None:
    steps = SampleSteps(10, 2, 2, drop_last=False)
    assert steps.after_batches(Cursor(3), 2) == Cursor(3, Position(8), step=2)
    assert steps.after_batches(Cursor(3), 3) == Cursor(4, step=3)
    with pytest.raises(UsageError, match="fewer batches") as caught:
        steps.after_batches(Cursor(3), batches)
    assert (caught.value.found, caught.value.expected) == (batches, "0 to 3")


@pytest.mark.parametrize("plan", [{"until": 8}, {"skip": ((1, 2),)}])
def test_the_batches_of_an_epoch_that_a_plan_changes_are_not_counted(plan: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        SampleSteps(10, 2, 2, drop_last=False, **plan).count()


def test_the_progress_of_a_state_is_its_tick() -> None:
    course = DatasetCourse(Order([10]))
    assert SAMPLES.progress_of(course, {"epoch": 3, "position": 4}) == 34


def test_batches_of_samples_have_no_groups() -> None:
    assert SAMPLES.with_groups(None) is SAMPLES
    with pytest.raises(ValueError, match="batches of samples"):
        SAMPLES.with_groups({"kind": "pack"})


def test_samples_that_are_not_grouped_are_rows_of_their_own() -> None:
    alone = RankGroups.alone(3)
    assert alone.edges.tolist() == [0, 1, 2, 3]
    assert (alone.items.shape, bool(alone.items.any()), alone[2:]) == ((6, 3), False, (0, 0, None))
    assert RankGroups.alone(0).filled(2).edges.tolist() == [0, 0, 0]
    assert alone.filled(5).edges.tolist() == [0, 1, 2, 3, 3, 3]
    assert alone.filled(3).edges.tolist() == alone.filled(0).edges.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("size", [0, -1, True, 2.0])
def test_a_batch_size_is_a_positive_integer(size: int) -> None:
    with pytest.raises(UsageError, match="batch_size"):
        SampleSteps(10, size, 1, True)
