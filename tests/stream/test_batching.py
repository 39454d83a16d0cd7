"""How epochs are cut into batches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdsx import UsageError
from mdsx.order import Position
from mdsx.stream import Cursor, SampleSteps


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


@pytest.mark.parametrize("size", [0, -1, True, 2.0])
def test_a_batch_size_is_a_positive_integer(size: int) -> None:
    with pytest.raises(UsageError, match="batch_size"):
        SampleSteps(10, size, 1, True)
