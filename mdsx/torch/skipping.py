"""Batches without the samples that cannot be made: those that are damaged, and those at which `transform` raises.

What was left out goes with the batch, as text. It is logged and counted where the batch is handed out, so once for each
sample: batches that were prepared in vain, or are made once more, do not count.
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
    """A batch from which samples were left out: each of them, and why."""

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
    """As `assemble`, without the samples that cannot be made; Short where there are any.

    Where no sample is left, it is what a rank without samples gets, made of the first of `stand_ins` that can be made.
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
    """What the log says of samples that are left out."""
    lines = [f"{failure.place}: {type(failure.error).__name__}: {failure.error}" for failure in failures]
    return tuple(line for _, line in sorted(zip([failure.position for failure in failures], lines, strict=True)))


def _stand_in(
    schema: Schema, transform: Transform | None, candidates: Iterator[Batch], failures: list[Failure]
) -> tuple[Batch, list[Any]]:
    """The first single sample that can be made. Raises the first of `failures` where there is none."""
    for batch in candidates:
        try:
            return batch, list(transformed(schema, batch, transform))
        except Exception:  # it is reported at its own batch
            continue
    error = failures[0].error
    error.add_note("mdsx: no sample is left of this batch, and none near it shows the structure of an empty one")
    raise error
