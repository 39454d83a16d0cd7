"""Buckets: batches of samples of one shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal

import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.errors import UsageError, shown
from mdsx.format import SIDES
from mdsx.order import Bucketing, Course, Size, bucket_values, checked_batch_sizes, checked_sizes, integer
from mdsx.shards import Lengths, View, lengths_of
from mdsx.stream.bucket_numbers import BucketNumbers
from mdsx.stream.group_batcher import GroupBatcher
from mdsx.stream.layouts import MAX_CAPACITY, check_no_runs, group_run, set_field
from mdsx.stream.packing import Packing
from mdsx.stream.run import Run


@dataclass(frozen=True, eq=False)
class Buckets:
    """Makes batches of one shape: for `StreamingDataLoader(data, batching=mdsx.Buckets(...))`, without `batch_size`.

        batching = mdsx.Buckets(
            by=("height", "width"), sizes=[(512, 512), (576, 448), (448, 576)], global_batch_size=1024
        )

    Each sample belongs to the bucket with the nearest aspect ratio. A step has samples of one bucket on all ranks, so
    all ranks do equal work. The samples of a step depend only on the order and the sizes, not on the number of ranks. A
    batch has the additional key `bucket`: the size of its bucket, `(height, width)`. A transform and a `collate_fn`
    find it in each sample. docs/batches.md has more.

    Args:
        by: Where sizes come from: the names of two integer columns, height and width; or the name of a column of
            encoded images whose sizes `mdsx sizes` or `mdsx.write_sizes` has stored; or an integer array [N, 2] of
            heights and widths, by sample number. If the buckets are numbers: the name of one integer column, or an
            array [N].
        sizes: The height and width of each bucket, with different aspect ratios; or different integers, such as
            `range(20)`: a sample then belongs to the bucket with its number.
        global_batch_size: The samples of a step over all ranks: one number for all buckets, or one for each.
        tails: What to do at a window's end with samples that do not fill a batch of their bucket. "keep": make a
            smaller batch. "drop": leave them out.
        window: How many positions per lane are sorted into buckets together. A larger window has fewer tails. The
            default is `ceil(2^20 / lanes)`.

    Raises:
        UsageError: An argument is invalid.
    """

    _: KW_ONLY
    by: str | Sequence[str] | NDArray[np.integer[Any]]
    sizes: Sequence[tuple[int, int]] | Sequence[int]
    global_batch_size: int | Sequence[int]
    tails: Literal["keep", "drop"] = "keep"
    window: int | None = None

    def __post_init__(self) -> None:
        set_field(self, "sizes", checked_sizes(self.sizes))
        sizes = checked_batch_sizes(self.global_batch_size, len(self.sizes))
        set_field(self, "global_batch_size", sizes)
        if self.tails not in ("keep", "drop"):
            raise UsageError("tails must be 'keep' or 'drop'", found=shown(self.tails))
        if self.window is not None:
            set_field(self, "window", integer(self.window, "window", 1, MAX_CAPACITY))
        set_field(self, "by", _checked_by(self.by, self._rule(1)))

    def _rule(self, lanes: int) -> Bucketing:
        return Bucketing.of(self.sizes, self.global_batch_size, self.window, lanes)

    @property
    def grouped(self) -> bool:
        return True

    @property
    def counts_tokens(self) -> bool:
        return False

    @property
    def one_group(self) -> bool:
        return False

    @property
    def step_samples(self) -> int:
        return max(self._rule(1).batch_sizes)

    @property
    def buckets(self) -> tuple[Size, ...]:
        return self._rule(1).sizes

    @property
    def groups(self) -> Mapping[str, Any]:
        fields = {name: value for name, value in self._rule(1).fields.items() if name != "positions"}
        by = self.by
        given: Any = {"hash": xxhash.xxh3_128_hexdigest(by.data)} if isinstance(by, np.ndarray) else by
        return {**fields, "window": self.window, "by": list(given) if isinstance(given, tuple) else given}

    def with_groups(self, groups: Any) -> Buckets:
        own = self.groups
        if not isinstance(groups, Mapping) or set(groups) != set(own) or groups["kind"] != own["kind"]:
            raise ValueError("groups by buckets")
        by: Any = self.by
        if groups["by"] != own["by"]:
            if isinstance(groups["by"], Mapping):
                raise ValueError("groups by the same sizes")
            by = groups["by"]
        names = {"sizes": groups["sizes"], "global_batch_size": groups["batch_sizes"], "window": groups["window"]}
        return replace(self, by=by, **names)

    def rows(
        self, batch_size: int | None, *, epoch_steps: int | None, collate: Callable[..., Any] | None, uneven: str
    ) -> int:
        if batch_size is not None:
            raise UsageError(
                "mdsx.Buckets determines the batch size",
                found=shown(batch_size),
                hint="remove batch_size and global_batch_size from the loader, and give Buckets(global_batch_size=)",
            )
        return self.step_samples

    def packing(self, view: View, info: str | None, *, rows: int, transformed: bool) -> Packing | None:
        return None

    def run(self, before: Run, epoch_steps: int | None) -> Run:
        return group_run(before, epoch_steps)

    def batcher(self, view: View, course: Course, epoch_steps: int | None, *, seed: int, shuffle: bool) -> GroupBatcher:
        check_no_runs(course)
        rule = self._rule(course.lanes)
        return GroupBatcher(
            view,
            BucketNumbers(view, rule, self._values(view)),
            rule,
            epoch_steps,
            window_given=self.window is not None,
            seed=seed,
            shuffle=shuffle,
            drop_short=self.tails == "drop",
        )

    def _values(self, view: View) -> list[Lengths]:
        by = self.by
        if isinstance(by, str) and self._rule(1).of_pairs:
            return [lengths_of(view, by, rule=side) for side in SIDES]
        if isinstance(by, str):
            return [lengths_of(view, by)]
        if isinstance(by, np.ndarray):
            return [lengths_of(view, each) for each in (by.T if by.ndim == 2 else [by])]
        return [lengths_of(view, name) for name in by]

    def of_first(self, samples: int) -> Buckets:
        return replace(self, by=self.by[:samples]) if isinstance(self.by, np.ndarray) else self


def _checked_by(given: Any, rule: Bucketing) -> str | tuple[str, ...] | NDArray[np.uint32]:
    """Return where samples' sizes come from: names, or a read-only copy of an array. Raise UsageError."""
    if isinstance(given, str):
        return given
    if isinstance(given, list | tuple) and len(given) == 2 and all(isinstance(name, str) for name in given):
        if rule.of_pairs:
            return tuple(given)
        hint = "give one column for buckets of numbers, or the height and the width of each bucket"
        raise UsageError("two columns are a height and a width", found=shown(given), hint=hint)
    if not np.ndim(given) or np.asarray(given).dtype.kind not in "iu":
        two = 'by="image", by=("height", "width"), or an integer array [N, 2]'
        expected = two if rule.of_pairs else 'by="column", or an integer array [N]'
        raise UsageError("by does not give the size of a sample", found=shown(given), expected=expected)
    found = bucket_values(given, rule, len(np.asarray(given))).astype("<u4")
    found.flags.writeable = False
    return found
