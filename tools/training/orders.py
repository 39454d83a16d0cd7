"""The shuffles of the study, and what each needs: room for shards, and downloads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mdsx.order import Order
from mdsx.simulate.buffered import Buffer
from mdsx.simulate.course import most_at_a_time
from mdsx.simulate.orders import EpochOrder, Exact, Ours, ShardLine, Unshuffled
from mdsx.simulate.py1e import Py1e
from tools.misses import least_misses
from tools.training.setting import BASELINES, BLOCKS, CONTROL, NULL, Setting

BUFFER, PY1E = "buffer", "py1e"


@dataclass(frozen=True, slots=True)
class Cost:
    """What a shuffle needs.

    Attributes:
        held: The shards that are held at a time, at most; of a buffer, its samples as shards.
        fetched: How often shards are downloaded, by how many there are, if a cache holds no more than the default of
            mdsx needs. It evicts the shard that is needed last. Every shuffle downloads each shard once if the cache
            holds `held`.
    """

    held: float
    fetched: float


def name_of(lanes: int, block: int) -> str:
    """Return the name of an order of mdsx; `block` is in shards."""
    return f"mdsx, {lanes} lanes, block of {block} shards"


def default_name(setting: Setting) -> str:
    return name_of(*setting.default)


def orders(setting: Setting, pair: int) -> dict[str, EpochOrder]:
    """Return the order of each shuffle for one pair. A buffer and py1e hold what the default of mdsx holds."""
    counts = np.full(setting.all_shards, setting.samples)
    samples, line = setting.all_samples, ShardLine.of(counts, seed=pair)
    found: dict[str, EpochOrder] = {}
    for number, name in enumerate((*BASELINES, NULL)):
        found[name] = Exact(samples, pair * (len(BASELINES) + 1) + number)
    for lanes, block in sorted({setting.default, *BLOCKS}):
        order = Order(counts, seed=pair, lanes=lanes, shuffle_block=block * setting.samples)
        found[name_of(lanes, block)] = Ours(order)
    held = found[default_name(setting)].held
    found[PY1E] = Py1e.holding(held, line, seed=pair)
    found[BUFFER] = Buffer(line, held, pair)
    found[CONTROL] = Unshuffled(counts)
    return found


def costs(setting: Setting) -> dict[str, Cost]:
    """Return what each shuffle needs, in the first pair."""
    found, all_orders = {}, orders(setting, 0)
    shards = {name: each.numbers(0, each.samples) // setting.samples for name, each in all_orders.items()}
    cache = most_held(shards[default_name(setting)])
    for name, each in all_orders.items():
        if name == BUFFER:
            found[name] = Cost(each.held / setting.samples, 1.0)
        else:
            found[name] = Cost(most_held(shards[name]), fetches(shards[name], cache) / setting.all_shards)
    return found


def most_held(shards: NDArray[np.int64]) -> int:
    """Return how many shards are held at a time, at most, if each is from its first use to its last."""
    _, firsts = np.unique(shards, return_index=True)
    _, from_end = np.unique(shards[::-1], return_index=True)
    return most_at_a_time(firsts, len(shards) - from_end, np.ones_like(firsts))


def fetches(shards: NDArray[np.int64], cache: int) -> int:
    """Return how often a shard is fetched if `cache` shards are held, and the one that is needed last is evicted."""
    return sum(least_misses([[shard] for shard in shards.tolist()], cache))
