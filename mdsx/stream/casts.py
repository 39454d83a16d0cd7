"""How columns are packed: which types their numbers have in a batch, and what pads them.

Numbers are in storage form, before and after: `bool` as uint8, types that NumPy lacks as bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import UsageError
from mdsx.format import NUMBERS, Float, Refused, to_items
from mdsx.stream.rows import Layout, Number

ADDED = ("segment_ids", "position_ids", "cu_seqlens", "max_seqlen", "lengths", "global_samples", "global_tokens")
"""The keys that packing adds to a batch."""


def castable(source: str, target: str) -> bool:
    """Return whether numbers of type `source` may become `target`: not floats integers, and only bools bools."""
    kinds = NUMBERS[source].kind, NUMBERS[target].kind
    return source == target or (kinds[1] != "bool" and (kinds[1] == "float" or kinds[0] != "float"))


def cast(items: NDArray[Any], source: str, target: str) -> NDArray[Any]:
    """Return `items` as `target`; the same array if that is their type. Integers must fit (see `first_outside`).

    Floats are rounded to nearest, ties to even; those too large become infinite, or NaN where there is no infinity.
    """
    if source == target:
        return items
    base, wanted = NUMBERS[source], NUMBERS[target]
    if not isinstance(wanted, Float):
        return items.astype(wanted.item)
    return wanted.narrow(base.numpy(items) if isinstance(base, Float) else items)


def always_fits(source: str, target: str) -> bool:
    """Return whether each number of type `source` is in the range of `target`."""
    wanted = NUMBERS[target]
    return wanted.kind == "float" or np.can_cast(NUMBERS[source].item, wanted.item, "safe")


def first_outside(items: NDArray[Any], target: str) -> int | None:
    """Return the place of the first item that an integer type `target` cannot hold, or None."""
    limits = np.iinfo(target)
    if not items.size or (limits.min <= int(items.min()) and int(items.max()) <= limits.max):
        return None
    return next(place for place, item in enumerate(items.flat) if not limits.min <= int(item) <= limits.max)


class How(NamedTuple):
    """How a column is packed: the type of its stored values, of those in the batch, and the pad value as an item."""

    source: str
    target: str
    pad: NDArray[Any]


def hows_of(bases: Mapping[str, str | None], layout: Layout) -> dict[str, How | None]:
    """Return how each column is packed, from its type if it is. Raise UsageError for what cannot be."""
    dtypes, pads = layout.dtypes or {}, layout.pad_value if isinstance(layout.pad_value, Mapping) else {}
    hows = dict[str, How | None]()
    for name, source in bases.items():
        if name in ADDED:
            message = f"a packed batch has a key {name!r} of its own"
            raise UsageError(message, place=f"column {name!r}", hint="rename the column by columns={new name: name}")
        target = source and dtypes.get(name, source)
        if source and target and not castable(source, target):
            raise UsageError(
                "a column cannot have this type in the batch",
                place=f"dtypes, column {name!r}",
                found=f"{source} to {target}",
                expected="integers to integers or floats, floats to floats",
            )
        hows[name] = How(source, target, pad_items(target, pad_of(layout, name), name)) if source and target else None
    for argument, names in (("dtypes", dtypes), ("pad_value", pads)):
        if unknown := [name for name in names if not hows.get(name)]:
            there = ", ".join(name for name, how in hows.items() if how)
            expected = there or "none, as no column is one-dimensional and of numbers"
            raise UsageError("this is no packed column", place=f"{argument}, column {unknown[0]!r}", expected=expected)
    return hows


def pad_items(base: str, value: Number, name: str) -> NDArray[Any]:
    """Return a pad value as a stored item of the type `base`, shape []. Raise UsageError if it does not fit."""
    try:
        return to_items(NUMBERS[base], value)
    except Refused as refused:
        raise UsageError(
            "the pad value does not fit the column's type in the batch",
            place=f"pad_value of column {name!r}, type {base!r}",
            found=refused.found,
            expected=refused.expected,
            hint="give another pad_value, or another type by dtypes=",
        ) from None


def pad_of(layout: Layout, name: str) -> Number:
    """Return the pad value of a column."""
    return layout.pad_value.get(name, 0) if isinstance(layout.pad_value, Mapping) else layout.pad_value
