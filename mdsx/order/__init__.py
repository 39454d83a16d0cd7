"""Order version 1: positions <-> samples. Pure: no I/O, no clock, no random stream, no global state.

format-spec.md specifies it; tests/vectors/order-v1.json holds test vectors. `Order` says which sample stands at a
position, `batches` which rank reads which positions, `needs` which shards are needed when, `mixture` how weighted
datasets are read together.
"""

from __future__ import annotations

from mdsx.order.batches import better_lanes, lane_spread, rank_positions
from mdsx.order.mixture import MixtureOrder
from mdsx.order.needs import active_shards, shards_needed
from mdsx.order.order import ORDER_VERSION, Order

__all__ = [
    "ORDER_VERSION",
    "MixtureOrder",
    "Order",
    "active_shards",
    "better_lanes",
    "lane_spread",
    "rank_positions",
    "shards_needed",
]
