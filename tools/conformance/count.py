"""What runs consumed against what they should have: lost, repeated, in other batches. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import NamedTuple

from tools.conformance.task import Consumed


class Batch(NamedTuple):
    """The samples that all ranks together took in one step."""

    epoch: int
    ids: tuple[int, ...]

    @property
    def content(self) -> tuple[int, list[int]]:
        """What equal batches have in common: samples are compared as a set."""
        return self.epoch, sorted(self.ids)


def global_batches(ranks: Iterable[Sequence[Consumed]]) -> list[Batch]:
    """The global batches of one leg, in order: a rank's nth batch of an epoch belongs to that epoch's nth step."""
    batches: dict[tuple[int, int], list[int]] = {}
    for taken in ranks:
        for part in taken:
            batches.setdefault((part.epoch, part.step), []).extend(part.ids)
    return [Batch(epoch, tuple(batches[epoch, step])) for epoch, step in sorted(batches)]


def count(batches: Iterable[Batch], ids: Iterable[int]) -> tuple[int, int]:
    """(lost, repeated), where each of `ids` must come as often as it is there. A strange id counts as repeated."""
    found, wanted = Counter(number for batch in batches for number in batch.ids), Counter(ids)
    return (wanted - found).total(), (found - wanted).total()


def count_epochs(batches: Sequence[Batch], ids: Sequence[int], epochs: int) -> list[tuple[int, int]]:
    """Of each epoch (lost, repeated), where each of `ids` must come exactly once."""
    return [count((batch for batch in batches if batch.epoch == epoch), ids) for epoch in range(epochs)]


def first_difference(batches: Sequence[Batch], reference: Sequence[Batch]) -> int | None:
    """The number of the first batch that is not the same set in both, in order."""
    pairs = zip_longest(*([batch.content for batch in run if batch.ids] for run in (batches, reference)))
    return next((number for number, (one, other) in enumerate(pairs) if one != other), None)


def cut(order: Sequence[Batch], sizes: Iterable[tuple[int, int]]) -> list[Batch]:
    """`order`, whose batches are of one sample each, cut into a batch for each of `sizes`: (epoch, samples at most).

    What `sizes` leave of an epoch is a last batch.
    """
    lines: dict[int, list[int]] = {}
    for batch in order:
        lines.setdefault(batch.epoch, []).extend(batch.ids)
    result = []
    for epoch, size in sizes:
        line = lines.get(epoch, [])
        result.append(Batch(epoch, tuple(line[:size])))
        del line[:size]
    return result + [Batch(epoch, tuple(line)) for epoch, line in lines.items() if line]
