"""Pack: rows of packed samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, field, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import UsageError, shown
from mdsx.order import Balance, Course, Grouping, default_window, integer
from mdsx.shards import Columns, View
from mdsx.stream.extras import Extras
from mdsx.stream.flat import Flat
from mdsx.stream.group_batcher import GroupBatcher
from mdsx.stream.layouts import (
    MAX_CAPACITY,
    ByLength,
    check_grouped,
    checked_groups,
    first_lengths,
    group_batcher,
    groups_of,
    length_columns,
    refuse_collate,
    refuse_repeat,
    set_field,
)
from mdsx.stream.packing import Packing
from mdsx.stream.rows import Joined, Number, Part, Rows
from mdsx.stream.samples import given_rows

_MAX_TOKEN = 2**63 - 1
_SEGMENTS = {"concat": (16, 64), "pack": (64, 16)}
"""The default of `max_segments` per row: at least the first number, and one for each of the second number of values.
Best fit crowds short samples into a few rows: with samples of 250 values on average (lognormal, sigma 1; L from 2,048
on), a row has up to L / 21 samples; concatenated, up to L / 89."""


@dataclass(frozen=True, eq=False)
class Pack(ByLength):
    """Packs samples into rows of `capacity` values: for `StreamingDataLoader(data, batch_size=8, batching=Pack(...))`.

        batching = mdsx.Pack(4096, length="tokens", pad_value={"mask": 1}, dtypes={"tokens": "int64"})
        loader = StreamingDataLoader(data, batch_size=8, batching=batching)  # 8 rows per rank

        batching = mdsx.Pack(4096, length="tokens", kind="concat", end=0, labels=True)  # as in pretraining

    Which samples share a row depends only on the order and the lengths, not on the number of ranks. Inside a row,
    samples are in the order of their lane. No sample is in two rows, unless `kind` is "concat", or `oversize` is
    "split".

    Every one-dimensional column of numbers or bools is packed; its value must have the sample's length. All other
    columns, including fixed-size scalars, become one list per row, with the values of the row's samples.
    docs/batches.md describes each key of a batch.

    Args:
        capacity: The most values in a row, L; at most 2^31 - 1. With kind "pack", a sample of length 0 counts as 1.
        length: What determines a sample's length: the name of a column, or an integer array of lengths, by sample
            number. The length is the number of values in a one-dimensional column, the value of an integer column, or
            the number of bytes in `str`, `bytes` and the like. With a list of columns, it is the longest of these. Each
            column then has its own lengths, and the keys that locate samples are dicts by column.
        kind: "pack": rows contain whole samples, fitted with little padding. "concat": samples are concatenated and cut
            into rows of exactly L values; only the last row of a window may be shorter.
        window: How many positions per lane are packed together. A larger window fills rows better, and needs the
            lengths of more samples at a time. The default is `max(2048, 128 * ceil(L / mean length))`, rounded up to a
            power of two. With kind "concat", it is `max(256, rows * ceil(L / mean length))`, where `rows` is 1,024 over
            all lanes together, and at least 8 for each. The mean comes from the index alone; see docs/batches.md.
        oversize: What kind "pack" does with a sample longer than L. "error", the default: raise. "truncate": take its
            first L values. "split": cut it into pieces of L values, the last one shorter, and pack them like samples.
        layout: "rows": values are [rows, L]. "flat": all values of the rank in one array without padding, with
            `cu_seqlens` and `max_seqlen`, as variable-length attention kernels expect. The array's size differs from
            step to step. Other columns are then one list, with a value per sample.
        pad_value: The padding after a row's last value: a number, or a mapping from columns to numbers (0 for the
            others). Stored labels usually need -100. Each must fit its column's type in the batch.
        dtypes: The types of packed columns in the batch, if they differ from the stored ones: a mapping from columns to
            "int64", "float32", "bfloat16" or another number type. Integers must fit; floats are rounded.
        labels: Add int64 `labels`: at each place the next token of the same sample, even if it is in another row; -100
            after the last one and in the padding. They are shifted already: do not give them to a model that shifts
            labels.
        begin: A token to add before each sample that has values, for data stored without it. It counts towards the
            sample's length, in rows, `window` and all sums. Other packed columns have their pad value there.
        end: A token to add after each sample that has values, likewise.
        tokens: The column of the tokens, for `labels`, `begin` and `end`. The default is that of `length`, or the only
            packed column.
        component_ids: Add int32 `component_ids`, with the shape of `position_ids`: the number of each value's component
            in the mixture; 0 for a dataset, -1 in the padding.
        static: Give all batches the same shapes, so that `torch.compile` compiles once. Batches have `batch_size` rows,
            filled up with empty ones. With layout "flat", packed columns are [rows * L], with the padding at the end,
            and `cu_seqlens` is [max_segments + 1].
        max_segments: With layout "flat" and `static`, the most samples and pieces in a rank's batch; more are an error.
            Empty samples do not count. Padding counts as one segment per L places, rounded up. The default is
            `max(64, L / 16)` per row, because short samples crowd into a few rows; with kind "concat",
            `max(16, L / 64)`.
        max_seqlen: With layout "flat", the value of `max_seqlen`: "longest", the batch's longest sample, or "capacity",
            always L. The default is "capacity" with `static`.
        balance: Deal the rows of each node to its ranks by cost, so that the ranks have equal work: `(linear,
            quadratic)`, two integers. A sample's n values in a row cost `linear * n + quadratic * n * n`; a row costs
            the sum. For attention with layers of width d, give `(12 * d, 1)`. Global batches, states and the shards
            that a node reads stay the same. The loader must know how many ranks a node has: see `ranks_per_node`.
        balance_over: "node", or "job" to deal rows to all ranks. Costs then differ less, but every node reads all
            shards.

    Raises:
        UsageError: An argument is invalid.
    """

    capacity: int
    _: KW_ONLY
    length: str | Sequence[str] | NDArray[np.integer[Any]]
    kind: Literal["pack", "concat"] = "pack"
    window: int | None = None
    oversize: Literal["error", "truncate", "split"] | None = None
    layout: Literal["rows", "flat"] = "rows"
    pad_value: Number | Mapping[str, Number] = 0
    dtypes: Mapping[str, str] | None = None
    labels: bool = False
    begin: int | None = None
    end: int | None = None
    tokens: str | None = None
    component_ids: bool = False
    static: bool = False
    max_segments: int | None = None
    max_seqlen: Literal["longest", "capacity"] | None = None
    balance: tuple[int, int] | None = None
    balance_over: Literal["node", "job"] = "node"
    _rows: int | None = field(default=None, init=False, repr=False)
    """The rows in a rank's batch, once a loader sets it."""
    _components: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64), init=False, repr=False)

    def __post_init__(self) -> None:
        if self.kind not in ("pack", "concat"):
            raise UsageError("kind must be 'pack' or 'concat'", found=shown(self.kind))
        for name in ("labels", "component_ids"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise UsageError(f"{name} must be True or False", found=shown(getattr(self, name)))
        if self.kind == "concat" and self.oversize is not None:
            hint = "remove oversize: kind='concat' cuts samples of any length where a row ends"
            raise UsageError("oversize is for kind='pack'", found=shown(self.oversize), hint=hint)
        if self.kind == "pack" and self.oversize is None:
            set_field(self, "oversize", "error")
        check_grouped(self, (None,) if self.kind == "concat" else ("error", "truncate", "split"))
        if self.layout not in ("rows", "flat"):
            raise UsageError("layout must be 'rows' or 'flat'", found=shown(self.layout))
        for name in ("begin", "end"):
            if getattr(self, name) is not None:
                set_field(self, name, integer(getattr(self, name), name, 0, _MAX_TOKEN))
        if self.own_lengths and self.extras.of_tokens:
            hint = "give length= the column of the tokens, or a transform that joins the columns"
            place = ", ".join(self.extras.of_tokens)
            raise UsageError("columns that have lengths of their own have no common tokens", place=place, hint=hint)
        if self.max_segments is not None:
            if not (self.static and self.layout == "flat"):
                raise UsageError("max_segments needs layout='flat' and static=True")
            set_field(self, "max_segments", integer(self.max_segments, "max_segments", 1, MAX_CAPACITY))
        if self.max_seqlen not in (None, "longest", "capacity"):
            raise UsageError("max_seqlen must be 'longest' or 'capacity'", found=shown(self.max_seqlen))
        if self.max_seqlen is not None and self.layout != "flat":
            raise UsageError("max_seqlen needs layout='flat'", found=shown(self.max_seqlen))
        _ = self.dealing  # which checks it

    @property
    def dealing(self) -> Balance | None:
        """Return how a node's rows are dealt to its ranks by cost; None if they are not."""
        return Balance.of(self.balance, self.balance_over, self.capacity)

    def grouping(self, mean: Fraction | float | None, lanes: int = 1) -> Grouping:
        """Return how samples of `mean` length (None: unknown) are grouped, in an order with `lanes`."""
        window = self.window or default_window(self.capacity, mean, kind=self.kind, lanes=lanes)
        return Grouping(self.kind, self.capacity, window, self.oversize)

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

    @property
    def extras(self) -> Extras:
        return Extras(self.labels, self.begin, self.end, self.tokens, self.component_ids, self._components)

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

    def packing(self, view: View, info: str | None, *, rows: int, transformed: bool) -> Packing:
        layout = copy(self)
        set_field(layout, "_rows", rows)
        set_field(layout, "_components", view.firsts[:-1])
        return Packing(view.schema, layout, stored=view.packed_schema, info=info, transformed=transformed)

    def batcher(self, view: View, course: Course, epoch_steps: int | None, *, seed: int, shuffle: bool) -> GroupBatcher:
        balance = self.dealing
        return group_batcher(self, view, course, epoch_steps, seed=seed, shuffle=shuffle, balance=balance)

    def of_first(self, samples: int) -> Pack:
        return replace(self, length=first_lengths(self, samples))

    def rows_of(self, chunk: Joined, sizes: NDArray[np.int64]) -> Rows:
        if self.static and self._rows is not None:
            chunk = chunk.filled(self._rows)
        if self.layout == "flat":
            return self._flat.rows_of(chunk, sizes)
        widths = [self.capacity] * (len(chunk.samples) - 1)
        return Rows(chunk.samples, sizes, chunk.edges, chunk.groups, widths)

    def keys(self, rows: Rows, part: Part) -> Columns:
        if self.layout == "flat":
            return self._flat.keys(rows, part)
        return {"segment_ids": rows.segments(part), "position_ids": rows.positions(part)}

    @property
    def _flat(self) -> Flat:
        least, values = _SEGMENTS[self.kind]
        most = max(least, self.capacity // values)
        return Flat(self.capacity, self.static, self.max_segments, most, self.max_seqlen)
