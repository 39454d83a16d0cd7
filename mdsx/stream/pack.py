"""Pack: rows of packed samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import UsageError, shown
from mdsx.format import Schema
from mdsx.order import Course, Grouping, default_window
from mdsx.shards import Columns, View
from mdsx.stream.group_batcher import GroupBatcher
from mdsx.stream.layouts import (
    MAX_CAPACITY,
    check_grouped,
    checked_groups,
    first_lengths,
    group_batcher,
    group_run,
    groups_of,
    length_columns,
    refuse_collate,
    refuse_repeat,
)
from mdsx.stream.packing import Packing
from mdsx.stream.rows import Number, Part, Rows, edges_of, ends_of
from mdsx.stream.run import Run
from mdsx.stream.samples import given_rows
from mdsx.stream.steps import RankGroups


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
            integer; of `str`, `bytes` and the like, the bytes. With a list of columns, it is the longest of these, and
            each column has lengths of its own, up to that: the keys that say where samples are are dicts by column.
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
    length: str | Sequence[str] | NDArray[np.integer[Any]]
    window: int | None = None
    oversize: Literal["error", "truncate", "split"] = "error"
    layout: Literal["rows", "flat"] = "rows"
    pad_value: Number | Mapping[str, Number] = 0
    dtypes: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        check_grouped(self, ("error", "truncate", "split"))
        if self.layout not in ("rows", "flat"):
            raise UsageError("layout must be 'rows' or 'flat'", found=shown(self.layout))

    def grouping(self, mean: Fraction | float | None) -> Grouping:
        """Return how samples of `mean` length (None: unknown) are grouped."""
        return Grouping("pack", self.capacity, self.window or default_window(self.capacity, mean), self.oversize)

    @property
    def groups(self) -> Mapping[str, Any]:
        return groups_of(self)

    def with_groups(self, groups: Any) -> Pack:
        return replace(self, **checked_groups(self, groups))

    @property
    def one_group(self) -> bool:
        return False

    @property
    def nested(self) -> bool:
        return self.layout == "rows"

    def rows(
        self, batch_size: int | None, *, epoch_steps: int | None, collate: Callable[..., Any] | None, uneven: str
    ) -> int:
        refuse_collate(self, collate)
        refuse_repeat(uneven)
        return given_rows(batch_size, "packed rows")

    @property
    def length_columns(self) -> tuple[str, ...]:
        return length_columns(self)

    @property
    def own_lengths(self) -> bool:
        return isinstance(self.length, tuple)

    @property
    def grouped(self) -> bool:
        return True

    def packing(self, schema: Schema, stored: Schema, info: str | None) -> Packing:
        return Packing(schema, self, stored=stored, info=info)

    def run(self, before: Run, epoch_steps: int | None) -> Run:
        return group_run(before, epoch_steps)

    def batcher(self, view: View, course: Course, epoch_steps: int | None, *, seed: int, shuffle: bool) -> GroupBatcher:
        return group_batcher(self, view, course, epoch_steps, seed=seed, shuffle=shuffle)

    def of_first(self, samples: int) -> Pack:
        return replace(self, length=first_lengths(self, samples))

    def rows_of(self, steps: Sequence[RankGroups], sizes: NDArray[np.int64]) -> Rows:
        samples = ends_of(len(groups.sizes) for groups in steps)
        rows = ends_of(len(groups.edges) - 1 for groups in steps)
        widths = [self.capacity] * len(steps) if self.layout == "rows" else None
        return Rows(steps, sizes, edges_of(steps, rows, samples), rows, widths)

    def keys(self, rows: Rows, part: Part) -> Columns:
        if self.layout == "rows":
            return {"segment_ids": rows.segments(part), "position_ids": rows.positions(part)}
        if part.shape[0] > MAX_CAPACITY:
            hint = "give fewer rows by batch_size="
            raise UsageError("a flat batch is too large", found=part.shape[0], expected=f"{MAX_CAPACITY}", hint=hint)
        ends = rows.ends[part.samples.start : part.samples.stop + 1]
        longest = int(rows.sizes[part.samples].max(initial=0))
        return {
            "position_ids": rows.positions(part),
            "cu_seqlens": (ends - ends[0]).astype(np.int32),
            "max_seqlen": longest,
        }
