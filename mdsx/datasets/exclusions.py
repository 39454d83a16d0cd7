"""Excluded samples of a mixture's components: the user's lists, and how a state records them.

Each component has one list of sample numbers, in the order in which they were excluded; new numbers are appended. A
state records how many numbers of the list apply from which tick on, and their hash: in the middle of a window, a run
still has the exclusions that the window began with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import ArrayLike, NDArray

from mdsx.base.arrays import as_array
from mdsx.errors import StateError, UsageError, shown
from mdsx.order import MAX_SAMPLES, LeftOut

Excludes = Mapping[str, ArrayLike]
"""From a component's name to the numbers of its excluded samples."""


class Held(NamedTuple):
    """From tick `since` on, the first `size` numbers of a component's list are excluded. `hash` is their hash."""

    component: int
    since: int
    size: int
    hash: str


def checked_numbers(given: ArrayLike, name: str, samples: int | None) -> NDArray[np.int64]:
    """Return the excluded numbers of component `name`, which has `samples` (None: unknown). Raise UsageError."""
    place = f"exclude[{name!r}]"
    numbers = as_array(given)
    if numbers.ndim != 1 or (numbers.dtype.kind not in "iu" and numbers.size):
        hint = "give a list or an array; new numbers at its end"
        raise UsageError("exclude has the numbers of samples", place=place, found=shown(given), hint=hint)
    least, most = (int(numbers.min()), int(numbers.max())) if numbers.size else (0, 0)
    if numbers.size and (least < 0 or most >= (MAX_SAMPLES if samples is None else samples)):
        wrong = least if least < 0 else most
        expected = "a number of at least 0" if samples is None else f"0 to {samples - 1}"
        if samples == 0:
            expected = "no number: the component has no samples"
        raise UsageError("an excluded sample does not exist", place=place, found=wrong, expected=expected)
    numbers = numbers.astype(np.int64)
    unique, counts = np.unique(numbers, return_counts=True)
    if len(unique) < len(numbers):
        twice = int(unique[counts > 1][0])
        raise UsageError("a sample is excluded twice", place=place, found=twice, hint="give each number once")
    return numbers


def hash_of(numbers: NDArray[np.int64]) -> str:
    """Return XXH3-128 of numbers, each a u64."""
    return xxhash.xxh3_128_hexdigest(np.ascontiguousarray(numbers, "<u8").data)


def held_of(found: Any, components: int) -> tuple[Held, ...]:
    """Return the field `exclude` of a state. Raise StateError."""
    try:
        held = tuple(Held(*each) for each in found)
        numbers = [number for each in held for number in each[:3]]
        if not all(type(number) is int and 0 <= number < MAX_SAMPLES for number in numbers):
            raise TypeError("a number")
        if not all(each.component < components and isinstance(each.hash, str) for each in held):
            raise ValueError("a component")
        if sorted(held) != list(held) or len({each[:2] for each in held}) < len(held):
            raise ValueError("the order")
    except (TypeError, ValueError):
        expected = "[[component, tick, numbers, their hash], ...]"
        raise StateError(
            "the state's field exclude is damaged", place="exclude", found=shown(found), expected=expected
        ) from None
    return held


def extended(
    held: Sequence[Held], component: int, name: str, numbers: NDArray[np.int64], since: int
) -> tuple[Held, ...]:
    """Return `held` with a component's whole list excluded from tick `since` on.

    Raise UsageError if the list does not begin with the numbers that are excluded already.
    """
    own = [each for each in held if each.component == component]
    if own:
        last = own[-1]
        if len(numbers) < last.size or hash_of(numbers[: last.size]) != last.hash:
            raise UsageError(
                "the list does not begin with the numbers that the run excludes already",
                place=f"exclude[{name!r}]",
                found=f"{len(numbers)} numbers",
                expected=f"first the {last.size} with the hash {last.hash}, in their order",
                hint="append new numbers to the previous list; an exclusion cannot be undone in a run",
            )
        if len(numbers) == last.size:
            return tuple(held)
    if not len(numbers):
        return tuple(held)
    others = [each for each in held if each[:2] != (component, since)]
    return tuple(sorted([*others, Held(component, since, len(numbers), hash_of(numbers))]))


def check_given(held: Sequence[Held], component: int, name: str, numbers: NDArray[np.int64]) -> None:
    """Raise StateError if a component's list differs from the state's."""
    own = [each for each in held if each.component == component]
    place = f"exclude, component {name!r}"
    if not own and len(numbers):
        raise StateError(
            "the mixture excludes samples that the run does not",
            place=place,
            found="none in the state",
            expected=f"{len(numbers)} numbers",
            hint="change the state: mdsx.change(state, exclude={name: numbers}), or `mdsx change STATE --exclude`",
        )
    if not own or (len(numbers) == own[-1].size and all(hash_of(numbers[: each.size]) == each.hash for each in own)):
        return
    last = own[-1]
    raise StateError(
        "the run and the mixture exclude different samples",
        place=place,
        found=f"{last.size} numbers with the hash {last.hash} in the state",
        expected=f"{len(numbers)} with the hash {hash_of(numbers)}" if len(numbers) else "none, as in the mixture",
        hint=f"give the mixture exclude={{{name!r}: numbers}} with the same numbers in the same order; to exclude "
        "more, append them and call mdsx.change(state, exclude=...)",
    )


def left_out(held: Sequence[Held], component: int, numbers: NDArray[np.int64]) -> LeftOut:
    """Return from which tick on each of a component's numbers is excluded."""
    since = np.empty(len(numbers), np.int64)
    for each in sorted((each for each in held if each.component == component), reverse=True):
        since[: each.size] = each.since
    return LeftOut(numbers, since)
