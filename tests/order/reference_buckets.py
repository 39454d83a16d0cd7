"""Batches of one shape, written from format-spec.md sentence by sentence: slow, in plain Python, without any code of
mdsx. The tests of this folder compare with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from tests.order import reference_groups
from tests.order.reference import ceil_div

Size = tuple[int, int] | int
BucketGroup = tuple[int, list[int]]  # bucket, positions by place


def default_window(lanes: int) -> int:
    """Return the default w."""
    return ceil_div(2**20, lanes)


def bucket_of(size: Size, buckets: Sequence[Size]) -> int | None:
    """Return the bucket of a sample with a height and a width, or with a number; None if it has none."""
    if isinstance(size, int):
        return next((number for number, bucket in enumerate(buckets) if bucket == size), None)
    (h, w), found, least = size, None, None
    if not h or not w:
        return None
    for number, bucket in enumerate(buckets):
        assert not isinstance(bucket, int)
        one, other = h * bucket[1], w * bucket[0]
        distance = Fraction(max(one, other), min(one, other))
        if least is None or distance < least:
            found, least = number, distance
    return found


def window_groups(
    positions: Sequence[int], bucket_at: Callable[[int], int], batch_sizes: Sequence[int]
) -> tuple[list[BucketGroup], list[BucketGroup]]:
    """Return the whole groups of a window, and the short ones: their positions ascend."""
    whole: list[BucketGroup] = []
    open_groups: dict[int, list[int]] = {}
    for p in positions:
        bucket = bucket_at(p)
        group = open_groups.setdefault(bucket, [])
        group.append(p)
        if len(group) == batch_sizes[bucket]:
            whole.append((bucket, open_groups.pop(bucket)))
    return whole, sorted(open_groups.items())


def by_place(group: BucketGroup, lane_of: Callable[[int], int], lanes: int) -> BucketGroup:
    """Return a group with its positions by place."""
    step: list[reference_groups.Group] = [(lane_of(p), [(p, 0, 1)]) for p in group[1]]
    return group[0], [items[0][0] for _, items in reference_groups.places(step, lanes)]


def share(group: BucketGroup, rank: int, world: int) -> list[int]:
    """Return the positions that a rank has of a group by place."""
    n = len(group[1])
    return group[1][rank * n // world : (rank + 1) * n // world]
