"""Pad: batches of samples with padded values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import UsageError, shown
from mdsx.order import integer
from mdsx.shards import Columns, View
from mdsx.stream.extras import NO_EXTRAS, Extras
from mdsx.stream.layouts import MAX_CAPACITY, check_layout, refuse_collate, refuse_repeat, set_field
from mdsx.stream.packing import Packing
from mdsx.stream.rows import Joined, Number, Part, Rows, padded_rows
from mdsx.stream.samples import Samples


@dataclass(frozen=True, eq=False)
class Pad(Samples):
    """Pads the values of a batch of samples: for `StreamingDataLoader(data, batch_size=32, batching=mdsx.Pad())`.

        batching = mdsx.Pad(pad_value={"labels": -100}, pad_to_multiple_of=8)
        batch = next(iter(StreamingDataLoader(data, batch_size=32, batching=batching)))
        batch["tokens"], batch["lengths"]["tokens"]  # [32, longest] and int64 [32]

    Samples, order and states are the same as without `batching`. Every one-dimensional column of numbers or bools whose
    values differ in size is padded to its longest value in the rank's batch: [n, longest]. `lengths` is a dict that
    has, for each such column, the number of values in each row without padding. All other columns are as without
    `batching`. After a transform, every one-dimensional array or tensor is padded; `pad_value` and `dtypes` then refer
    to the keys that the transform returns.

    Args:
        capacity: The most values of a sample in one column; None for no limit.
        oversize: What to do with a longer sample. "error": raise. "truncate": take its first values.
        pad_value: The padding after a row's last value: a number, or a mapping from columns to numbers (0 for the
            others). Each must fit its column's type in the batch.
        pad_to_multiple_of: Round the last dimension up to a multiple of this. With the value of `capacity`, all batches
            have one shape.
        dtypes: The types of padded columns in the batch, as in `Pack`.

    Raises:
        UsageError: An argument is invalid.
    """

    capacity: int | None = None
    _: KW_ONLY
    oversize: Literal["error", "truncate"] = "error"
    pad_value: Number | Mapping[str, Number] = 0
    pad_to_multiple_of: int = 1
    dtypes: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        if self.capacity is not None:
            set_field(self, "capacity", integer(self.capacity, "capacity", 1, MAX_CAPACITY))
        set_field(self, "pad_to_multiple_of", integer(self.pad_to_multiple_of, "pad_to_multiple_of", 1, MAX_CAPACITY))
        if self.oversize not in ("error", "truncate"):
            raise UsageError("oversize is unknown", found=shown(self.oversize), expected="'error', 'truncate'")
        if self.oversize == "truncate" and self.capacity is None:
            raise UsageError("oversize='truncate' needs a capacity", hint="such as mdsx.Pad(512, oversize='truncate')")
        check_layout(self)

    @property
    def nested(self) -> bool:
        return False

    @property
    def extras(self) -> Extras:
        return NO_EXTRAS

    @property
    def length_columns(self) -> tuple[str, ...]:
        return ()

    @property
    def own_lengths(self) -> bool:
        return True

    @property
    def grouped(self) -> bool:
        return False

    def rows(
        self, batch_size: int | None, *, epoch_steps: int | None, collate: Callable[..., Any] | None, uneven: str
    ) -> int:
        refuse_collate(self, collate)
        refuse_repeat(uneven)
        return super().rows(batch_size, epoch_steps=epoch_steps, collate=collate, uneven=uneven)

    def packing(self, view: View, info: str | None, *, rows: int, transformed: bool) -> Packing:
        return Packing(view.schema, self, stored=view.packed_schema, info=info, transformed=transformed)

    def rows_of(self, chunk: Joined, sizes: NDArray[np.int64]) -> Rows:
        return padded_rows(chunk.samples, sizes, self.pad_to_multiple_of)

    def keys(self, rows: Rows, part: Part) -> Columns:
        return {"lengths": rows.sizes[part.samples].copy()}
