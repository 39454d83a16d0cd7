"""MaxTokens: length-bounded batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import UsageError, shown
from mdsx.order import Course, Grouping, default_window, integer
from mdsx.shards import Columns, View
from mdsx.stream.extras import NO_EXTRAS, Extras
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
    refuse_repeat,
    set_field,
)
from mdsx.stream.packing import Packing
from mdsx.stream.rows import Joined, Number, Part, Rows, padded_rows


@dataclass(frozen=True, eq=False)
class MaxTokens(ByLength):
    """Makes batches of samples of similar length: `count * longest <= capacity`, one such group per rank per step.

        batching = mdsx.MaxTokens(65536, length="tokens", pad_to_multiple_of=8)
        loader = StreamingDataLoader(data, batching=batching)  # without batch_size

    The samples of a group depend only on the order and the lengths, not on the number of ranks. Packed columns (see
    `Pack`) are padded to the longest sample of the group: [n, longest]. `lengths`, int64 [n], has the number of values
    in each row without padding. Other columns of one shape are [n, ...], all others lists of n values.

    Args:
        capacity: The most values in a group before `pad_to_multiple_of`, padding included, L; at most 2^31 - 1.
        length: As in `Pack`.
        window: As in `Pack`.
        oversize: What to do with a sample longer than L. "error": raise. "truncate": take its first L values.
        max_samples: The most samples in a group.
        pad_value: As in `Pack`.
        pad_to_multiple_of: Round the last dimension up to a multiple of this. It must divide L, so the dimension never
            exceeds L. Groups do not take this padding into account: with it, a batch may have more than L values.
        dtypes: As in `Pack`.

    Raises:
        UsageError: An argument is invalid.
    """

    capacity: int
    _: KW_ONLY
    length: str | Sequence[str] | NDArray[np.integer[Any]]
    window: int | None = None
    oversize: Literal["error", "truncate"] = "error"
    max_samples: int | None = None
    pad_value: Number | Mapping[str, Number] = 0
    pad_to_multiple_of: int = 1
    dtypes: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        check_grouped(self, ("error", "truncate"))
        if self.max_samples is not None:
            set_field(self, "max_samples", integer(self.max_samples, "max_samples", 1, MAX_CAPACITY))
        set_field(self, "pad_to_multiple_of", integer(self.pad_to_multiple_of, "pad_to_multiple_of", 1, MAX_CAPACITY))
        if self.capacity % self.pad_to_multiple_of:
            raise UsageError(
                "pad_to_multiple_of must divide the capacity",
                found=f"{self.pad_to_multiple_of} for a capacity of {self.capacity}",
            )

    def grouping(self, mean: Fraction | float | None, lanes: int = 1) -> Grouping:
        """Return how samples of `mean` length (None: unknown) are grouped."""
        window = self.window or default_window(self.capacity, mean)
        return Grouping("max_tokens", self.capacity, window, self.oversize, self.max_samples)

    @property
    def groups(self) -> Mapping[str, Any]:
        return groups_of(self)

    def with_groups(self, groups: Any) -> MaxTokens:
        return replace(self, **checked_groups(self, groups))

    @property
    def one_group(self) -> bool:
        return True

    @property
    def nested(self) -> bool:
        return False

    @property
    def extras(self) -> Extras:
        return NO_EXTRAS

    def rows(
        self, batch_size: int | None, *, epoch_steps: int | None, collate: Callable[..., Any] | None, uneven: str
    ) -> int:
        refuse_repeat(uneven)
        if batch_size is not None:
            raise UsageError(
                "mdsx.MaxTokens determines the batch size",
                found=f"batch_size={shown(batch_size)}",
                hint="remove batch_size; MaxTokens(max_samples=) limits the samples of a batch",
            )
        return 1

    @property
    def length_columns(self) -> tuple[str, ...]:
        return length_columns(self)

    @property
    def own_lengths(self) -> bool:
        return isinstance(self.length, tuple)

    def packing(self, view: View, info: str | None, *, rows: int, transformed: bool) -> Packing:
        return Packing(view.schema, self, stored=view.packed_schema, info=info, transformed=transformed)

    def batcher(self, view: View, course: Course, epoch_steps: int | None, *, seed: int, shuffle: bool) -> GroupBatcher:
        return group_batcher(self, view, course, epoch_steps, seed=seed, shuffle=shuffle)

    def of_first(self, samples: int) -> MaxTokens:
        return replace(self, length=first_lengths(self, samples))

    def rows_of(self, chunk: Joined, sizes: NDArray[np.int64]) -> Rows:
        return padded_rows(chunk.samples, sizes, self.pad_to_multiple_of)

    def keys(self, rows: Rows, part: Part) -> Columns:
        return {"lengths": rows.sizes[part.samples].copy()}
