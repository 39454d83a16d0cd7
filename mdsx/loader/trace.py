"""Which samples the steps of a run have, and at which steps a sample comes, from the order and lengths alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from mdsx.errors import UsageError
from mdsx.loader.reading import Reading
from mdsx.stream import Cursor, SampleInfo, Steps, Task


class TracedItem(NamedTuple):
    """A sample in a step, or a part of one."""

    step: int
    rank: int
    row: int | None
    """Which of the rank's rows or batches it is in; None in batches of samples."""
    component: str
    """The name of the mixture's component; "" for a dataset."""
    sample: int
    """Its number in the component."""
    file: str
    """The shard that it is in."""
    first: int
    """The first value of it that the row has."""
    values: int | None
    """How many values of it the row has; None in batches of samples."""


def traced_steps(reading: Reading, cursor: Cursor, first: int, stop: int, *, world_size: int) -> Iterator[TracedItem]:
    """Yield what the steps from `first` up to `stop` have, rank by rank. `cursor`: where the run is.

    Raise UsageError if the run is past the first one.
    """
    if first < cursor.step:
        hint = "give an earlier state, or none"
        raise UsageError("the run is past that step", found=first, expected=f"{cursor.step} or more", hint=hint)
    runs = [_tasks(reading, cursor, rank, world_size) for rank in range(world_size)]
    for tasks in zip(*runs, strict=True):
        step = tasks[0][1].after.step - tasks[0][1].ends_step
        if step >= stop:
            return
        if step >= first:
            for rank, (at, task, steps) in enumerate(tasks):
                yield from _items(at, steps, task, step, rank)


def steps_with(
    reading: Reading, cursor: Cursor, samples: Iterable[tuple[str, int]], stop: int, *, world_size: int
) -> Iterator[TracedItem]:
    """Yield where samples, each a component and a number in it, come in the steps before `stop`."""
    wanted = set(samples)
    for item in traced_steps(reading, cursor, cursor.step, stop, world_size=world_size):
        if (item.component, item.sample) in wanted:
            yield item


def _tasks(reading: Reading, cursor: Cursor, rank: int, world_size: int) -> Iterator[tuple[Reading, Task, Steps]]:
    """Yield the tasks of a rank from there on, epoch after epoch, through the phases of the plan."""
    while True:
        reading = reading.at(cursor)
        steps = reading.steps(None, (rank, world_size))
        before = cursor
        for task in steps.tasks(cursor):
            number, cursor = cursor.step, task.after
            if cursor.step > number or cursor.part:  # else it is a tail that is dropped
                yield reading, task, steps
        if cursor == before:
            return


def _items(reading: Reading, steps: Steps, task: Task, step: int, rank: int) -> Iterator[TracedItem]:
    ticks, _, located = steps.rank_share([task], reading.course, rank)
    shards, samples = located if located is not None else reading.course.locate(ticks)
    if located is None:
        samples = reading.view.stored(shards, samples)
    info = SampleInfo(reading.view, reading.course.epoch_samples, reading.spec.seed, column="", seeds=False)
    fields, groups = info.of(ticks, shards, samples).fields, task.groups
    assert fields is not None, "it was asked for"
    rows = [] if groups is None else np.repeat(np.arange(len(groups.edges) - 1), np.diff(groups.edges)).tolist()
    for number, (shard, (_, _, component, sample, _)) in enumerate(zip(shards.tolist(), fields.tolist(), strict=True)):
        name, file = reading.names[component], reading.view.file(shard)
        if groups is None or groups.bucket is not None:
            yield TracedItem(step, rank, None, name, sample, file, 0, None)
        else:
            first, values = int(groups.firsts[number]), int(groups.sizes[number])
            yield TracedItem(step, rank, rows[number], name, sample, file, first, values)
