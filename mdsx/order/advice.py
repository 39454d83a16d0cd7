"""Advice about lanes and caches: which ones fit a job, and what they cost. No I/O."""

from __future__ import annotations

import math
from collections.abc import Callable

from mdsx.base.sizes import format_size
from mdsx.order.course import MAX_BATCH, MAX_WORLD_SIZE, Course, lane_spread
from mdsx.order.limits import MAX_LANES, integer

LOOK_AHEAD = 2**30
"""The most bytes of shards to prefetch ahead of their need."""

_SHARDS_AHEAD = 64  # more do not help
_MOST_LANES = 8192


def better_lanes(global_batch_size: int, *, lanes: int, world_size: int) -> int:
    """Return the number of lanes nearest to `lanes`, at most four times as many, with which ranks do not share lanes: a
    divisor of the global batch size that divides the world size or is a multiple of it. (1 always is.)
    """
    integer(global_batch_size, "global_batch_size", 1, MAX_BATCH)
    integer(world_size, "world_size", 1, MAX_WORLD_SIZE)
    most = min(global_batch_size, 4 * integer(lanes, "lanes", 1, MAX_LANES))
    fits = [n for n in range(1, most + 1) if keeps_apart(n, global_batch_size, world_size)]
    return min(fits, key=lambda n: abs(math.log(n / lanes)))


def keeps_apart(lanes: int, global_batch_size: int, world_size: int) -> bool:
    """Return whether, with these lanes, ranks share no lane in any step."""
    return global_batch_size % lanes == 0 and (lanes % world_size == 0 or world_size % lanes == 0)


def lanes_for_nodes(global_batch_size: int, *, lanes: int, world_size: int, nodes: int) -> int:
    """Return a number of lanes near `lanes` with which nodes, and if possible ranks, do not share lanes."""
    near = [better_lanes(global_batch_size, lanes=lanes, world_size=size) for size in (world_size, nodes)]
    return min(near, key=lambda number: lane_spread(global_batch_size, lanes=number, world_size=nodes))


def fitting_lanes(global_batch_size: int, *, world_size: int, nodes: int) -> list[int]:
    """Return the numbers of lanes, ascending, with which ranks do not share lanes and which are multiples of the number
    of nodes. If there are none, return the number nearest to the number of ranks with which they do not share lanes."""
    most = min(global_batch_size, max(_MOST_LANES, nodes))
    found = [n for n in range(nodes, most + 1, nodes) if keeps_apart(n, global_batch_size, world_size)]
    return found or [better_lanes(global_batch_size, lanes=world_size, world_size=world_size)]


def own_lanes(lanes: int, *, ranks_here: int, world_size: int) -> int:
    """Return how many lanes the ranks of a node read at most, of a global batch that is a multiple of the lanes."""
    whole, rest = divmod(lanes * ranks_here, world_size)
    return min(whole + 2 * bool(rest), lanes)  # the first and the last lane may be those of neighbours too


def room_ahead(block: float, largest: float, spare: float | None = None) -> float:
    """Return how many bytes of shards a process prefetches ahead of their need, at most LOOK_AHEAD or one shard.

    `block`: the bytes of a lane's next block; `spare`: the bytes available for this. It uses a fourth of `spare`, as it
    evicts shards that are needed later, or as much as the next block needs, if there is room. Without `spare`, it uses
    as much as the next block needs.
    """
    if spare is None:
        return min(block, LOOK_AHEAD)
    return max(min(max(block, min(_SHARDS_AHEAD * largest, spare // 4)), spare, LOOK_AHEAD), largest)


def block_bytes(total: float, *, samples: int, lanes: int, shuffle_block: int) -> float:
    """Return the bytes of the shards that one block of a lane draws on."""
    return total * shuffle_block / (max(samples, 1) * lanes)


def shared_lanes(course: Course, period: int, *, ranks_here: int, world_size: int) -> str | None:
    """Return a warning about the cost of nodes that share lanes, with a number of lanes that avoids it; None if they do
    not. Ranks of one node share its cache, so that it costs nothing if they share lanes."""
    nodes = -(-world_size // ranks_here)
    if nodes == 1:
        return None
    spread, best = lane_spread(period, lanes=course.lanes, world_size=nodes), max(nodes / course.lanes, 1.0)
    if spread <= best:
        return None
    lanes = lanes_for_nodes(period, lanes=course.lanes, world_size=world_size, nodes=nodes)
    return (
        f"with {course.lanes} lanes and a global batch of {period} samples, some of the {nodes} nodes share "
        f"lanes: shards are downloaded about {spread:.2g} times over all nodes instead of {best:.2g}; "
        f"shuffle=mdsx.Shuffle(lanes={lanes}) would keep each node on its own"
    )


def small_cache(
    course: Course,
    limit: int | None,
    bytes_of: Callable[[int], int],
    *,
    shards: int,
    window: int,
    ranks_here: int,
    world_size: int,
) -> str | None:
    """Return a warning about the cost of a cache that cannot hold the shards in use by the node's ranks; None if it
    can.

    `limit`: the cache's, None if all shards are read in place; `bytes_of`: the size of a number of shards in the cache;
    `shards`: the number of all shards; `window`: the samples that are grouped together, over all ranks, or 0.
    """
    if limit is None or not course.samples:
        return None
    own = own_lanes(course.lanes, ranks_here=ranks_here, world_size=world_size)
    in_blocks = course.active_shards(own)
    in_window = min(math.ceil(window * shards / course.samples), shards) * own // course.lanes
    active = max(in_blocks, in_window)
    needed = bytes_of(active)
    if limit >= needed:
        return None
    missing = 1 - limit / needed
    requests = max(round(missing * course.samples), shards)
    fewer = f"fewer than {course.lanes} lanes and " if course.lanes > 1 else ""
    block = f"{fewer}a smaller shuffle_block than {course.shuffle_block}, as mdsx doctor --cache-limit recommends"
    less = "a smaller window" if in_window > in_blocks else block
    return (
        f"the cache may hold {format_size(limit)}, but about {active} shards ({format_size(needed)}) are in use at "
        f"a time: about {missing:.0%} of the samples will be fetched one by one, or their shards more than once. "
        f"An epoch needs up to {requests:,} requests to storage instead of {shards:,}, which can make it many "
        f"times slower; give cache=mdsx.Cache(limit={needed}) or more, or {less}"
    )
