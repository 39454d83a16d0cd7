"""What `Pack` and `MaxTokens` have in common: their checks, and how they are opened over the samples of a view."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import UsageError, shown
from mdsx.format import MAX_LENGTH, NUMBERS, Schema, parse_type
from mdsx.order import Course, Grouping, integer, integers
from mdsx.shards import View, lengths_of
from mdsx.stream.casts import pad_items, pad_of
from mdsx.stream.group_batcher import GroupBatcher
from mdsx.stream.packing import Packing
from mdsx.stream.rows import Layout
from mdsx.stream.run import Run

MAX_CAPACITY = 2**31 - 1
"""Positions in a row are int32."""


class Grouped(Layout, Protocol):
    """A batching of groups."""

    @property
    def length(self) -> str | NDArray[np.integer[Any]]: ...
    @property
    def window(self) -> int | None: ...
    def grouping(self, mean: Any) -> Grouping:
        """Return how samples of `mean` length (None: unknown) are grouped."""
        ...


def group_batcher(
    batching: Grouped, view: View, course: Course, epoch_steps: int | None, *, seed: int, shuffle: bool
) -> GroupBatcher:
    """Return how `batching` groups the samples of `view`."""
    if course.run is not None:
        hint = "leave out run= of the mixture, or batching= of the loader"
        raise UsageError("a mixture in runs cannot be grouped", found=f"run={course.run}", hint=hint)
    lengths = lengths_of(view, batching.length)
    rule, given = batching.grouping(lengths.mean), batching.window is not None
    return GroupBatcher(view, lengths, rule, epoch_steps, window_given=given, seed=seed, shuffle=shuffle)


def group_run(before: Run, epoch_steps: int | None) -> Run:
    """Return a run of groups that begins at the epoch of a dataset's run."""
    if before.cursor.position:
        hint = "give the state to load_state_dict() of the loader"
        raise UsageError("the dataset has a position, which a loader with batching= does not take over", hint=hint)
    run = Run(shuffled=before.shuffled, epoch_steps=epoch_steps)
    run.set_epoch(before.epoch)
    return run


def group_packing(batching: Grouped, schema: Schema, info: str | None) -> Packing:
    """Return what makes the batches of `batching`."""
    return Packing(schema, batching, batching.length if isinstance(batching.length, str) else None, info)


def first_lengths(batching: Grouped, samples: int) -> str | NDArray[np.integer[Any]]:
    """Return the lengths of the first `samples` of a dataset."""
    return batching.length if isinstance(batching.length, str) else np.asarray(batching.length)[:samples]


def refuse_repeat(uneven: str) -> None:
    """Raise UsageError for uneven="repeat"."""
    if uneven == "repeat":
        raise UsageError("uneven='repeat' is for batches of samples", hint="an empty batch of groups has 0 rows")


def check_grouped(batching: Grouped, oversize: tuple[str, ...]) -> None:
    """Check what all batchings of groups have, and make it plain: ints, read-only arrays, names of types."""
    set_field(batching, "capacity", integer(batching.capacity, "capacity", 1, MAX_CAPACITY))
    if batching.window is not None:
        set_field(batching, "window", integer(batching.window, "window", 1, MAX_CAPACITY))
    if batching.oversize not in oversize:
        expected = ", ".join(map(repr, oversize))
        raise UsageError("oversize is unknown", found=shown(batching.oversize), expected=expected)
    if not isinstance(batching.length, str):
        set_field(batching, "length", _kept(batching.length))
    pads: object = batching.pad_value
    for name, value in pads.items() if isinstance(pads, Mapping) else [(None, pads)]:
        if not isinstance(value, int | float | np.number | np.bool_):
            place = "pad_value" if name is None else f"pad_value of column {name!r}"
            raise UsageError("a pad value must be a number", place=place, found=shown(value))
    set_field(batching, "pad_value", dict(pads) if isinstance(pads, Mapping) else pads)
    if batching.dtypes is not None and not isinstance(batching.dtypes, Mapping):
        raise UsageError("dtypes must be a mapping from columns to types", found=shown(batching.dtypes))
    set_field(batching, "dtypes", {name: base_type(name, dtype) for name, dtype in (batching.dtypes or {}).items()})
    for name, base in (batching.dtypes or {}).items():
        pad_items(base, pad_of(batching, name), name)


def _kept(given: object) -> NDArray[np.integer[Any]]:
    """Return a copy of given lengths that nobody can change."""
    found = np.array(given)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise UsageError(
            "length must be the name of a column, or a one-dimensional array of integers",
            found=f"dtype {found.dtype}, shape {list(found.shape)}",
        )
    integers(found, "length", MAX_LENGTH + 1)
    found.flags.writeable = False
    return found


def base_type(name: str, dtype: object) -> str:
    """Return "int64" for "int64", np.int64, np.dtype("int64") and torch.int64."""
    text = np.dtype(dtype).name if isinstance(dtype, type) else str(dtype).removeprefix("torch.")
    kind = parse_type(text) if text.isidentifier() else None
    if kind is None or not kind.scalar:
        raise UsageError(
            "there is no such type of numbers",
            place=f"dtypes, column {name!r}",
            found=shown(dtype),
            expected=", ".join(NUMBERS),
        )
    return kind.base


def set_field(batching: object, name: str, value: object) -> None:
    """Set a field of a frozen dataclass, in its `__post_init__`."""
    object.__setattr__(batching, name, value)
