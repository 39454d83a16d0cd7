"""How columns are packed: the types of their numbers in a batch, and their pad values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from numpy.typing import NDArray

from mdsx.errors import UsageError
from mdsx.format import check_castable, given_item
from mdsx.stream.rows import Layout, Number

ADDED = ("segment_ids", "position_ids", "cu_seqlens", "max_seqlen", "lengths", "global_samples", "global_tokens")
"""The keys that packing always adds to a batch."""


class How(NamedTuple):
    """How a column is packed: its stored type, its type in the batch, and the pad value as an item."""

    source: str
    target: str
    pad: NDArray[Any]


def hows_of(bases: Mapping[str, tuple[str, str] | None], layout: Layout) -> dict[str, How | None]:
    """Return how each column is packed, from its stored type and the type that it is read as, or None if it is not
    packed. Raise UsageError for columns that cannot be packed."""
    dtypes, pads = layout.dtypes or {}, layout.pad_value if isinstance(layout.pad_value, Mapping) else {}
    hows = dict[str, How | None]()
    for name, found in bases.items():
        if name in ADDED or name in layout.extras.keys:
            hint = "rename the column by columns={new name: name}"
            if name not in ADDED:
                hint += f", or leave out {name}=True"
            message = f"packing adds a key {name!r} to batches"
            raise UsageError(message, place=f"column {name!r}", hint=hint)
        hows[name] = None
        if found is not None:
            source, target = found[0], dtypes.get(name, found[1])
            check_castable(name, source, target)
            hows[name] = How(source, target, given_item(target, pad_of(layout, name), "pad_value", name))
    for argument, names in (("dtypes", dtypes), ("pad_value", pads)):
        if unknown := [name for name in names if not hows.get(name)]:
            there = ", ".join(name for name, how in hows.items() if how)
            expected = there or "none, as no column is one-dimensional and of numbers"
            message = "the column is not packed"
            raise UsageError(message, place=f"{argument}, column {unknown[0]!r}", expected=expected)
    return hows


def pad_of(layout: Layout, name: str) -> Number:
    """Return the pad value of a column."""
    return layout.pad_value.get(name, 0) if isinstance(layout.pad_value, Mapping) else layout.pad_value
