"""What a packed or length-bounded batch is: the rules that a user chooses, and the groups of one rank in one step.

`Pack` and `MaxTokens` are values: they say how samples are grouped (`order/grouping.py` does it) and how a group's
values are laid out in a batch (`packed.py` does it).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import UsageError, shown
from mdsx.format import MAX_LENGTH, Refused, parse_type, to_items
from mdsx.order import Grouping, default_window, integer, integers

Number = bool | int | float

MAX_CAPACITY = 2**31 - 1
"""Positions in a row are int32."""


@dataclass(frozen=True, eq=False)
class Pack:
    """Packs samples into rows of `capacity` values: for `StreamingDataLoader(data, batch_size=8, batching=Pack(...))`.

        batching = mdsx.Pack(4096, length="tokens", pad_value={"labels": -100}, dtypes={"tokens": "int64"})
        loader = StreamingDataLoader(data, batch_size=8, batching=batching)  # 8 rows per rank

    Which samples share a row depends on the order and on the lengths only, so it is the same on any number of ranks.
    Inside a row, samples are in the order of their lane. No sample is in two rows, unless `oversize` is "split".

    Every one-dimensional column of numbers or bools is packed; its value must have the sample's length. All other
    columns, fixed-size scalars too, come as one list per row, with the values of the row's samples. docs/batches.md
    describes each key of a batch.

    Args:
        capacity: The most values in a row, L; at most 2^31 - 1. A sample of length 0 counts as 1.
        length: What the length of a sample is: the name of a column, or an integer array with a length for each sample,
            by the sample's number. Of a one-dimensional column, it is the number of values; of an integer column, the
            integer; of `str`, `bytes` and the like, the bytes.
        window: Samples of how many positions per lane are packed together. A larger window fills rows better and needs
            the lengths of more samples at a time. The default is `max(2048, 128 * ceil(L / mean length))`, rounded up
            to a power of two. The mean follows from the index alone; see docs/batches.md.
        oversize: What to do with a sample longer than L. "error": raise. "truncate": take its first L values. "split":
            cut it into pieces of L values and a last shorter one, which are packed like samples.
        layout: "rows": values are [rows, L]. "flat": all values of the rank in one array without padding, with
            `cu_seqlens` and `max_seqlen`, as kernels for attention of variable length expect. The array's size differs
            from step to step; other columns are then one list, with a value per sample.
        pad_value: What is after the last value of a row: a number, or a mapping from columns to numbers (0 for the
            others). Labels usually need -100. Each must fit the type that its column has in the batch.
        dtypes: The types of packed columns in the batch, if they differ from the stored ones: column -> "int64",
            "float32", "bfloat16" or another type of numbers. Integers must fit; floats are rounded.

    Raises:
        UsageError: An argument is invalid.
    """

    capacity: int
    _: KW_ONLY
    length: str | NDArray[np.integer[Any]]
    window: int | None = None
    oversize: Literal["error", "truncate", "split"] = "error"
    layout: Literal["rows", "flat"] = "rows"
    pad_value: Number | Mapping[str, Number] = 0
    dtypes: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        _check_shared(self, ("error", "truncate", "split"))
        if self.layout not in ("rows", "flat"):
            raise UsageError("layout must be 'rows' or 'flat'", found=shown(self.layout))

    def grouping(self, mean: Fraction | float | None) -> Grouping:
        """Return how samples of `mean` length (None: unknown) are grouped."""
        return Grouping("pack", self.capacity, self.window or default_window(self.capacity, mean), self.oversize)


@dataclass(frozen=True, eq=False)
class MaxTokens:
    """Makes batches of samples of similar length: `count * longest <= capacity`, one such group per rank per step.

        batching = mdsx.MaxTokens(65536, length="tokens", pad_to_multiple_of=8)
        loader = StreamingDataLoader(data, batching=batching)  # without batch_size

    Which samples are in a group depends on the order and on the lengths only, so it is the same on any number of ranks.
    Packed columns (see `Pack`) are padded to the longest sample of the group: [n, longest]. `lengths`, int64 [n], says
    how many values of each row are a sample's. All other columns are lists of n values, one per row.

    Args:
        capacity: The most values in a group before `pad_to_multiple_of`, padding included, L; at most 2^31 - 1.
        length: As in `Pack`.
        window: As in `Pack`.
        oversize: What to do with a sample longer than L. "error": raise. "truncate": take its first L values.
        max_samples: The most samples in a group.
        pad_value: As in `Pack`.
        pad_to_multiple_of: Round the last dimension up to a multiple of this, which must divide L: so the dimension
            never exceeds L. Groups are made before; with this padding, a batch may have more than L values.
        dtypes: As in `Pack`.

    Raises:
        UsageError: An argument is invalid.
    """

    capacity: int
    _: KW_ONLY
    length: str | NDArray[np.integer[Any]]
    window: int | None = None
    oversize: Literal["error", "truncate"] = "error"
    max_samples: int | None = None
    pad_value: Number | Mapping[str, Number] = 0
    pad_to_multiple_of: int = 1
    dtypes: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        _check_shared(self, ("error", "truncate"))
        if self.max_samples is not None:
            _set(self, "max_samples", integer(self.max_samples, "max_samples", 1, MAX_CAPACITY))
        _set(self, "pad_to_multiple_of", integer(self.pad_to_multiple_of, "pad_to_multiple_of", 1, MAX_CAPACITY))
        if self.capacity % self.pad_to_multiple_of:
            raise UsageError(
                "pad_to_multiple_of must divide the capacity",
                found=f"{self.pad_to_multiple_of} for a capacity of {self.capacity}",
            )

    def grouping(self, mean: Fraction | float | None) -> Grouping:
        """Return how samples of `mean` length (None: unknown) are grouped."""
        window = self.window or default_window(self.capacity, mean)
        return Grouping("max_tokens", self.capacity, window, self.oversize, self.max_samples)


Layout = Pack | MaxTokens


class RankGroups(NamedTuple):
    """The groups of one rank in one step: each a row of `Pack`, or all samples of `MaxTokens`.

    The rank's samples are in the order of its groups. A split sample is there once for each of its pieces.
    """

    edges: NDArray[np.int64]
    """[groups + 1]: where the samples of each group begin, and where those of the last one end."""
    firsts: NDArray[np.int64]
    """[samples]: the first value that the group has of each sample; 0 unless the sample was split."""
    sizes: NDArray[np.int64]
    """[samples]: how many values the group has of it."""
    step_samples: int
    """Samples that begin in the step, over all ranks: of a split sample, only the first piece counts."""
    step_values: int
    """Values of the step over all ranks."""

    def kept(self, places: NDArray[np.int64]) -> RankGroups:
        """Return the groups with only the samples at `places`, which ascend. The step's numbers stay."""
        return self._replace(
            edges=np.searchsorted(places, self.edges), firsts=self.firsts[places], sizes=self.sizes[places]
        )


def pad_items(base: str, value: Number, name: str) -> NDArray[Any]:
    """Return a pad value as a stored item of the type `base`, shape []. Raise UsageError if it does not fit."""
    try:
        return to_items(base, value)
    except Refused as refused:
        raise UsageError(
            "the pad value does not fit the column's type in the batch",
            place=f"pad_value of column {name!r}, type {base!r}",
            found=refused.found,
            expected=refused.expected,
            hint="give another pad_value, or another type by dtypes=",
        ) from None


def _check_shared(layout: Layout, oversize: tuple[str, ...]) -> None:
    """Check what both have, and make it plain: ints, read-only arrays, names of types."""
    _set(layout, "capacity", integer(layout.capacity, "capacity", 1, MAX_CAPACITY))
    if layout.window is not None:
        _set(layout, "window", integer(layout.window, "window", 1, MAX_CAPACITY))
    if layout.oversize not in oversize:
        expected = ", ".join(map(repr, oversize))
        raise UsageError("oversize is unknown", found=shown(layout.oversize), expected=expected)
    if not isinstance(layout.length, str):
        _set(layout, "length", _lengths(layout.length))
    pads: object = layout.pad_value
    for name, value in pads.items() if isinstance(pads, Mapping) else [(None, pads)]:
        if not isinstance(value, int | float | np.number | np.bool_):
            place = "pad_value" if name is None else f"pad_value of column {name!r}"
            raise UsageError("a pad value must be a number", place=place, found=shown(value))
    _set(layout, "pad_value", dict(pads) if isinstance(pads, Mapping) else pads)
    if layout.dtypes is not None and not isinstance(layout.dtypes, Mapping):
        raise UsageError("dtypes must be a mapping from columns to types", found=shown(layout.dtypes))
    _set(layout, "dtypes", {name: _base(name, dtype) for name, dtype in (layout.dtypes or {}).items()})
    for name, base in (layout.dtypes or {}).items():
        pad_items(base, pad_of(layout, name), name)


def pad_of(layout: Layout, name: str) -> Number:
    """Return the pad value of a column."""
    return layout.pad_value.get(name, 0) if isinstance(layout.pad_value, Mapping) else layout.pad_value


def _lengths(given: object) -> NDArray[np.integer[Any]]:
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


def _base(name: str, dtype: object) -> str:
    """Return "int64" for "int64", np.int64, np.dtype("int64") and torch.int64."""
    text = np.dtype(dtype).name if isinstance(dtype, type) else str(dtype).removeprefix("torch.")
    kind = parse_type(text) if text.isidentifier() else None
    if kind is None or not kind.scalar:
        raise UsageError(
            "there is no such type of numbers",
            place=f"dtypes, column {name!r}",
            found=shown(dtype),
            expected="bool, int8 to int64, uint8 to uint64, float16, bfloat16, float32 or float64",
        )
    return kind.base


def _set(layout: Layout, name: str, value: object) -> None:
    object.__setattr__(layout, name, value)  # it is frozen
