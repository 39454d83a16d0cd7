"""What a run with a plan hands out, computed from the order alone, one window after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from mdsx.order import Grouping, GroupSequence, MixtureCourse, MixtureOrder, group_positions

Row = tuple[tuple[int, int, int, int], ...]
"""The items of a group: component, sample, first value, values."""


@dataclass(frozen=True)
class Stage:
    """A phase: from so many planned values on. `weights`: of the components; `size`: rows of a step."""

    at: int
    weights: Sequence[float]
    rule: Grouping
    size: int


@dataclass
class Accounts:
    samples: list[int]
    tokens: list[int]
    steps: int = 0
    rows: int = 0
    dropped: list[int] = field(default_factory=lambda: [0, 0])
    skipped: list[int] = field(default_factory=lambda: [0, 0])


def planned_run(
    lengths: Mapping[int, np.ndarray[Any, Any]],
    counts: Sequence[Sequence[int]],
    stages: Sequence[Stage],
    *,
    seed: int,
    lanes: int,
    block: int,
    epoch_samples: int,
    epochs: int,
    drop_last: bool,
    skip: Sequence[tuple[int, int]] = (),
) -> tuple[list[list[Row]], Accounts]:
    """Return the rows of each step that is not skipped, sorted, and what was consumed."""
    firsts = [np.cumsum(each) - np.asarray(each) for each in counts]
    phases: list[tuple[int, Sequence[float]]] = [(0, stages[0].weights)]
    accounts = Accounts([0] * len(counts), [0] * len(counts))
    steps = list[list[Row]]()
    stage, planned = stages[0], 0

    def rows_of(sequence: GroupSequence, course: MixtureCourse) -> list[Row]:
        components, shards, samples = course.order.locate(sequence.positions)
        items = [
            (c, int(firsts[c][shard] + sample), first, size)
            for c, shard, sample, first, size in zip(
                components.tolist(),
                shards.tolist(),
                samples.tolist(),
                sequence.firsts.tolist(),
                sequence.sizes.tolist(),
                strict=True,
            )
        ]
        edges = sequence.edges.tolist()
        return [tuple(items[a:b]) for a, b in pairwise(edges)]

    def take(some: Sequence[Row]) -> None:
        skips = any(start <= accounts.steps < stop for start, stop in skip)
        accounts.steps += 1
        for row in some:
            for component, _, first, size in row:
                if skips:
                    accounts.skipped[0] += first == 0
                    accounts.skipped[1] += size
                else:
                    accounts.samples[component] += first == 0
                    accounts.tokens[component] += size
        if not skips:
            accounts.rows += len(some)
            steps.append(sorted(some))

    def cut(pending: list[tuple[int, Row]], *, last: bool, dropped: bool) -> list[tuple[int, Row]]:
        while pending and (len(pending) >= pending[0][0] or (last and not dropped)):
            size = pending[0][0]
            take([row for _, row in pending[:size]])
            pending = pending[size:]
        if last:
            for _, row in pending:
                accounts.dropped[0] += sum(first == 0 for _, _, first, _ in row)
                accounts.dropped[1] += sum(size for *_, size in row)
            return []
        return pending

    for epoch in range(epochs):
        position, number = epoch * epoch_samples, 0
        end = position + epoch_samples
        pending = list[tuple[int, Row]]()
        while position < end:
            course = MixtureCourse(
                MixtureOrder(counts, phases[0][1], seed=seed, lanes=lanes, shuffle_block=block, phases=phases[1:]),
                np.cumsum([0, *map(len, counts)]),
                epoch_samples,
            )
            stop = min(position + stage.rule.window * lanes, end)
            positions = np.arange(position, stop)
            components, shards, samples = course.order.locate(positions)
            sizes = np.array(
                [lengths[c][firsts[c][s] + i] for c, s, i in zip(components, shards, samples, strict=True)], np.int64
            )
            groups = group_positions(
                stage.rule, course, positions, sizes, seed=seed, epoch=epoch, window=number, shuffle=True
            )
            pending = cut([*pending, *((stage.size, row) for row in rows_of(groups, course))], last=False, dropped=True)
            planned += int(groups.sizes.sum())
            position, number = stop, number + 1
            reached = [each for each in stages if each.at <= planned][-1]
            if reached is not stage:
                if reached.rule != stage.rule:
                    pending = cut(pending, last=True, dropped=False)
                if list(reached.weights) != list(phases[-1][1]):
                    phases.append((position, reached.weights))
                stage = reached
        pending = cut(pending, last=True, dropped=drop_last)
    return steps, accounts
