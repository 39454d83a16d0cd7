"""What a run whose data change hands out, tick by tick: from the naive mixture of tests/order/reference.py, with all
components and phases that the run ever had. It knows nothing of mdsx, of states, batches, windows in force or ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from tests.order import reference

Sample = tuple[int, int]  # dataset, number


@dataclass
class Sources:
    """Datasets: the samples of each of their shards."""

    counts: Sequence[Sequence[int]]

    def size(self, dataset: int) -> int:
        return sum(self.counts[dataset])


@dataclass
class ChangingRun:
    """A run: its components by number (each a dataset), phases, and samples that are left out from some tick on."""

    sources: Sources
    seed: int
    lanes: int
    shuffle_block: int
    run: int | None
    components: list[int]
    phases: list[tuple[int, list[Fraction]]]
    left_out: dict[tuple[int, int], int] = field(default_factory=dict)  # (component, number): since

    def change(self, tick: int, shares: dict[int, Fraction]) -> None:
        """From `tick` on, read these datasets with these shares: a dataset that the run has continues."""
        for dataset in shares:
            if dataset not in self.components:
                self.components.append(dataset)
        weights = [shares.get(dataset, Fraction(0)) for dataset in self.components]
        self.phases = [(start, own) for start, own in self.phases if start < tick] + [(tick, weights)]

    def exclude(self, tick: int, component: int, numbers: Sequence[int]) -> None:
        for number in numbers:
            self.left_out.setdefault((component, number), tick)

    def samples(self, stop: int) -> list[tuple[int, int, int] | None]:
        """Return (component, dataset, number) at each tick; None where the sample is left out."""
        padded = [
            (start, [*weights, *[Fraction(0)] * (len(self.components) - len(weights))])
            for start, weights in self.phases
        ]
        (_, first), *later = padded
        counts = [self.sources.counts[dataset] for dataset in self.components]
        mixture = reference.Mixture(counts, first, self.seed, self.lanes, self.shuffle_block, later, self.run)
        found: list[tuple[int, int, int] | None] = []
        for tick, (component, shard, sample) in enumerate(mixture.positions(stop)):
            number = sum(counts[component][:shard]) + sample
            kept = tick < self.left_out.get((component, number), stop)
            found.append((component, self.components[component], number) if kept else None)
        return found
