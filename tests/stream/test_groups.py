"""Runs of groups: each sample in exactly one group of the epoch, on any ranks, and after any resume."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdsx.errors import StateError
from mdsx.order import Course, DatasetCourse, Grouping, MixtureCourse, MixtureOrder, Order, Tick
from mdsx.stream import Cursor, Cut, Task
from mdsx.stream.groups import GroupSteps
from mdsx.stream.planning import Planner
from mdsx.stream.steps import START

COUNTS = [40, 25, 60, 7, 68]
LENGTHS = (np.arange(200) * 37 % 61).astype(np.int64)  # 0 to 60
FIRSTS = np.cumsum(COUNTS) - COUNTS


class Given:
    """A dataset's view and lengths, as far as a planner needs them."""

    firsts = np.array([0, len(COUNTS)])

    def stored(self, shards: Any, samples: Any) -> Any:
        return samples

    def of(self, shards: Any, samples: Any) -> Any:
        return LENGTHS[FIRSTS[shards] + samples]

    def file(self, shard: int) -> str:
        return f"shard {shard}"


def dataset(epoch_samples: int | None = None, lanes: int = 4) -> DatasetCourse:
    return DatasetCourse(Order(COUNTS, seed=5, lanes=lanes, shuffle_block=32), epoch_samples)


def mixture() -> MixtureCourse:
    order = MixtureOrder([COUNTS[:4], COUNTS[4:]], [3, 1], seed=5, lanes=4, shuffle_block=32)
    return MixtureCourse(order, np.array([0, 4, 5]), 160)


def cut(
    course: Course,
    rule: Grouping,
    *,
    rows: int = 2,
    rank: int = 0,
    world_size: int = 1,
    drop_last: bool = False,
    epoch_steps: int | None = None,
) -> GroupSteps:
    planner = Planner(Given(), course, Given(), rule, seed=5, shuffle=True)  # type: ignore[arg-type]
    return GroupSteps(
        planner, course, Cut(rows * world_size, rank, world_size, drop_last), epoch_steps=epoch_steps, group_samples=3
    )


def pieces(task: Task) -> list[list[tuple[int, int, int]]]:
    """Return the (tick, first value, values) of each sample of each of the rank's groups."""
    groups = task.groups
    assert groups is not None
    each = list(zip(groups.items[0].tolist(), groups.firsts.tolist(), groups.sizes.tolist(), strict=True))
    return [each[low:high] for low, high in zip(groups.edges[:-1], groups.edges[1:], strict=True)]


def groups_of(steps: GroupSteps, cursor: Cursor = START) -> list[Any]:
    return [group for task in steps.tasks(cursor) for group in pieces(task)]


def every_rank(course: Course, rule: Grouping, world_size: int, **more: Any) -> list[list[Any]]:
    """Return the groups of each step over all ranks, sorted."""
    ranks = [cut(course, rule, rank=rank, world_size=world_size, **more) for rank in range(world_size)]
    steps = zip(*(each.tasks(START) for each in ranks), strict=True)
    return [sorted(group for task in step for group in pieces(task)) for step in steps]


PACK = Grouping("pack", 64, 8)
RULES = [
    PACK,
    Grouping("pack", 40, 16, "split"),
    Grouping("max_tokens", 128, 8),
    Grouping("max_tokens", 64, 8, "truncate", 3),
]


def expected_pieces(course: Course, rule: Grouping, epoch: int) -> list[tuple[int, int, int]]:
    positions = np.arange(epoch * course.epoch_samples, (epoch + 1) * course.epoch_samples)
    found = []
    for position, length in zip(positions.tolist(), Given().of(*course.locate(positions)).tolist(), strict=True):
        starts = range(0, max(length, 1), rule.capacity) if rule.oversize == "split" else range(1)
        found += [(position, start, min(rule.capacity, length - start)) for start in starts]
    return found


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("course", [dataset(), dataset(lanes=1), mixture()], ids=["dataset", "one lane", "mixture"])
def test_each_sample_is_in_one_group_of_the_epoch(rule: Grouping, course: Course) -> None:
    found = [piece for group in groups_of(cut(course, rule), Cursor(1)) for piece in group]
    assert sorted(found) == expected_pieces(course, rule, 1)


@given(st.sampled_from(RULES), st.integers(1, 5), st.integers(1, 4), st.booleans())
def test_a_step_has_the_same_groups_on_any_ranks(rule: Grouping, world: int, rows: int, drop: bool) -> None:
    course = dataset()
    alone = every_rank(course, rule, 1, rows=rows * world, drop_last=drop)
    assert every_rank(course, rule, world, rows=rows, drop_last=drop) == alone


@given(st.sampled_from(RULES), st.lists(st.tuples(st.integers(1, 4), st.integers(1, 9)), max_size=5))
def test_a_run_goes_on_with_other_rows_exactly_where_it_stopped(rule: Grouping, legs: list[tuple[int, int]]) -> None:
    course = dataset()
    taken: list[Any] = []
    cursor = START
    for rows, steps in legs:
        for number, task in enumerate(cut(course, rule, rows=rows).tasks(cursor)):
            taken += sorted(pieces(task))
            cursor = task.after
            if cursor.epoch or number + 1 == steps:
                break
        if cursor.epoch:
            break
    rest = [] if cursor.epoch else groups_of(cut(course, rule), cursor)
    whole = groups_of(cut(course, rule))
    assert sorted(taken + rest) == sorted(whole)


def test_the_last_full_step_ends_the_epoch_if_the_rest_is_dropped() -> None:
    batching = cut(dataset(), PACK, rows=7, drop_last=True)
    tasks = list(batching.tasks(START))
    plan = batching.plan(0, START)
    assert plan.groups % 7, "otherwise nothing is dropped"
    assert [task.after.epoch for task in tasks] == [0] * (len(tasks) - 1) + [1]
    assert len(tasks) == plan.groups // 7 == plan.steps == batching.count(START)


def test_the_padding_of_bounded_batches_is_up_to_their_longest_sample() -> None:
    batching = cut(dataset(), Grouping("max_tokens", 128, 8))
    plan, every = batching.plan(0, START), groups_of(batching)
    places = sum(len(group) * max(size for _, _, size in group) for group in every)
    assert plan.fill == LENGTHS.sum() / places


def test_a_plan_counts_what_the_epoch_has() -> None:
    batching = cut(dataset(), PACK, rows=3)
    with pytest.raises(TypeError, match=r"loader.plan\(\)"):
        batching.count(START)
    plan, tasks = batching.plan(0, START), list(batching.tasks(START))
    assert (plan.steps, plan.samples, plan.values) == (len(tasks), 200, LENGTHS.sum())
    assert plan.groups == sum(len(pieces(task)) for task in tasks)
    assert plan.fill == LENGTHS.sum() / (plan.groups * 64)
    left = [batching.count(task.after) for task in tasks[:-1]]
    assert left == list(range(len(tasks) - 1, 0, -1))
    totals = [task.groups for task in tasks if task.groups is not None]
    assert sum(each.step_values for each in totals) == plan.values
    assert sum(each.step_samples for each in totals) == plan.samples


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_epochs_with_a_fixed_number_of_steps_continue_in_one_another(rule: Grouping) -> None:
    course = dataset()
    fixed, every = cut(course, rule, epoch_steps=5), list[Any]()
    for epoch in range(20):
        every += groups_of(cut(course, rule, rows=1), Cursor(epoch))
    cursor, found = START, list[Any]()
    for epoch in range(6):
        assert fixed.count(cursor) == 5
        tasks = list(fixed.tasks(cursor))
        assert {task.epoch for task in tasks} == {epoch}
        assert [task.after.step - 5 * epoch for task in tasks] == [1, 2, 3, 4, 5]
        found += [group for task in tasks for group in pieces(task)]
        cursor = tasks[-1].after
    assert len(found) == 60
    assert [sorted(found[at : at + 2]) for at in range(0, 60, 2)] == [
        sorted(every[at : at + 2]) for at in range(0, 60, 2)
    ]


def test_epochs_of_another_length_cut_windows_at_the_datasets_epochs() -> None:
    course = dataset(epoch_samples=150)
    batching = cut(course, PACK)
    assert list(batching.planner.windows(1).every) == [
        (150, 182),
        (182, 200),
        (200, 232),
        (232, 264),
        (264, 296),
        (296, 300),
    ]
    assert sorted(p for g in groups_of(batching, Cursor(1)) for p, _, _ in g) == list(range(150, 300))


def test_shards_are_in_use_until_the_end_of_a_window() -> None:
    batching = cut(dataset(epoch_samples=150), PACK, rows=1)
    for task in batching.tasks(START):
        ticks = batching.rank_share([task], dataset(), 0).ticks
        assert task.start <= ticks.min()
        assert ticks.max() < task.stop
        (window,) = [each for each in batching.planner.windows(0).every if each[1] == task.stop]
        assert task.done == window[task.after.taken == 0]
    assert (batching.window_end(Tick(0)), batching.window_end(Tick(128))) == (32, 150)


def test_more_groups_than_a_window_has_are_an_error() -> None:
    batching = cut(dataset(), PACK)
    with pytest.raises(StateError, match="taken more groups"):
        next(batching.tasks(Cursor(taken=99)))


def test_a_batching_in_another_process_knows_what_to_read_but_does_not_plan() -> None:
    batching = cut(dataset(), PACK)
    task = next(iter(batching.tasks(START)))
    copy = pickle.loads(pickle.dumps(batching))
    found = copy.rank_share([task], dataset(), 0).ticks.tolist()
    assert found == [tick for group in pieces(task) for tick, _, _ in group]
    with pytest.raises(AssertionError):
        list(copy.tasks(START))
