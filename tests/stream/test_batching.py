"""How epochs are cut into batches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdsx import UsageError
from mdsx.stream import Batching, Task


def test_an_epoch_is_cut_into_global_batches() -> None:
    batching = Batching(samples=10, batch_size=2, world_size=2, drop_last=False)
    assert list(batching.tasks(3, 0)) == [Task(3, 0, 4), Task(3, 4, 8), Task(3, 8, 10)]
    assert list(batching.tasks(3, 5)) == [Task(3, 5, 9), Task(3, 9, 10)]  # a resume need not be at a multiple


def test_a_tail_is_dropped_or_shorter() -> None:
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


@pytest.mark.parametrize("size", [0, -1, True, 2.0])
def test_a_batch_size_is_a_positive_integer(size: int) -> None:
    with pytest.raises(UsageError, match="batch_size"):
        Batching(10, size, 1, True)
