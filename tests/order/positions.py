"""What the package computes for many batches and positions, for one batch or a few positions."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mdsx.order import MixtureOrder
from mdsx.order.course import batch_ticks


def rank_positions(start: int, stop: int, *, lanes: int, rank: int, world_size: int) -> NDArray[np.int64]:
    """Return the positions of the global batch `[start, stop)` that `rank` reads."""
    return batch_ticks(np.array([start]), np.array([stop]), lanes=lanes, rank=rank, world_size=world_size)[0]


def draws_before(mixture: MixtureOrder, positions: Iterable[int]) -> NDArray[np.int64]:
    """Return [positions, components]: how often the lane of each position drew each component before it."""
    return np.array([mixture._draws.before(position)[position % mixture.lanes] for position in positions])


def places(mixture: MixtureOrder, positions: ArrayLike) -> list[tuple[int, ...]]:
    """Return (component, shard, sample) at each position."""
    return [tuple(place) for place in np.stack(mixture.locate(positions), axis=1).tolist()]
