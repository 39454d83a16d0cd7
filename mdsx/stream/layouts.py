"""What batchings share: checks of their arguments and states; and how those by length group the samples of a view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Protocol

import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.errors import UsageError, shown
from mdsx.format import MAX_LENGTH, given_item, number_type
from mdsx.order import Balance, Course, Grouping, Size, integer, integers
from mdsx.shards import Lengths, View, lengths_of
from mdsx.stream.casts import pad_of
from mdsx.stream.extras import AddedLengths
from mdsx.stream.group_batcher import GroupBatcher
from mdsx.stream.rows import Layout
from mdsx.stream.run import Run

Length = str | Sequence[str] | NDArray[np.integer[Any]]
"""What determines a sample's length: a column, the longest of several columns, or given numbers."""
MAX_CAPACITY = 2**31 - 1
"""Positions in a row are int32."""


class ByLength:
    """The members of a `Batching` that are equal in `Pack` and `MaxTokens`."""

    counts_tokens: bool = True
    step_samples: int | None = None
    buckets: tuple[Size, ...] | None = None

    @property
    def grouped(self) -> bool:
        return True

    def run(self, before: Run, epoch_steps: int | None) -> Run:
        return group_run(before, epoch_steps)


class Grouped(Layout, Protocol):
    """A batching of groups."""

    @property
    def capacity(self) -> int: ...
    @property
    def length(self) -> Length: ...
    @property
    def window(self) -> int | None: ...
    def grouping(self, mean: Any, lanes: int) -> Grouping:
        """Return how samples of `mean` length (None: unknown) are grouped, in an order with `lanes`."""
        ...


def group_batcher(
    batching: Grouped,
    view: View,
    course: Course,
    epoch_steps: int | None,
    *,
    seed: int,
    shuffle: bool,
    balance: Balance | None = None,
) -> GroupBatcher:
    """Return the batcher that groups the samples of `view`. `balance`: how a node's rows are dealt to its ranks."""
    check_no_runs(course)
    lengths: Lengths = lengths_of(view, batching.length)  # type: ignore[arg-type]  # `check_grouped` made names a tuple
    if batching.extras.added:
        lengths = AddedLengths(lengths, batching.extras.added)
    rule, given = batching.grouping(lengths.mean, course.lanes), batching.window is not None
    return GroupBatcher(
        view, lengths, rule, epoch_steps, window_given=given, seed=seed, shuffle=shuffle, balance=balance
    )


def check_no_runs(course: Course) -> None:
    """Raise UsageError for a mixture in runs."""
    if course.run is not None:
        hint = "remove run= from the mixture, or batching= from the loader"
        raise UsageError("a mixture with run= cannot be grouped", found=f"run={course.run}", hint=hint)


def group_run(before: Run, epoch_steps: int | None) -> Run:
    """Return a run of groups that begins in the epoch of a dataset's run."""
    if before.cursor.position:
        hint = "give the state to load_state_dict() of the loader"
        raise UsageError("a loader with batching= cannot continue at the dataset's position", hint=hint)
    run = Run(shuffled=before.shuffled, epoch_steps=epoch_steps)
    run.set_epoch(before.epoch)
    return run


def groups_of(batching: Grouped) -> dict[str, Any]:
    """Return what the groups of `batching` depend on, as JSON."""
    rule, length = batching.grouping(None, 1), batching.length
    given: Any = length if isinstance(length, str) else list(length)
    if isinstance(length, np.ndarray):
        given = {"hash": xxhash.xxh3_128_hexdigest(length.astype("<u4").data)}
    found = {"kind": rule.kind, "capacity": rule.capacity, "window": batching.window, "oversize": rule.oversize}
    return {**found, "max_samples": rule.max_samples, "length": given, "added": batching.extras.added}


def checked_groups(batching: Grouped, groups: Any) -> dict[str, Any]:
    """Return the fields of a batching like this one with other groups, as in JSON. Raise ValueError."""
    own = groups_of(batching)
    if not isinstance(groups, Mapping) or set(groups) != set(own):
        raise ValueError("groups by length")
    names = {field.name for field in fields(batching)} - {"length"}  # type: ignore[arg-type]  # a dataclass
    found = {name: value for name, value in groups.items() if name in names}
    if groups["length"] != own["length"]:
        found["length"] = _columns(groups["length"])
    for name in own:
        if name in found or name == "length":
            continue
        if groups[name] != own[name] or type(groups[name]) is not type(own[name]):
            raise ValueError(f"groups with {name}={own[name]!r}")
    return found


def _columns(length: Any) -> str | tuple[str, ...]:
    """Return the columns that a state names. Raise ValueError if its lengths were given as an array."""
    names = [length] if isinstance(length, str) else length
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError("groups by the same lengths")
    return length if isinstance(length, str) else tuple(names)


def length_columns(batching: Grouped) -> tuple[str, ...]:
    """Return the columns of lengths; none if lengths were given as an array."""
    length = batching.length
    return (length,) if isinstance(length, str) else length if isinstance(length, tuple) else ()


def first_lengths(batching: Grouped, samples: int) -> Length:
    """Return the lengths of the first `samples` of a dataset."""
    return batching.length if length_columns(batching) else np.asarray(batching.length)[:samples]


def refuse_collate(batching: object, collate: object) -> None:
    """Raise UsageError for a `collate_fn`."""
    if collate is not None:
        raise UsageError(
            f"mdsx.{type(batching).__name__} makes the batches, so it takes no collate_fn",
            hint="change samples by the dataset's transform=, and batches in the loop",
        )


def refuse_repeat(uneven: str) -> None:
    """Raise UsageError for uneven="repeat"."""
    if uneven == "repeat":
        hint = "with batching=, a rank without samples gets a batch of 0 rows"
        raise UsageError("uneven='repeat' is for batches of samples without batching=", hint=hint)


def check_grouped(batching: Grouped, oversize: tuple[str | None, ...]) -> None:
    """Check the fields that all batchings of groups share, and normalise them: ints, read-only arrays, type names."""
    set_field(batching, "capacity", integer(batching.capacity, "capacity", 1, MAX_CAPACITY))
    if batching.window is not None:
        set_field(batching, "window", integer(batching.window, "window", 1, MAX_CAPACITY))
    if batching.oversize not in oversize:
        expected = ", ".join(map(repr, oversize))
        raise UsageError("oversize is unknown", found=shown(batching.oversize), expected=expected)
    if not isinstance(batching.length, str):
        set_field(batching, "length", _kept(batching.length))
    if isinstance(batching.length, tuple) and batching.oversize in ("split", None):
        hint = 'give kind="pack" and oversize="truncate", or join the columns by a transform'
        raise UsageError("samples whose columns have lengths of their own cannot be split", hint=hint)
    check_layout(batching)


def check_layout(batching: Layout) -> None:
    """Check the fields of a layout, and normalise them."""
    pads: object = batching.pad_value
    for name, value in pads.items() if isinstance(pads, Mapping) else [(None, pads)]:
        if not isinstance(value, int | float | np.number | np.bool_):
            place = "pad_value" if name is None else f"pad_value of column {name!r}"
            raise UsageError("a pad value must be a number", place=place, found=shown(value))
    set_field(batching, "pad_value", dict(pads) if isinstance(pads, Mapping) else pads)
    if batching.dtypes is not None and not isinstance(batching.dtypes, Mapping):
        raise UsageError("dtypes must be a mapping from columns to types", found=shown(batching.dtypes))
    set_field(batching, "dtypes", {name: number_type(name, dtype) for name, dtype in (batching.dtypes or {}).items()})
    for name, base in (batching.dtypes or {}).items():
        given_item(base, pad_of(batching, name), "pad_value", name)


def _kept(given: object) -> tuple[str, ...] | NDArray[np.integer[Any]]:
    """Return an immutable copy of given lengths, or names."""
    if isinstance(given, list | tuple) and given and all(isinstance(name, str) for name in given):
        return tuple(given)
    found = np.array(given)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise UsageError(
            "length must be the name of a column, a list of names, or a one-dimensional array of integers",
            found=f"dtype {found.dtype}, shape {list(found.shape)}",
        )
    integers(found, "length", MAX_LENGTH + 1)
    found.flags.writeable = False
    return found


def set_field(batching: object, name: str, value: object) -> None:
    """Set a field of a frozen dataclass, in its `__post_init__`."""
    object.__setattr__(batching, name, value)
