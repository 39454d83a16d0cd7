"""Collation: stack values into arrays where possible, and make batches for a rank without samples.

In the last batch of an epoch, such a rank gets an empty batch, or one with a repeated sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from copy import copy, deepcopy
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import UsageError, shown
from mdsx.stream import Info

Uneven = Literal["empty", "repeat"]
VALID = "valid"
Listed = Callable[[list[Any]], list[Any]]
"""Converts a list of values that do not stack for a batch."""


class _Ways(NamedTuple):
    """How to join values."""

    stack: Callable[[list[Any]], Any]
    listed: Listed
    array: Callable[[NDArray[Any]], Any]


def join_samples(
    samples: Sequence[Any],
    stack: Callable[[list[Any]], Any],
    listed: Listed,
    array: Callable[[NDArray[Any]], Any],
) -> Any:
    """Join samples into a batch, value by value: with `stack`, or if it raises, with `listed`. `array` converts a NumPy
    array to the library's.

    Raises:
        UsageError: The samples have different keys.
    """
    mappings = [sample for sample in samples if isinstance(sample, Mapping)]
    other = next((sample for sample in mappings if set(sample) != set(mappings[0])), None)
    if other is not None:
        raise UsageError(
            "the samples of a batch have different keys",
            found=shown(sorted(other, key=str)),
            expected=shown(sorted(mappings[0], key=str)),
            hint="give each sample the same keys, with None where it has no value",
        )
    return _joined(list(samples), _Ways(stack, listed, array))


def _joined(values: list[Any], ways: _Ways) -> Any:
    first = values[0]
    if isinstance(first, str | bytes | memoryview) or any(value is None for value in values):
        return ways.listed(values)
    if isinstance(first, Mapping):
        if not all(isinstance(value, Mapping) and set(value) == set(first) for value in values):
            return values
        joined = {key: _joined([value[key] for value in values], ways) for key in first}
        if isinstance(first, Info):
            return {**joined, "seed": ways.array(np.array([value["seed"] for value in values], np.uint64))}
        return _alike(first, joined)
    if isinstance(first, Sequence):
        if not all(isinstance(value, Sequence) and len(value) == len(first) for value in values):
            return values
        places = [_joined(list(column), ways) for column in zip(*values, strict=True)]
        if isinstance(first, tuple):
            return type(first)(*places) if hasattr(first, "_fields") else places
        return _alike(first, places)
    try:
        return ways.stack(values)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return ways.listed(values)


def _alike(first: Any, joined: Any) -> Any:
    """Return `joined` as the type of `first` if possible, as PyTorch does."""
    try:
        if isinstance(first, MutableMapping):
            same: Any = copy(first)
            same.update(joined)
            return same
        if isinstance(first, MutableSequence):
            same = copy(first)
            for place, value in enumerate(joined):
                same[place] = value
            return same
        return type(first)(joined)
    except TypeError:
        return joined


# --- a rank without samples


def emptied(sample: Any, collate: Any) -> Any:
    """Return a batch of 0 samples, with the structure that `collate` gives to batches of samples like this one.

    The parts that differ between a batch of one and a batch of two such samples grow with the samples: cut these to 0.
    Raise UsageError if such a part cannot be cut.
    """
    one = collate([deepcopy(sample)])
    return _cut(one, collate([deepcopy(sample), deepcopy(sample)]), "batch")


def with_mask(batch: Any, mask: Any) -> Any:
    """Return the batch with its mask, bool [n]: as key "valid" of a dict, else as the pair (batch, mask)."""
    if not isinstance(batch, Mapping):
        return batch, mask
    if VALID in batch:
        raise UsageError(f"a batch has the key {VALID!r} already, which uneven='repeat' adds", hint="rename it")
    return _alike(batch, {**batch, VALID: mask})


def _cut(one: Any, two: Any, place: str) -> Any:
    """Extrapolate from batches of `two` samples and `one` to a batch of none."""
    if type(one) is type(two):
        if isinstance(getattr(one, "shape", None), tuple):
            axes = [axis for axis, (a, b) in enumerate(zip(one.shape, two.shape, strict=False)) if a != b]
            if len(one.shape) == len(two.shape) and len(axes) == 1:
                size = 2 * one.shape[axes[0]] - two.shape[axes[0]]
                if size >= 0:
                    return one[(slice(None),) * axes[0] + (slice(0, size),)]
            if not axes and bool((one == two).all()):
                return one
        elif isinstance(one, Mapping):
            if set(one) == set(two):
                return _alike(one, {key: _cut(one[key], two[key], f"{place}[{key!r}]") for key in one})
        elif isinstance(one, list | tuple):
            if len(one) == len(two):
                values = [_cut(a, b, f"{place}[{i}]") for i, (a, b) in enumerate(zip(one, two, strict=True))]
                return type(one)(*values) if hasattr(one, "_fields") else type(one)(values)
            if 2 * len(one) >= len(two):
                return one[: 2 * len(one) - len(two)]
        elif type(one) is int:
            return 2 * one - two
        elif one is two or one == two:
            return one
    raise UsageError(
        "a rank without samples needs an empty last batch, but what collate_fn returns cannot be cut to 0 samples",
        place=place,
        found=shown(type(one)),
        hint="return tensors, arrays, lists, tuples and dicts of them, or give the loader uneven='repeat' or "
        "drop_last=True",
    )
