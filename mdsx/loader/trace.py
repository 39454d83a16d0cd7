"""Find the samples of a run's steps, and the steps of a sample, from the order and lengths alone."""

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
    """Its number in the component's dataset, as stored."""
    file: str
    """The shard that it is in."""
    first: int
    """The first of its values in the row."""
    values: int | None
    """How many of its values are in the row; None in batches of samples."""


def traced_steps(reading: Reading, cursor: Cursor, first: int, stop: int, *, world_size: int) -> Iterator[TracedItem]:
    """Yield the items of the steps from `first` up to `stop`, rank by rank. `cursor`: where the run is.

    Raise UsageError if the run is past the first one.
    """
    if first < cursor.step:
        hint = "give an earlier state, or no state"
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
    """Yield where samples come in the steps before `stop`. Each sample is a component and its number there."""
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
            if cursor.step > number or cursor.part:  # otherwise it is a tail that is dropped
                yield reading, task, steps
        if cursor == before:
            return


def _items(reading: Reading, steps: Steps, task: Task, step: int, rank: int) -> Iterator[TracedItem]:
    ticks, _, located = steps.rank_share([task], reading.course, rank)
    shards, samples = located if located is not None else reading.course.locate(ticks)
    if located is None:
        samples = reading.view.stored(shards, samples)
    info = SampleInfo(reading.view, reading.course.epoch_samples, reading.spec.seed, column=None, seeds=False)
    fields, groups = info.fields(ticks, shards, samples), task.groups
    rows = [] if groups is None else np.repeat(np.arange(len(groups.edges) - 1), np.diff(groups.edges)).tolist()
    for number, (shard, (_, _, component, sample, _)) in enumerate(zip(shards.tolist(), fields.tolist(), strict=True)):
        name, file = reading.names[component], reading.view.file(shard)
        if groups is None or groups.bucket is not None:
            yield TracedItem(step, rank, None, name, sample, file, 0, None)
        else:
            first, values = int(groups.firsts[number]), int(groups.sizes[number])
            yield TracedItem(step, rank, rows[number], name, sample, file, first, values)
