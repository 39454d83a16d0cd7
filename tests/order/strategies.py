"""Random configurations of orders, small enough to compare completely with the reference."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from mdsx.order import Order

uint64 = st.one_of(st.integers(0, 20), st.integers(0, 2**64 - 1))
near_powers_of_two = st.builds(lambda k, d: max(0, 2**k + d), st.integers(0, 8), st.integers(-1, 1))
shard_counts = st.lists(st.one_of(st.just(0), st.integers(0, 12), near_powers_of_two), max_size=12)
lane_numbers = st.one_of(st.integers(1, 9), st.integers(1, 100))
blocks = st.one_of(st.integers(1, 20), near_powers_of_two.filter(bool), st.integers(1, 10**6))
components = st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=4), min_size=1, max_size=4)


def orders(shuffle: st.SearchStrategy[bool] | None = None) -> st.SearchStrategy[Order]:
    return st.builds(
        Order,
        shard_counts,
        seed=uint64,
        epoch=uint64,
        lanes=lane_numbers,
        shuffle_block=st.one_of(st.none(), blocks),
        shuffle=st.booleans() if shuffle is None else shuffle,
    )


@st.composite
def mixtures(draw: st.DrawFn) -> dict[str, Any]:
    counts = draw(components.filter(lambda components: any(map(sum, components))))
    weight = st.one_of(st.integers(0, 5), st.floats(0.001, 10), st.fractions(0, 3))
    weights = [draw(weight) if sum(component) else 0 for component in counts]
    if not any(weights):
        weights = [int(sum(component) > 0) for component in counts]
    return {
        "components": counts,
        "weights": weights,
        "seed": draw(uint64),
        "lanes": draw(st.sampled_from([1, 2, 3, 5, 8, 40, 300])),
        "shuffle_block": draw(st.integers(1, 64)),
    }
