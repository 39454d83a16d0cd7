"""What a small cache downloads, against eviction by the true next use, which knows all reads to come (Belady, 1966).

The optimum brings nothing early and keeps whole shards, as the cache does. Shards that an epoch uses at several times
make it download more than the part that the cache lacks: the optimum too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from mdsx.order import Course, DatasetCourse, MixtureCourse, MixtureOrder, Order
from tests.stream.simulation import Simulation

SAMPLES, SIZE, RUN, EPOCHS = 100, 1000, 50, 2
AHEAD = 2  # shards that are brought before they are needed: they take room
NEARLY = 1.1


def optimum(reads: Sequence[set[int]], room: int, start: int, stop: int) -> int:
    """Return how many shards eviction by the true next use downloads for `reads[start:stop]`, in a cache of `room`."""
    uses: dict[int, list[int]] = {}
    for number in reversed(range(len(reads))):
        for shard in reads[number]:
            uses.setdefault(shard, []).append(number)  # the next one last
    held: set[int] = set()
    downloads = 0
    for number, wanted in enumerate(reads):
        for shard in wanted:
            uses[shard].pop()
        if start <= number < stop:
            downloads += len(wanted - held)
        held |= wanted
        last = sorted(held - wanted, key=lambda shard: uses[shard][-1] if uses[shard] else len(reads))
        while len(held) > room and last:
            held.remove(last.pop())
    return downloads


def ratio(course: Course, shards: int) -> float:
    """Return what later epochs download through a cache that holds half of the shards, by the optimum."""
    n, room = course.samples, shards // 2
    run = Simulation(course, np.full(shards, SIZE), room * SIZE, 1e9, RUN, seconds=1.0, look_ahead=AHEAD * SIZE)
    run.read(0, n)
    before = run.downloads
    run.read(n, (1 + EPOCHS) * n)
    found = course.locate(np.arange((2 + EPOCHS) * n))[0]  # one more epoch, for what is kept for it
    reads = [set(found[start : start + RUN].tolist()) for start in range(0, len(found), RUN)]
    return (run.downloads - before) / optimum(reads, room, n // RUN, (1 + EPOCHS) * n // RUN)


def mixture(*components: tuple[int, float]) -> MixtureCourse:
    """Return the course of a mixture of (shards, share)."""
    counts, shares = zip(*components, strict=True)
    order = MixtureOrder([[SAMPLES] * count for count in counts], shares, seed=1, lanes=4, shuffle_block=8 * SAMPLES)
    return MixtureCourse(order, np.cumsum([0, *counts]))


@pytest.mark.parametrize("components", [[(50, 0.8), (50, 0.2)], [(10, 0.4), (20, 0.3), (40, 0.2), (60, 0.1)]])
def test_expected_needs_of_a_mixture_evict_nearly_as_true_ones(components: list[tuple[int, float]]) -> None:
    assert ratio(mixture(*components), sum(shards for shards, _ in components)) <= NEARLY


def test_shards_used_at_several_times_are_evicted_nearly_as_by_true_next_use() -> None:
    order = Order([SAMPLES] * 50, seed=1, lanes=8, shuffle_block=2 * SAMPLES)
    assert len(order.pieces_drawn()[0]) > 2 * 50
    assert ratio(DatasetCourse(order), 50) <= NEARLY
