"""What an order costs on a node, and warnings if it costs more than necessary: everything works, only slower."""

from __future__ import annotations

from mdsx.order import Course, better_lanes, lane_spread
from mdsx.shards import View
from mdsx.sizes import format_size
from mdsx.stream.batching import Batching
from mdsx.warn import warn


def warn_of_small_cache(view: View, course: Course, *, ranks_here: int, world_size: int) -> None:
    """Warn if the cache cannot hold the shards that the node's ranks draw on at a time."""
    limit = view.cache_limit
    if limit is None or not course.samples:
        return
    active = course.active_shards(ranks_here * -(-course.lanes // world_size))
    needed = int(active * view.raw_sizes.mean())
    if limit < needed:
        missing, shards = 1 - limit / needed, int((view.counts > 0).sum())
        requests = max(round(missing * course.samples), shards)
        warn(
            f"the cache may hold {format_size(limit)}, but about {active} shards ({format_size(needed)}) are in use at "
            f"a time: about {missing:.0%} of the samples will be fetched one by one, or their shards more than once. "
            f"An epoch costs up to {requests:,} requests to storage instead of {shards:,}, which can make it many "
            f"times slower; give cache=mdsx.Cache(limit={needed}) or more, or a shuffle_block below "
            f"{course.shuffle_block}"
        )


def warn_of_spread(course: Course, batching: Batching) -> None:
    """Warn if ranks share lanes because the global batch, the lanes and the world size do not fit."""
    if batching.world_size == 1 or course.lanes == 1:
        return
    spread = lane_spread(batching.global_batch, lanes=course.lanes, world_size=batching.world_size)
    best = max(batching.world_size / course.lanes, 1.0)
    if batching.global_batch % course.lanes and spread > best:
        lanes = better_lanes(batching.global_batch, lanes=course.lanes, world_size=batching.world_size)
        warn(
            f"the global batch of {batching.global_batch} samples is no multiple of the {course.lanes} lanes, so the "
            f"ranks share lanes: shards are downloaded about {spread:.2g} times over all nodes instead of {best:.2g}; "
            f"lanes={lanes} would keep each rank on its own"
        )
