"""What an order costs on a node, and warnings where it costs more than it needs to: all of it works, only slower."""

from __future__ import annotations

import warnings

from mdsx.order import Order, active_shards, better_lanes, lane_spread
from mdsx.shards import Shards
from mdsx.sizes import format_size
from mdsx.stream.progress import Batching


def warn_of_small_cache(shards: Shards, order: Order, *, ranks_here: int, world_size: int) -> None:
    """Warn where the cache cannot hold the shards that the node's ranks draw on at a time."""
    if shards.cache is None or not len(order):
        return
    lanes = min(order.lanes, ranks_here * -(-order.lanes // world_size))
    active = active_shards(order, len(order) // 2, range(lanes))
    needed = int(active * shards.index.raw_sizes.mean())
    limit = shards.cache.limit
    if limit < needed:
        _warn(
            f"the cache may hold {format_size(limit)}, but about {active} shards ({format_size(needed)}) are in use at "
            f"a time: about {1 - limit / needed:.0%} of the samples will be fetched one by one, or their shards more "
            f"than once; give cache_limit={needed} or more, or a shuffle_block below {order.shuffle_block}"
        )


def warn_of_spread(order: Order, batching: Batching) -> None:
    """Warn where ranks share lanes because the global batch, the lanes and the world size do not fit."""
    if batching.world_size == 1 or not order.shuffle:
        return
    spread = lane_spread(batching.global_batch, lanes=order.lanes, world_size=batching.world_size)
    best = max(batching.world_size / order.lanes, 1.0)
    if batching.global_batch % order.lanes and spread > best:
        lanes = better_lanes(batching.global_batch, lanes=order.lanes, world_size=batching.world_size)
        _warn(
            f"the global batch of {batching.global_batch} samples is no multiple of the {order.lanes} lanes, so the "
            f"ranks share lanes: shards are downloaded about {spread:.2g} times over all nodes instead of {best:.2g}; "
            f"lanes={lanes} would keep each rank on its own"
        )


def _warn(message: str) -> None:
    warnings.warn(message, UserWarning, stacklevel=5)
