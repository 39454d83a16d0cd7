"""Runs with a plan as format-spec.md describes them, naively: one window after the other. It shares no code with
mdsx."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from tests.order.reference import Mixture
from tests.order.reference_groups import Rule, window_groups

Row = tuple[tuple[int, int, int, int], ...]
"""The items of a group: component, sample, first value, values."""


@dataclass(frozen=True)
class Stage:
    """A phase: from `at` planned values on. `weights`: of the components; `size`: groups of a step."""

    at: int
    weights: Sequence[float]
    rule: Rule
    size: int


@dataclass
class Accounts:
    """What a run has consumed; dropped and skipped: samples and values."""

    samples: list[int]
    tokens: list[int]
    steps: int = 0
    rows: int = 0
    dropped: list[int] = field(default_factory=lambda: [0, 0])
    skipped: list[int] = field(default_factory=lambda: [0, 0])


class PlannedRun:
    """The steps of a run, each a list of groups in sequence order, without skipped ones; the ticks from
    which on proportions hold; and what was consumed. `lengths`: of each component's samples."""

    def __init__(
        self,
        lengths: Sequence[Sequence[int]],
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
    ) -> None:
        self.steps = list[list[Row]]()
        self.phases: list[tuple[int, Sequence[float]]] = [(0, stages[0].weights)]
        self.accounts = Accounts([0] * len(counts), [0] * len(counts))
        self._lengths, self._skip = lengths, skip
        firsts = [[0, *accumulate(each)] for each in counts]
        stage, planned, all_positions = stages[0], 0, epoch_samples * epochs

        samples, values = list[tuple[int, int]](), list[int]()

        def draw() -> None:
            """Find the component and the sample at each position, with the proportions so far."""
            (_, first), *later = self.phases
            mixture = Mixture(counts, first, seed, lanes, block, later)
            samples[:] = [(c, firsts[c][shard] + sample) for c, shard, sample in mixture.positions(all_positions)]
            values[:] = [lengths[component][sample] for component, sample in samples]

        draw()
        for epoch in range(epochs):
            position, number = epoch * epoch_samples, 0
            end, pending = position + epoch_samples, list[tuple[int, Row]]()
            while position < end:
                stop = min(position + stage.rule.window * lanes, end)
                groups = window_groups(
                    stage.rule,
                    range(position, stop),
                    values.__getitem__,
                    lambda p: p % lanes,
                    seed=seed,
                    epoch=epoch,
                    window=number,
                    lanes=lanes,
                    shuffle=True,
                )
                rows = [tuple((*samples[p], first, size) for p, first, size in items) for _, items in groups]
                pending = self._cut([*pending, *((stage.size, row) for row in rows)])
                planned += sum(size for row in rows for *_, size in row)
                position, number = stop, number + 1
                reached = [each for each in stages if each.at <= planned][-1]
                if reached is not stage:
                    if reached.rule != stage.rule:
                        pending = self._cut(pending, last=True)
                    if list(reached.weights) != list(self.phases[-1][1]):
                        self.phases.append((position, reached.weights))
                        draw()
                    stage = reached
            pending = self._cut(pending, last=not drop_last)
            for _, row in pending:
                _add(self.accounts.dropped, row)

    def _cut(self, pending: list[tuple[int, Row]], *, last: bool = False) -> list[tuple[int, Row]]:
        """Take whole steps, and a shorter one if it is the `last`. Return the groups that are left, with their n."""
        while pending and (last or len(pending) >= pending[0][0]):
            size = pending[0][0]
            self._take([row for _, row in pending[:size]])
            pending = pending[size:]
        return pending

    def _take(self, rows: list[Row]) -> None:
        accounts = self.accounts
        skipped = any(start <= accounts.steps < stop for start, stop in self._skip)
        accounts.steps += 1
        if skipped:
            for row in rows:
                _add(accounts.skipped, row)
            return
        accounts.rows += len(rows)
        for row in rows:
            for component, _, first, size in row:
                accounts.samples[component] += first == 0
                accounts.tokens[component] += size
        self.steps.append(rows)


def _add(amounts: list[int], row: Row) -> None:
    amounts[0] += sum(first == 0 for _, _, first, _ in row)
    amounts[1] += sum(size for *_, size in row)
