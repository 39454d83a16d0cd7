"""What runs consumed against what they should have: lost, repeated, in other batches. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from tools.conformance.task import Consumed


@dataclass(frozen=True)
class Batch:
    """The samples that all ranks together took in one step."""

    epoch: int
    ids: tuple[int, ...]


def global_batches(ranks: Iterable[Sequence[Consumed]]) -> list[Batch]:
    """The global batches of one leg, in order: a rank's nth batch of an epoch belongs to that epoch's nth step."""
    batches: dict[tuple[int, int], list[int]] = {}
    for taken in ranks:
        for part in taken:
            batches.setdefault((part.epoch, part.step), []).extend(part.ids)
    return [Batch(epoch, tuple(batches[epoch, step])) for epoch, step in sorted(batches)]


def count_epochs(batches: Sequence[Batch], ids: Iterable[int], epochs: int) -> list[tuple[int, int]]:
    """Of each epoch (lost, repeated), where each of `ids` must come exactly once; last, what is beyond them all.

    A strange id counts as repeated.
    """
    wanted = Counter(ids)
    result = []
    for epoch in range(epochs):
        found = Counter(number for batch in batches if batch.epoch == epoch for number in batch.ids)
        result.append(((wanted - found).total(), (found - wanted).total()))
    return [*result, (0, sum(len(batch.ids) for batch in batches if batch.epoch >= epochs))]


def count_against(batches: Sequence[Batch], reference: Sequence[Batch]) -> tuple[int, int]:
    """(lost, repeated) against all that another run consumed."""
    found = Counter(number for batch in batches for number in batch.ids)
    wanted = Counter(number for batch in reference for number in batch.ids)
    return (wanted - found).total(), (found - wanted).total()


def first_difference(batches: Sequence[Batch], reference: Sequence[Batch]) -> Batch | None:
    """The first batch that is not the same set in both, in order."""
    pairs = zip_longest(_filled(batches), _filled(reference))
    return next((one or other for one, other in pairs if _as_set(one) != _as_set(other)), None)


def cut_from(batches: Sequence[Batch], sizes: Sequence[int], order: Sequence[Batch]) -> list[Batch]:
    """`order`, whose batches are of one sample each, cut into batches of `sizes` as far as each epoch goes.

    Each of `batches` has its size in `sizes`, and a batch of its epoch in the result. Samples that it left out follow.
    """
    lines: dict[int, list[int]] = {}
    for batch in order:
        lines.setdefault(batch.epoch, []).extend(batch.ids)
    result = []
    for batch, size in zip(batches, sizes, strict=True):
        line = lines.get(batch.epoch, [])
        result.append(Batch(batch.epoch, tuple(line[:size])))
        del line[:size]
    return result + [Batch(epoch, tuple(line)) for epoch, line in lines.items() if line]


def _filled(batches: Sequence[Batch]) -> list[Batch]:
    return [batch for batch in batches if batch.ids]


def _as_set(batch: Batch | None) -> tuple[int, list[int]] | None:
    return None if batch is None else (batch.epoch, sorted(batch.ids))
