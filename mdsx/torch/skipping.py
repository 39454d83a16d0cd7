"""Batches without the samples that fail: those that are damaged, and those for which `transform` raises.

The batch carries the skipped samples as text. The loader logs and counts them when it hands out the batch, so once for
each sample: batches prepared in vain, or made twice, do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from mdsx.format import Schema
from mdsx.stream import Batch, Failure
from mdsx.torch.assembly import Collate, Transform, from_columns, from_samples, transformed, transformed_each
from mdsx.torch.uneven import Uneven

OnError = Literal["raise", "skip"]


class Short(NamedTuple):
    """A batch without some of its samples: which, and why."""

    batch: Any
    skipped: tuple[str, ...]


def assemble_sound(
    schema: Schema,
    batch: Batch,
    transform: Transform | None,
    collate: Collate | None,
    uneven: Uneven,
    stand_ins: Callable[[], Iterator[Batch]],
) -> Any:
    """As `assemble`, without the samples that fail; return a Short if there are any.

    If no sample is left, return what a rank without samples gets, made from the first good one of `stand_ins`.
    """
    failures, ours = list(batch.damaged), not batch.stand_in
    if transform is None and collate is None:
        if failures and not len(batch.positions) and uneven == "repeat":
            batch, _ = _stand_in(schema, None, stand_ins(), failures)
        made = from_columns(schema, batch, uneven)
    else:
        samples = list[Any]()
        for result in transformed_each(schema, batch, transform):
            (failures if isinstance(result, Failure) else samples).append(result)
        if failures and not samples:
            batch, samples = _stand_in(schema, transform, stand_ins(), failures)
        made = from_samples(batch, samples, collate, uneven)
    return Short(made, skipped_lines(failures)) if failures and ours else made


def skipped_lines(failures: Sequence[Failure]) -> tuple[str, ...]:
    """Return the log's text for samples left out."""
    lines = [f"{failure.place}: {type(failure.error).__name__}: {failure.error}" for failure in failures]
    return tuple(line for _, line in sorted(zip([failure.position for failure in failures], lines, strict=True)))


def _stand_in(
    schema: Schema, transform: Transform | None, candidates: Iterator[Batch], failures: list[Failure]
) -> tuple[Batch, list[Any]]:
    """Return the first single sample that succeeds. Raise the first of `failures` if none does."""
    for batch in candidates:
        try:
            return batch, list(transformed(schema, batch, transform))
        except Exception:  # its own batch reports it
            continue
    error = failures[0].error
    error.add_note("mdsx: no sample is left of this batch, and none near it shows the structure of an empty one")
    raise error
