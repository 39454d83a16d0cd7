"""Cast numbers from one type to another, in storage form: `bool` as uint8, types that NumPy lacks as their bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import UsageError, shown
from mdsx.format.bases import NUMBERS
from mdsx.format.families.record import Float
from mdsx.format.inputs import Refused
from mdsx.format.numbers import to_items
from mdsx.format.types import parse_type


def number_type(name: str, dtype: object) -> str:
    """Return "int64" for "int64", np.int64, np.dtype("int64") and torch.int64. Raise UsageError that names the column
    `name` for anything that is not a type of numbers."""
    text = np.dtype(dtype).name if isinstance(dtype, type) else str(dtype).removeprefix("torch.")
    kind = parse_type(text) if text.isidentifier() else None
    if kind is None or not kind.scalar:
        raise UsageError(
            "unknown type of numbers",
            place=f"dtypes, column {name!r}",
            found=shown(dtype),
            expected=", ".join(NUMBERS),
        )
    return kind.base


def check_castable(name: str, source: str, target: str) -> None:
    """Raise UsageError unless numbers of type `source` may be cast to `target`. Floats cannot become integers, and only
    bools become bools."""
    kinds = NUMBERS[source].kind, NUMBERS[target].kind
    if source != target and (kinds[1] == "bool" or (kinds[1] != "float" and kinds[0] == "float")):
        raise UsageError(
            "a column cannot be cast to this type",
            place=f"dtypes, column {name!r}",
            found=f"{source} to {target}",
            expected="integers to integers or floats, floats to floats",
        )


def cast(items: NDArray[Any], source: str, target: str) -> NDArray[Any]:
    """Return `items` as `target`; the same array if that is already their type. Integers must fit (see
    `first_outside`).

    Floats are rounded to nearest, ties to even. Those that are too large become infinite, or NaN if the type has no
    infinity.
    """
    if source == target:
        return items
    base, wanted = NUMBERS[source], NUMBERS[target]
    if not isinstance(wanted, Float):
        return items.astype(wanted.item)
    return wanted.narrow(base.numpy(items))


def always_fits(source: str, target: str) -> bool:
    """Return whether each number of type `source` is in the range of `target`."""
    wanted = NUMBERS[target]
    return wanted.kind == "float" or np.can_cast(NUMBERS[source].item, wanted.item)


def first_outside(items: NDArray[Any], target: str) -> int | None:
    """Return the index of the first item that an integer type `target` cannot hold, or None."""
    limits = np.iinfo(target)
    if not items.size or (limits.min <= int(items.min()) and int(items.max()) <= limits.max):
        return None
    return next(place for place, item in enumerate(items.flat) if not limits.min <= int(item) <= limits.max)


def given_item(base: str, value: object, argument: str, name: str) -> NDArray[Any]:
    """Return a number that the user gave for the column `name` as a stored item of type `base`, of shape []. Raise
    UsageError if it does not fit."""
    try:
        found = to_items(NUMBERS[base], value)
        if found.shape:
            raise Refused("a number", shown(value))
    except Refused as refused:
        raise UsageError(
            f"the {argument.replace('_', ' ')} does not fit the column's type in the batch",
            place=f"{argument} of column {name!r}, type {base!r}",
            found=refused.found,
            expected=refused.expected,
            hint=f"give another {argument}, or another type in dtypes=",
        ) from None
    return found
