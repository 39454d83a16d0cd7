"""Groups of kind "buckets": batches of samples of one shape. format-spec.md specifies them.

Each sample belongs to one bucket. A group is the global batch of a step: samples of one bucket, from all lanes, as many
as the bucket's global batch size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mdsx.base.cached import cached_property
from mdsx.errors import UsageError, shown
from mdsx.order.course import MAX_BATCH
from mdsx.order.grouping import MAX_WINDOW, items_of
from mdsx.order.limits import integer
from mdsx.order.sorting import stable_order
from mdsx.order.window_groups import WindowGroups

MAX_BUCKETS = 2**16
MAX_SIDE = 2**32 - 1
NO_BUCKET = -1
"""The bucket of a sample that belongs to none."""
_WINDOW = 2**20  # positions of all lanes
_DOUBTFUL = 1e-12  # of a ratio: more than binary64 loses in a quotient and a root

Size = tuple[int, int] | int
"""A bucket's height and width, or the number that its samples have."""


@dataclass(frozen=True)
class Bucketing:
    """How samples are put into batches of one shape.

    Attributes:
        sizes: Each bucket's height and width, all of different aspect ratios; or its integer, all different.
        batch_sizes: The number of samples in a complete group of each bucket, over all ranks.
        window: How many positions of each lane are grouped together, 1 to 2^31.

    Raises:
        UsageError: A field is invalid.
    """

    kind: ClassVar[Literal["buckets"]] = "buckets"
    splits: ClassVar[bool] = False
    sizes: tuple[Size, ...]
    batch_sizes: tuple[int, ...]
    window: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", checked_sizes(self.sizes))
        object.__setattr__(self, "batch_sizes", checked_batch_sizes(self.batch_sizes, len(self.sizes)))
        object.__setattr__(self, "window", integer(self.window, "window", 1, MAX_WINDOW))

    @classmethod
    def of(cls, sizes: Any, batch_sizes: Any, window: int | None, lanes: int) -> Bucketing:
        """Return the bucketing for a user's arguments. `window`: None means the default for this number of lanes."""
        return cls(sizes, batch_sizes, -(-_WINDOW // lanes) if window is None else window)

    @property
    def of_pairs(self) -> bool:
        """Return whether buckets have heights and widths."""
        return isinstance(self.sizes[0], tuple)

    @property
    def fields(self) -> dict[str, Any]:
        """Return the fields for a state."""
        sizes = [list(size) if isinstance(size, tuple) else size for size in self.sizes]
        return {"kind": self.kind, "sizes": sizes, "batch_sizes": list(self.batch_sizes), "positions": self.window}

    @property
    def group_samples(self) -> float:
        """Return the number of samples in a complete group, as the mean over all buckets."""
        return sum(self.batch_sizes) / len(self.batch_sizes)

    def places(self, buckets: NDArray[np.int64]) -> int:
        """Return the number of samples in complete groups of these buckets."""
        return int(np.array(self.batch_sizes)[buckets].sum())

    def short(self, buckets: NDArray[np.int64], edges: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which groups are incomplete, from their buckets and edges."""
        found: NDArray[np.bool_] = np.diff(edges) < np.array(self.batch_sizes)[buckets]
        return found

    def buckets_of(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of each sample's bucket; NO_BUCKET if there is none. `values`: int64 [n, 2], heights and
        widths of at least 0; for buckets of numbers, int64 [n]."""
        if self.of_pairs:
            return self._ratios.nearest(values[:, 0], values[:, 1])
        order, numbers = self._numbers
        places = np.minimum(np.searchsorted(numbers, values), len(numbers) - 1)
        return np.where(numbers[places] == values, order[places], NO_BUCKET)

    @cached_property
    def _ratios(self) -> _Ratios:
        return _Ratios([size for size in self.sizes if isinstance(size, tuple)])

    @cached_property
    def _numbers(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        numbers = np.array(self.sizes, np.int64)
        order = np.argsort(numbers)
        return order, numbers[order]


class _Ratios:
    """The aspect ratios of buckets of `sizes`, to find the nearest one.

    The distance of a sample from a bucket is the quotient of their aspect ratios, the larger by the smaller one. So
    between two successive ratios of buckets, the lower one is nearer if the sample's ratio is below the root of their
    product.
    """

    def __init__(self, sizes: Sequence[tuple[int, int]]) -> None:
        self._sizes = sizes
        ratios = [Fraction(height, width) for height, width in sizes]
        ascending = sorted(range(len(sizes)), key=ratios.__getitem__)
        self._order = np.array(ascending, np.int64)
        self._roots = np.sqrt([float(ratios[low] * ratios[high]) for low, high in pairwise(ascending)])

    def nearest(self, heights: NDArray[np.int64], widths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the bucket of each sample; NO_BUCKET for a sample without height or width."""
        sized = (heights > 0) & (widths > 0)
        found = np.full(len(heights), NO_BUCKET)
        heights, widths = heights[sized], widths[sized]
        ratios = heights / widths
        low = np.searchsorted(self._roots, ratios * (1 - _DOUBTFUL))
        near = self._order[low]
        doubtful = np.flatnonzero(np.searchsorted(self._roots, ratios * (1 + _DOUBTFUL)) != low)
        if len(doubtful):
            pairs, which = np.unique(np.stack((heights, widths), axis=1)[doubtful], axis=0, return_inverse=True)
            exact = np.array([self._exactly(height, width) for height, width in pairs.tolist()], np.int64)
            near[doubtful] = exact[which.reshape(-1)]
        found[sized] = near
        return found

    def _exactly(self, height: int, width: int) -> int:
        """Return the bucket of a sample by exact arithmetic; the first of equally near ones."""

        def distance(bucket: int) -> Fraction:
            one, other = height * self._sizes[bucket][1], width * self._sizes[bucket][0]
            return Fraction(max(one, other), min(one, other))

        return min(range(len(self._sizes)), key=distance)


def bucket_groups(
    rule: Bucketing, buckets: NDArray[np.int64], lanes: NDArray[np.int64], lane_count: int
) -> WindowGroups:
    """Return the groups of a window in sequence order, from the bucket and the lane of each of its samples, in
    ascending order of position. `lanes` of the result are the groups' buckets; their samples are ordered by place."""
    sizes = np.array(rule.batch_sizes)
    by_bucket = stable_order(buckets, len(sizes))
    whole, left = np.divmod(np.bincount(buckets, minlength=len(sizes)), sizes)
    groups = whole + (left > 0)
    of = np.repeat(np.arange(len(sizes)), groups)
    short = np.arange(len(of)) - np.repeat(np.cumsum(groups) - groups, groups) == whole[of]
    edges = np.concatenate((np.zeros(1, np.int64), np.cumsum(np.where(short, left[of], sizes[of]))))
    lasts = by_bucket[edges[1:] - 1]
    sequence = np.argsort(np.where(short, len(buckets) + of, lasts))
    edges, items = items_of(edges, sequence)
    items = by_bucket[items]
    items = items[_by_place(edges, lanes[items], lane_count)]
    return WindowGroups(of[sequence], edges, items, np.zeros_like(items), np.ones_like(items))


def _by_place(edges: NDArray[np.int64], lanes: NDArray[np.int64], lane_count: int) -> NDArray[np.int64]:
    """Return which item is at each place, from the items' lanes, ascending by position in each group. An item is at a
    place of its lane's home if one is left, like the groups of a step (see `step_order`)."""
    counts = np.diff(edges)
    groups = np.repeat(np.arange(len(counts)), counts)
    runs = groups * lane_count + lanes  # of items of one group and one lane
    by_lane = stable_order(runs, len(counts) * lane_count)
    runs, lanes = runs[by_lane], lanes[by_lane]
    index = np.arange(len(runs))
    begins = np.zeros_like(runs)
    begins[1:] = np.where(runs[1:] != runs[:-1], index[1:], 0)
    begin, count = edges[groups], counts[groups]
    places = begin + lanes * count // lane_count + index - np.maximum.accumulate(begins)
    fits = places < begin + (lanes + 1) * count // lane_count
    found = np.full(len(runs), -1)
    found[places[fits]] = by_lane[fits]
    found[found < 0] = by_lane[~fits]
    return found


def rank_edges(edges: NDArray[np.int64], rank: int, world_size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where the items of `rank` begin and end in each group with these edges."""
    begins, sizes = edges[:-1], np.diff(edges)
    return begins + rank * sizes // world_size, begins + (rank + 1) * sizes // world_size


def checked_sizes(given: Any) -> tuple[Size, ...]:
    """Return the sizes of buckets as plain integers. Raise UsageError."""
    expected = "heights and widths, such as [(512, 512), (576, 448)], or integers"
    sizes: list[Any] = list(given) if _is_listed(given) else []
    if not 0 < len(sizes) <= MAX_BUCKETS:
        here = len(sizes) if sizes else shown(given)
        raise UsageError("invalid sizes of buckets", found=here, expected=f"{expected}; at most {MAX_BUCKETS:,}")
    pairs = [_is_listed(size) for size in sizes]
    if any(pairs) != all(pairs) or (all(pairs) and any(len(size) != 2 for size in sizes)):
        raise UsageError("all buckets must have sizes of one kind", found=shown(given), expected=expected)
    found, known = list[Size](), dict[Any, Size]()
    for given_size in sizes:
        size: Size
        if all(pairs):
            size = integer(given_size[0], "a height", 1, MAX_SIDE), integer(given_size[1], "a width", 1, MAX_SIDE)
        else:
            size = integer(given_size, "a number of a bucket", 0, MAX_SIDE)
        ratio = Fraction(*size) if isinstance(size, tuple) else size
        if ratio in known:
            raise _repeated(known[ratio], size)
        known[ratio] = size
        found.append(size)
    return tuple(found)


def _is_listed(given: object) -> bool:
    return isinstance(given, Sequence | np.ndarray) and not isinstance(given, str | bytes)


def _repeated(before: Size, size: Size) -> UsageError:
    if before == size:
        return UsageError("two buckets have the same size", found=shown(size), hint="remove one of them")
    return UsageError(
        "two buckets have the same aspect ratio, so no sample would ever be in the second one",
        found=f"{before} and {size}",
        hint="remove one of them; or, for a bucket for each resolution, store the number of each sample's bucket in a "
        "column, give its name as by=, and the numbers as sizes=",
    )


def checked_batch_sizes(given: Any, buckets: int) -> tuple[int, ...]:
    """Return the global batch size of each bucket. One number may be given for all. Raise UsageError."""
    name = "global_batch_size"
    if not _is_listed(given):
        return (integer(given, name, 1, MAX_BATCH),) * buckets
    if len(given) != buckets:
        raise UsageError(f"{name} must be one number, or one for each bucket", found=len(given), expected=buckets)
    return tuple(integer(size, f"{name} of bucket {bucket}", 1, MAX_BATCH) for bucket, size in enumerate(given))


def bucket_values(given: ArrayLike, rule: Bucketing, samples: int) -> NDArray[np.int64]:
    """Return the given height and width, or number, of each sample. Raise UsageError."""
    found, shape = np.asarray(given), (samples, 2) if rule.of_pairs else (samples,)
    if found.shape != shape or (found.dtype.kind not in "iu" and found.size):
        what = "a height and a width" if rule.of_pairs else "a number"
        raise UsageError(
            f"expected {what} for each sample, as integers",
            found=f"{list(found.shape)} of {found.dtype}",
            expected=list(shape),
        )
    if found.size and not 0 <= int(found.min()) <= int(found.max()) <= MAX_SIDE:
        wrong = int(found.min()) if int(found.min()) < 0 else int(found.max())
        raise UsageError("a size is out of range", found=wrong, expected=f"0 to {MAX_SIDE}")
    return found.astype(np.int64)
