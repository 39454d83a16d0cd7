"""The last batch of an epoch on a rank that has no samples in it: an empty batch, or one with a repeated sample."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Literal

import numpy as np
import torch

from mdsx.errors import UsageError, shown
from mdsx.torch.collation import alike

Uneven = Literal["empty", "repeat"]
VALID = "valid"


def emptied(sample: Any, collate: Any) -> Any:
    """Return a batch of 0 samples, with the structure that `collate` gives to batches of samples like this one.

    The parts that differ between a batch of one and of two such samples grow with the samples, so they are cut to 0.
    Raise UsageError if such a part cannot be cut.
    """
    one = collate([deepcopy(sample)])
    return _cut(one, collate([deepcopy(sample), deepcopy(sample)]), "batch")


def with_mask(batch: Any, count: int, valid: bool) -> Any:
    """Return the batch with its mask, bool [count]: as key "valid" of a dict, else as the pair (batch, mask)."""
    mask = torch.full((count,), valid)
    if not isinstance(batch, Mapping):
        return batch, mask
    if VALID in batch:
        raise UsageError(f"a batch has the key {VALID!r} already, which uneven='repeat' adds", hint="rename it")
    return alike(batch, {**batch, VALID: mask})


def _cut(one: Any, two: Any, place: str) -> Any:
    """Extrapolate from `two` samples and `one` to none."""
    if type(one) is type(two):
        if isinstance(one, torch.Tensor | np.ndarray):
            axes = [axis for axis, (a, b) in enumerate(zip(one.shape, two.shape, strict=False)) if a != b]
            if len(one.shape) == len(two.shape) and len(axes) == 1:
                size = 2 * one.shape[axes[0]] - two.shape[axes[0]]
                if size >= 0:
                    return one[(slice(None),) * axes[0] + (slice(0, size),)]
            if not axes and bool((one == two).all()):
                return one
        elif isinstance(one, Mapping):
            if set(one) == set(two):
                return alike(one, {key: _cut(one[key], two[key], f"{place}[{key!r}]") for key in one})
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
        "a rank without samples in the last batch needs an empty one, and what collate_fn returns cannot be cut to 0 "
        "samples",
        place=place,
        found=shown(type(one)),
        hint="return tensors, arrays, lists, tuples and dicts of them, or give the loader uneven='repeat' or "
        "drop_last=True",
    )
